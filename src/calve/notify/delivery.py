"""One request to a target: signed, bounded in time, never redirected, through no proxy of the environment.

Nothing of the answer is kept but its status. Errors are in our own words: those of libraries hold the URL.
"""

import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from calve import __version__
from calve.model.access import Notice
from calve.model.process import ProcessId
from calve.model.record import fields_of
from calve.notify.targets import Ping, Target, Webhook
from calve.wire.bounded_http import TimedAnswer

SEND_SECONDS = 10.0
DIGEST_ABOVE = 20  # notices that wait for one target
GONE, BUSY = 410, 429
_SLACK_SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SLACK_MOST = 20  # lines of a digest


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One request that tells of one notice or of many."""

    notices: Sequence[Notice]
    id: str
    event: str
    method: str
    url: str = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    secret: str = field(default="", repr=False)
    ca_file: str = ""

    def headers(self, at: int) -> dict[str, str]:
        found = {
            "X-Calve-Id": self.id,
            "X-Calve-Event": self.event,
            "User-Agent": f"calve/{__version__}",
            "Connection": "close",
        }
        if self.body:
            found["Content-Type"] = "application/json"
        if self.secret:
            found["X-Calve-Signature"] = f"t={at},v1={signature(self.secret, at, self.id, self.body)}"
        return found


@dataclass(frozen=True, kw_only=True)
class Delivered:
    status: int = 0  # 0: there was none
    error: str = ""  # "" if it was taken

    @property
    def is_final(self) -> bool:
        """The receiver asks for no more."""
        return self.status == GONE

    @property
    def is_away(self) -> bool:
        """The receiver would not take another message now either. One that refuses this one may."""
        return bool(self.error) and (not 400 <= self.status < 500 or self.status == BUSY)


Send = Callable[[Delivery, float], Delivered]


def signature(secret: str, at: int, call_id: str, body: bytes) -> str:
    signed = f"{at}.{call_id}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_whole(target: Target, notice: Notice) -> bool:
    """False for a body that cannot be sent, or listed in a digest: its row in the store is damaged (T10)."""
    if isinstance(target, Ping):
        return True
    body = fields_of(notice.body)
    of = body.get("process")
    return body.keys() >= {"id", "event", "at", "message", "process"} and (
        of is None or (isinstance(of, dict) and "id" in of)
    )


def calls(target: Target, notices: Sequence[Notice]) -> list[Delivery]:
    """One for each notice; one for all of them if there are too many. All are whole."""
    if isinstance(target, Ping):
        return _pings(target, notices)
    if len(notices) > DIGEST_ABOVE:
        return [_posted(target, _digest(notices), notices)]
    # What was not taken before comes last: it holds up none that was never tried.
    tried_last = sorted(notices, key=lambda notice: notice.attempts)
    return [_posted(target, json.loads(notice.body), [notice]) for notice in tried_last]


def trial(target: Target) -> Delivery:
    """For a person who wants to see that it works. Of a ping this is the success."""
    if isinstance(target, Ping):
        name = next(name for name in ("success", "start", "fail") if target.url(name))
        return _get(
            target, Notice(id="test", target=target.key, name=name, process_id=ProcessId(""), body="{}")
        )
    words = f"This is a test of {target.key}, sent by calve notify test."
    made = f"test-{time.time_ns()}"
    return _posted(
        target, {"id": made, "event": "test", "message": words, "process": None, "error": None}, ()
    )


def _pings(target: Ping, notices: Sequence[Notice]) -> list[Delivery]:
    """Of many that waited only the newest says how things stand."""
    if len(notices) > DIGEST_ABOVE:
        return [_get(target, notices[-1], notices)]
    return [_get(target, notice) for notice in notices]


def _get(target: Ping, notice: Notice, all_of: Sequence[Notice] = ()) -> Delivery:
    return Delivery(
        notices=all_of or (notice,),
        id=notice.id,
        event=notice.name,
        method="GET",
        url=target.url(notice.name),
        ca_file=target.ca_file,
    )


def _posted(target: Webhook, document: Mapping[str, Any], notices: Sequence[Notice]) -> Delivery:
    shown = {"text": _slack(document)} if target.form == "slack" else document
    return Delivery(
        notices=notices,
        id=document["id"],
        event=document["event"],
        method="POST",
        url=target.url,
        body=json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace"),
        secret=target.secret,
        ca_file=target.ca_file,
    )


def _digest(notices: Sequence[Notice]) -> dict[str, Any]:
    """Its id stands for its notices: the same ones, sent again, have the same."""
    counts = Counter(notice.name for notice in notices)
    together = hashlib.sha256("\n".join(notice.id for notice in notices).encode()).hexdigest()[:32]
    words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    listed = [json.loads(notice.body) for notice in notices]
    return {
        "id": f"digest-{together}",
        "event": "digest",
        "message": f"{len(notices)} notices: {words}",
        "counts": dict(counts),
        "notices": [
            {"id": one["id"], "event": one["event"], "at": one["at"], "process": one["process"] and one["process"]["id"],
             "message": one["message"][:200]}
            for one in listed
        ],
    }  # fmt: skip


def _slack(document: Mapping[str, Any]) -> str:
    """Slack reads `&`, `<` and `>` as its own; a table named `<!channel>` calls nobody."""
    lines = [f"*{document['event']}*: {document['message']}"]
    if document.get("process"):
        lines.append(f"`calve why {document['process']['id']}`")
    below = document.get("notices", ())
    lines += [f"• {one['message']}" for one in below[:_SLACK_MOST]]
    if len(below) > _SLACK_MOST:
        lines.append(f"… and {len(below) - _SLACK_MOST} more: calve ps --all")
    return "\n".join(lines).translate(_SLACK_SIGNS)


def send(call: Delivery, seconds: float = SEND_SECONDS) -> Delivered:
    """Answers with an error, and raises none: whatever a receiver does, the next target has its turn."""
    place = urlsplit(call.url)
    host = place.hostname or ""
    if not host:
        return Delivered(status=GONE, error="its URL is no longer configured")
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    connection: http.client.HTTPConnection | None = None
    try:
        connection = _connection(place.scheme, host, place.port, seconds, call.ca_file)
        # If we die here, it may have been taken, and is sent again with the same id.
        connection.request(call.method, path, body=call.body or None, headers=call.headers(int(time.time())))
        answer = connection.getresponse()
        status = answer.status
    except TimeoutError:
        return Delivered(error=f"{host} gave no complete answer in {seconds:.2g} s")
    except ssl.SSLError as error:
        return Delivered(error=f"TLS with {host} failed: {error.reason or 'certificate'}")
    except http.client.RemoteDisconnected:
        return Delivered(error=f"{host} closed the connection without an answer")
    except OSError as error:
        return Delivered(error=f"{host} cannot be reached: {error.strerror or type(error).__name__}")
    except (http.client.HTTPException, ValueError) as error:
        return Delivered(error=f"{host} did not answer in HTTP ({type(error).__name__})")
    finally:
        if connection is not None:
            connection.close()
    if 200 <= status < 300:
        return Delivered(status=status)
    redirected = ", a redirect, which is not followed" if 300 <= status < 400 else ""
    return Delivered(status=status, error=f"{host} answered {status}{redirected}")


def _connection(
    scheme: str, host: str, port: int | None, seconds: float, ca_file: str
) -> http.client.HTTPConnection:
    """Not of `requests`: it follows redirects, reads proxies from the environment, and logs paths."""
    if scheme == "https":
        context = ssl.create_default_context(cafile=ca_file or None)
        made: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=seconds, context=context
        )
    else:
        made = http.client.HTTPConnection(host, port, timeout=seconds)
    made.response_class = partial(TimedAnswer, until=time.monotonic() + seconds)  # type: ignore[assignment]
    return made
