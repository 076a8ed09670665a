"""Errors of a server as ours, without secrets, and whether an answer is whole.

A server that fails in the middle of a stream has already answered 200 OK. From 25.11 on it writes a block
between `__exception__` and a tag that a header announces; older ones write the bare text of the
exception, and the oldest then end the body as if it were complete. So the end of every body is checked.
"""

import re

from calve.clickhouse import errors
from calve.model import reach
from calve.model.errors import CalveError, DeniedError, PermanentError, TemporaryError, UnavailableError

_OLD_STYLE = re.compile(
    r"Code: (\d+), e\.displayText\(\) = (DB::Exception: .*?)(?:, e\.what\(\).*)?$", re.DOTALL
)
# wrong user, wrong password, no password, a network that the account may not come from
_AUTHENTICATION = frozenset({192, 193, 194, 195, 516})
_DENIED = frozenset({164, errors.ACCESS_DENIED})
# too many queries, cancelled, read-only for now, timeouts, network, Keeper: all may go away
MASK = "********"


class CutOffError(TemporaryError):
    """The answer ended before its end: what came of it is not used."""


class HungError(UnavailableError):
    """Nothing came for as long as we were willing to wait."""


def masked(text: str, secrets: tuple[str, ...]) -> str:
    """The text without any of our secrets: a server may repeat what it was sent."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return text


def code_of(message: str) -> int:
    """ClickHouse's code, in the words of servers old and new."""
    return errors.code_of(_modern(message))


def translate(message: str, what: str, source: str, secrets: tuple[str, ...]) -> CalveError:
    """The server answered with an exception."""
    text = _modern(masked(message, secrets)).strip()
    code = errors.code_of(text)
    if code in _AUTHENTICATION:
        return DeniedError(
            f"{what}: the server refuses the user or the password (ClickHouse error {code})",
            code="authentication",
            hint=f"fix user and password (or password_file) under [source.{source}]",
        )
    if code in _DENIED:
        translated = errors.translate(text, what)
        return PermanentError(
            translated.message, code=f"clickhouse_{code}", hint=f"grant it to the user of [source.{source}]"
        )
    return errors.translate(text, what)


def unreachable(what: str, cause: str, source: str) -> UnavailableError:
    """Nobody answered."""
    return UnavailableError(
        f"{what}: the server cannot be reached: {cause}",
        code="source_unreachable",
        hint=f"check the url of [source.{source}] and that the server runs",
        service=reach.source(source),
    )


def stalled(what: str, seconds: float, *, busy: bool) -> CalveError:
    """The server answers, but no row of this part came for so long. Where it is `busy` with the query, it
    would be so again: a damaged part stays damaged."""
    if busy:
        return PermanentError(
            f"{what}: stopped after {seconds:g} s in which the server worked on it and sent no row",
            code="source_stalled",
            hint="run CHECK TABLE at the source, and replace a damaged part from a replica or a backup;"
            f" {errors.PATIENCE}",
        )
    return TemporaryError(
        f"{what}: the server answers, but no row came for {seconds:g} s",
        code="source_stalled",
        hint=f"look at the network between the executors and the server; {errors.PATIENCE}",
    )


def not_clickhouse(what: str, said: str, source: str) -> TemporaryError:
    """Something else answered. It counts: a wrong url stays wrong, and a balancer's 404 may pass."""
    return TemporaryError(
        f"{what}: this is not ClickHouse's HTTP interface: {said}",
        code="source_not_clickhouse",
        hint=f"check the url of [source.{source}]: ClickHouse's HTTP port is 8123, or 8443 with TLS",
    )


def hung(what: str, seconds: float, source: str) -> HungError:
    return HungError(
        f"{what}: the server did not answer within {seconds:g} s",
        code="source_timeout",
        hint="raise limits.query_seconds if the statement may take that long",
        service=reach.source(source),
    )


def cut_off(what: str, cause: str) -> CutOffError:
    return CutOffError(f"{what}: the answer was cut off: {cause}", code="source_cut_off")


def _modern(message: str) -> str:
    """Servers before 20.x wrote `Code: 47, e.displayText() = DB::Exception: …, e.what() = …`."""
    return _OLD_STYLE.sub(r"Code: \1. \2", message)


TAG_HEADER = "X-ClickHouse-Exception-Tag"
_MARK = b"__exception__\r\n"
_TAIL_BYTES = 65_536
_BARE = re.compile(rb"Code: \d+(?:\. DB::|, e\.displayText\(\) = DB::)\w*Exception: ")


def exception_in(body: bytes, tag: str | None) -> str | None:
    """The exception that ended the body, if one did."""
    tail = body[-_TAIL_BYTES:]
    if tag:
        start = tail.rfind(_MARK + tag.encode())
        if start < 0:
            return None
        block = tail[start + len(_MARK) + len(tag) :].decode("utf-8", "replace")
        return block.rpartition(f" {tag}")[0].rpartition("\n")[0].strip() or block.strip()
    found = list(_BARE.finditer(tail))
    if not found:
        return None
    # Data may hold such a text too (a log table); only one that runs to the very end, on its own, is
    # the server's. JSON escapes a line's end inside of a value, so a quote behind it is data's.
    text = tail[found[-1].start() :]
    if text.rstrip().endswith((b'"]', b'"}', b"]", b"}")):
        return None
    return text.decode("utf-8", "replace").strip()
