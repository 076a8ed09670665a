"""HTTP to one server: the token it may see, answers that take their time, errors as the server raised them.

The token of this host goes only to a loopback address, and only after the server has proven that it knows it.
Redirects are not followed, and nothing of the environment (`netrc`, proxies) is used: a token goes where the
user said, and nowhere else.
"""

import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from calve.app.token_file import hello, read_token, token_id
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    Outcome,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)

_TRIES = 3
_MOST_BYTES = 64 << 20
_LONGEST_WAIT_SECONDS = 5.0
_MOST_SLOWED_SECONDS = 30.0  # by a server that has too much to do
_BUSY = ("store_slow", "server_busy", "select_busy")
_ONCE = (
    "export",
    "optimize",
    "backup_create",
    "backup_restore",
    "backup_drill",
    "schedule_run",
    "policy_undo",
    "untier",
    "retry",
    "cancel",
    "stop",
)  # however often they come
_SILENCE_SECONDS = 45.0  # of a stream: a server says something every 15
_TLS_NOISE = re.compile(r"\[SSL[^]]*\] | \(_ssl\.c:\d+\)")
_NAMED = 100  # processes in the address of a stream; above it all are sent


@dataclass(frozen=True, kw_only=True)
class StatementAnswer:
    """What a statement answers with: rows in a format of ClickHouse, or the processes that do it."""

    data: bytes
    form: str
    processes: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()  # of these, what was under way before
    truncated: tuple[str, ...] = ()  # tables of which there is more than was read


@dataclass(frozen=True, kw_only=True)
class Message:
    """One of a stream. `cursor`: where the stream stands after it."""

    name: str
    cursor: str
    data: Any


class Transport:
    """One server. Not for two threads at once."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        local_file: Path | None = None,
        ca_file: str = "",
        timeout_seconds: float = 30.0,
        patience_seconds: float = 3600.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`local_file`: the token of this host, for a loopback address. `timeout_seconds`: for one request;
        `patience_seconds`: for an answer that the server is still working on."""
        self.url = checked_address(url)
        self._token = token
        self._local_file = local_file if not token and _is_loopback(self.url) else None
        self._stranger = ""  # why the token of this host was not sent
        self._timeout = timeout_seconds
        self._patience = patience_seconds
        self._sleep = sleep
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = ca_file or True

    def close(self) -> None:
        self._session.close()

    def call(self, verb: str, arguments: Mapping[str, Any], *, key: str = "") -> Any:
        """What the server answers to a verb. A request whose answer was lost is sent again with the same key: a
        submit is carried out once, whatever else changes something may be repeated."""
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(16)}
        began = time.monotonic()
        failed = 0
        while True:
            try:
                response = self._post(verb, arguments, headers)
            except UnavailableError:
                failed += 1
                if failed >= _TRIES:
                    raise
                self._sleep(0.2 * failed)
                continue
            seconds = time.monotonic() - began
            is_busy = seconds < _MOST_SLOWED_SECONDS and _is_busy(response, once=verb in _ONCE)
            if response.status_code != 202 and not is_busy:
                return self._answer(verb, response)
            if seconds >= self._patience:
                raise TemporaryError(
                    f"server {self.url} is still working on {verb}",
                    code="server_slow",
                    hint="repeat the command",
                )
            self._sleep(_retry_after(response))

    def statement(self, text: str, form: str = "") -> StatementAnswer:
        """A statement whose answer was lost, or that met a busy server, is sent again with the same id: what it
        submits is done once."""
        query_id = secrets.token_urlsafe(16)
        headers = {"X-ClickHouse-Format": form} if form else {}
        began = time.monotonic()
        failed = 0
        while True:
            try:
                response = self._send(
                    "POST",
                    "/",
                    params={"query_id": query_id},
                    data=text.encode("utf-8", "surrogateescape"),
                    headers=headers | self._authorization(),
                )
            except UnavailableError:
                failed += 1
                if failed >= _TRIES:
                    raise
                self._sleep(0.2 * failed)
                continue
            if time.monotonic() - began >= _MOST_SLOWED_SECONDS or not _is_busy(response, once=True):
                break
            self._sleep(_retry_after(response))
        if response.status_code == 200 and "X-ClickHouse-Format" in response.headers:
            named = {
                name.lower(): tuple(filter(None, response.headers.get(f"X-Calve-{name}", "").split(",")))
                for name in ("Processes", "Joined", "Truncated")
            }
            return StatementAnswer(
                data=response.content, form=response.headers["X-ClickHouse-Format"], **named
            )
        problem = _problem(response)
        if "X-Calve-Error" not in response.headers or problem is None:
            self._answer("SQL", response)
            raise self._not_ours("SQL", response)
        raise self._raised(problem, response.status_code)

    def stream(self, after: str, processes: Collection[str] = ()) -> Iterator[Message]:
        """What happens, from a cursor on, until the connection ends, however it does: go on from the last
        message's cursor. TemporaryError if it does not begin."""
        named = sorted(processes) if len(processes) <= _NAMED else []
        with self._reached():
            response = self._session.get(
                self.url + "/v1/events/stream",
                params={"after": after, "process": named},
                headers=self._authorization(),
                timeout=max(self._timeout, _SILENCE_SECONDS),
                allow_redirects=False,
                stream=True,
            )
        with response:
            if response.status_code != 200 or "event-stream" not in response.headers.get("Content-Type", ""):
                self._answer("the event stream", self._read(response))
                raise self._not_ours("the event stream", response)
            try:
                yield from _messages(response)
            except json.JSONDecodeError:
                raise self._not_ours("the event stream", response) from None

    def get(self, path: str, **parameters: str) -> Any:
        response = self._send("GET", path, params=parameters)
        return self._answer(path, response)

    def _post(self, verb: str, arguments: Mapping[str, Any], headers: Mapping[str, str]) -> requests.Response:
        return self._send(
            "POST", f"/v1/verbs/{verb}", json=dict(arguments), headers=dict(headers) | self._authorization()
        )

    def _authorization(self) -> dict[str, str]:
        if self._local_file is not None:
            self._token, self._local_file = self._introduced(self._local_file), None
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _introduced(self, file: Path) -> str:
        """The token of this host, if the server proves that it knows it; "" otherwise."""
        if not file.exists():
            self._stranger = f"there is no token file {file}"
            return ""
        token, nonce = read_token(file), secrets.token_urlsafe(24)
        port = urlsplit(self.url).port or (443 if self.url.startswith("https:") else 80)
        try:
            proof = self._answer("hello", self._send("GET", "/v1/hello", params={"nonce": nonce})).get(
                "proof", ""
            )
        except (PermanentError, NotFoundError, UsageError):
            proof = ""
        if secrets.compare_digest(str(proof).encode(), hello(token, port, nonce).encode()):
            return token
        self._stranger = f"the server does not know the token in {file}, so it was not sent"
        return ""

    def _send(self, method: str, path: str, **given: Any) -> requests.Response:
        with self._reached():
            response = self._session.request(
                method, self.url + path, timeout=self._timeout, allow_redirects=False, stream=True, **given
            )
        return self._read(response)

    def _read(self, response: requests.Response) -> requests.Response:
        with self._reached():
            body = response.raw.read(_MOST_BYTES + 1, decode_content=True)
        if len(body) > _MOST_BYTES:
            raise PermanentError(
                f"server {self.url} answers with more than {_MOST_BYTES >> 20} MB",
                code="server_answer",
                hint="ask for less at a time",
            )
        response._content = body
        return response

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.SSLError as error:
            cause = _cause(error)
            if "WRONG_VERSION_NUMBER" in cause:
                raise PermanentError(
                    f"server {self.url} does not speak TLS", code="server_untrusted", hint="use http://"
                ) from None
            raise PermanentError(
                f"server {self.url}: {_TLS_NOISE.sub('', cause)}",
                code="server_untrusted",
                hint="if its certificate is of your own authority, set CALVE_CA_FILE to that one's PEM file",
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise UnavailableError(
                f"server {self.url} does not answer: {_cause(error)}",
                code="server_unavailable",
                hint=f"check that calve serve is running there{' (with TLS: https://)' if self.url.startswith('http:') else ''}, or omit --server",
                service="server",
            ) from None

    def _answer(self, what: str, response: requests.Response) -> Any:
        try:
            document = response.json()
        except ValueError:
            document = None
        if response.status_code == 200 and document is not None:
            return document
        if not isinstance(document, dict) or "code" not in document:
            raise self._not_ours(what, response)
        raise self._raised(document, response.status_code)

    def _not_ours(self, what: str, response: requests.Response) -> CalveError:
        return UnavailableError(
            f"server {self.url} answers {response.status_code} to {what}: this is not Calve",
            code="server_answer",
            hint="check the address; behind a proxy also its root path",
            service="server",
        )

    def _raised(self, problem: Mapping[str, Any], status: int) -> CalveError:
        error = raised(problem, status)
        if error.code == "no_such_route":
            return UsageError(
                f"there is no Calve at {self.url}",
                code="server_url",
                hint="check the path of the address: it is the --root-path of calve serve, or none",
            )
        if error.code == "unknown_verb":
            error.hint = "the server is of another version: calve --server URL version"
        if status in (401, 403) and self._stranger:
            error.hint = f"{self._stranger}; give --token-file or CALVE_TOKEN"
        return error


def _messages(response: requests.Response) -> Iterator[Message]:
    """Those that came whole. A cut, a reset and a silence are its end."""
    rest, fields = b"", {"id": ""}
    while True:
        try:
            piece = response.raw.read1(1 << 16, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError):
            return
        if not piece or len(rest) > _MOST_BYTES:
            return
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                name, _, value = line.decode("utf-8", "replace").partition(": ")
                fields[name] = value
                continue
            yield Message(
                name=fields.get("event", ""), cursor=fields["id"], data=json.loads(fields.get("data", "null"))
            )
            fields = {"id": fields["id"]}


def given_token(file: str | None, environ: Mapping[str, str]) -> str:
    """The token that was named: `--token-file`, CALVE_TOKEN, CALVE_TOKEN_FILE; "" if none was."""
    if not file and environ.get("CALVE_TOKEN"):
        return environ["CALVE_TOKEN"]
    file = file or environ.get("CALVE_TOKEN_FILE")
    if not file:
        return ""
    try:
        text = Path(file).read_text(encoding="ascii", errors="replace")[:200].strip()
    except OSError as error:
        raise UsageError(
            f"token file {file}: {error.strerror}", code="token_file", hint="calve token new --role viewer"
        ) from None
    if token_id(text) is None:
        raise UsageError(
            f"token file {file} does not contain a token",
            code="token_file",
            hint="calve token new --role viewer",
        )
    return text


def raised(problem: Mapping[str, Any], status: int) -> CalveError:
    """The error that a problem document was made from: the same code, hint and exit code."""
    kind: type[CalveError] = PermanentError
    exit_code = problem.get("exit_code")
    if exit_code in _BY_EXIT_CODE:
        kind = _BY_EXIT_CODE[exit_code]
    elif problem.get("outcome") == Outcome.UNKNOWN.value:
        kind = UnknownOutcomeError
    elif problem.get("retryable"):
        kind = UnavailableError if problem.get("service") else TemporaryError
    elif status in (401, 403):
        kind = DeniedError
    return kind(
        str(problem.get("message") or problem.get("detail") or problem.get("title") or ""),
        code=str(problem["code"]),
        hint=str(problem.get("hint", "")),
        service=str(problem.get("service", "")),
    )


_BY_EXIT_CODE: Mapping[Any, type[CalveError]] = {2: UsageError, 3: NotFoundError, 4: RefusedError}


def _is_busy(response: requests.Response, *, once: bool) -> bool:
    """Whether the same request may be sent again, and might succeed then."""
    if response.status_code != 503:
        return response.status_code == 429
    problem = _problem(response)
    if problem is None or problem.get("code") not in _BUSY:
        return False
    return once or problem.get("outcome") != Outcome.UNKNOWN.value


def _problem(response: requests.Response) -> dict[str, Any] | None:
    """What a server says of an error: the body, or of a statement, whose body is ClickHouse's, a header."""
    try:
        found = json.loads(response.headers.get("X-Calve-Error", "") or response.content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _retry_after(response: requests.Response) -> float:
    try:
        seconds = float(response.headers.get("Retry-After", "1"))
    except ValueError:
        seconds = 1.0
    return min(max(seconds, 0.1), _LONGEST_WAIT_SECONDS)


def checked_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(
            "invalid server address",
            code="server_url",
            hint="give http://HOST:PORT or https://HOST[:PORT][/PATH]",
        )
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _cause(error: BaseException) -> str:
    """The innermost reason: what `requests` wraps around it helps nobody."""
    while error.__context__ is not None and str(error.__context__):
        error = error.__context__
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rpartition(": ")[2] or type(error).__name__
