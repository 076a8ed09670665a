"""The lines of the log: who they are about, in which form, and without secrets.

Every line passes the `Redactor`: no secret value of the configuration, and nothing that looks like a token, is
ever written. A line for programs is one JSON object; a line for people begins with its time, and what follows
a line break is indented, so no message can forge a line.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

MASK = "***"
SECRET_NAME = re.compile(
    r"(?i)(password|passwd|secret|token|credential|private|sas|account-key|connection-string|[._-]key$)"
)
_FIELDS = ("process", "task", "attempt", "worker", "request")
_SHORT = 4  # a secret of fewer characters counts only where it stands alone
_TOKENS = tuple(
    (re.compile(pattern), f"\\1{MASK}")
    for pattern in (
        r"()calve_[a-z0-9]{1,16}_[A-Za-z0-9_-]{20,}",
        r"((?i:authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic) +)?))[^\s\"',]+",
        r"((?i:\b(?:bearer|basic)) +)(?=[^\s\d=]{0,200}[\d=])[A-Za-z0-9._~+/=-]{8,}",
        r"()\beyJ[A-Za-z0-9_-]{6,1000}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?",  # a JSON web token
        r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"()\b(?:xox[abeoprs]-|gh[oprsu]_|glpat-)[A-Za-z0-9_-]{10,}",
        r"(://hooks\.slack\.com/)[^\s\"']+",
        r"(://[^/@:\s]*:)[^/@\s]+(?=@)",
        # A value that a name before it calls secret, as in URLs, headers, settings and Python's own reprs.
        r"((?i:(?:passw(?:or)?d|secret|token|signature|x-amz-credential|access[_-]?key)[\w.-]{0,40})"
        r"(?:[\"']\s*:\s*|\s*=\s*|:(?=\S))[\"']?)[^\s\"'&,;)}\]]{4,}",
        r"((?i:x-clickhouse-key)[\"']?\s*:\s*[\"']?)[^\s\"',]+",
        r"()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    )
)
# Where nothing is bound, what a message itself names: "process ID, task 3: attempt 1 failed", "Publish of ID".
_NAMED = re.compile(
    r"\b(?:process|[A-Z][A-Za-z]+ of) (?P<process>[a-kmnp-z2-9]{13})\b"
    r"(?:, task (?P<task>\d+): attempt (?P<attempt>\d+))?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_bound: ContextVar[Mapping[str, Any]] = ContextVar("calve_log", default=MappingProxyType({}))


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Whatever is logged within says so: process, task, attempt, worker, request."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


class Redactor:
    """Replaces secrets. `secrets` are texts that must not be shown, however short."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {line.strip() for text in secrets for line in text.splitlines()} - {"", MASK}
        # The longest first: one secret may be the beginning of another.
        patterns = [_pattern(part) for part in sorted(parts, key=len, reverse=True)]
        self._secrets = re.compile("|".join(patterns)) if patterns else None

    def __call__(self, text: str) -> str:
        if self._secrets is not None:
            text = self._secrets.sub(MASK, text)
        for pattern, shown in _TOKENS:
            text = pattern.sub(shown, text)
        return text


def secrets_of(document: Any) -> list[str]:
    """Every text below a name that is called secret."""
    found: list[str] = []
    if isinstance(document, Mapping):
        for name, below in document.items():
            if isinstance(below, str) and SECRET_NAME.search(str(name)):
                found.append(below)
            else:
                found += secrets_of(below)
    elif isinstance(document, (list, tuple)):
        for below in document:
            found += secrets_of(below)
    return found


class _Lines(logging.Formatter):
    def __init__(self, redactor: Redactor, fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self._redact = redactor
        self._fixed = fixed

    def message(self, record: logging.LogRecord) -> str:
        try:
            return self._redact(record.getMessage())
        except Exception as error:  # noqa: BLE001 - a line that cannot be made must not end the work
            return self._redact(f"{record.msg} ({type(error).__name__} in the arguments)")

    def traceback(self, record: logging.LogRecord) -> str:
        return self._redact(self.formatException(record.exc_info)) if record.exc_info else ""

    def about(self, record: logging.LogRecord, message: str) -> dict[str, Any]:
        named = _NAMED.search(message)
        found = dict(self._fixed)
        if named:
            found |= {
                key: int(text) if text.isdigit() and key != "process" else text
                for key, text in named.groupdict().items()
                if text
            }
        found |= _bound.get()
        return {
            key: self._redact(value) if isinstance(value, str) else value
            for key in _FIELDS
            if (value := found.get(key)) not in (None, "")
        }


class JsonLines(_Lines):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        message = self.message(record)
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **self.about(record, message),
        }
        if record.exc_info:
            code = getattr(record.exc_info[1], "code", None)
            line["error"] = {
                "code": code if isinstance(code, str) else "internal",
                "type": getattr(record.exc_info[0], "__name__", ""),
                "traceback": self.traceback(record),
            }
        return json.dumps(line)  # in ASCII: some readers take other signs for the end of a line


class HumanLines(_Lines):
    """The time with its zone, the level, the message, and in brackets what the message does not say."""

    def format(self, record: logging.LogRecord) -> str:
        message = self.message(record)
        more = [
            f"{key} {value}"
            for key, value in self.about(record, message).items()
            if key != "worker" and str(value) not in message
        ]
        at = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(record.created))
        text = f"{message} ({', '.join(more)})" if more else message
        if record.exc_info:
            text = f"{text}\n{self.traceback(record)}"
        text = _CONTROL.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text).replace("\n", "\n  ")
        return f"{at} {record.levelname} {text}"


def start(
    *,
    level: str = "info",
    form: str = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    **fixed: Any,
) -> bool:
    """Write what `calve` logs to stderr, and nothing of libraries, which says nothing to an operator. `fixed`
    fields are in every line. Called again, it takes the place of what was. Whether lines are JSON."""
    stream = stream or sys.stderr
    as_json = form == "json" or (form == "auto" and not stream.isatty())
    _write(stream, level, (JsonLines if as_json else HumanLines)(Redactor(secrets), fixed))
    everybody = logging.getLogger()
    if not everybody.handlers:  # without one Python prints warnings by itself
        everybody.addHandler(logging.NullHandler())
    logging.captureWarnings(True)
    return as_json


def start_on_executor(payload: str) -> None:
    """On an executor, whose stderr Spark keeps: JSON, warnings and above, without the secrets of the payload."""
    _write(sys.stderr, "warning", JsonLines(_OfPayload(payload), {}))


class _OfPayload(Redactor):
    """Reads the payload once there is something to write, which is seldom."""

    def __init__(self, payload: str) -> None:
        super().__init__()
        self._payload: str | None = payload

    def __call__(self, text: str) -> str:
        if self._payload is not None:
            with suppress(ValueError):
                super().__init__(secrets_of(json.loads(self._payload)))
            self._payload = None
        return super().__call__(text)


def _write(stream: TextIO, level: str, lines: logging.Formatter) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    ours = logging.getLogger("calve")
    ours.handlers[:] = [handler]
    ours.setLevel(level.upper())
    ours.propagate = False


def _pattern(secret: str) -> str:
    """As it is, and as Python or JSON writes it between quotes."""
    spellings = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    text = "|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True))
    return rf"(?<!\w)(?:{text})(?!\w)" if len(secret) < _SHORT else f"(?:{text})"
