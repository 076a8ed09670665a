"""ClickHouse's errors as ours: the one place that decides which are temporary.

code 241, one query's limit    permanent: the same rows need the same memory
codes that name the statement  permanent: the statement or the data is at fault
damaged parts                  permanent
a statement that stalls        permanent if it computes all the while: the same bytes take as long again
a full disk                    temporary, and said
everything else                temporary: budgets decide how long
"""

import re

from calve.model.errors import CalveError, NotFoundError, PermanentError, TemporaryError
from calve.objects.errors import CODE as DISK_FULL

_CODE = re.compile(r"Code: (\d+)\. ")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)\s*(?:\(version [^)]*\))?\s*$")
_MESSAGE_LENGTH = 1000

UNKNOWN_TABLE = 60
UNKNOWN_DATABASE = 81
ACCESS_DENIED = 497
READONLY = 164
UNKNOWN_SETTING = 115
MAY_NOT = frozenset({ACCESS_DENIED, READONLY})  # the user lacks a right
_ANSWER = "clickhouse"  # an answer without a number
_LABEL = f"{_ANSWER}_"
_MEMORY = 241
_NO_SPACE = 243
_FULL = re.compile(r"errno: (?:27|28|122)\b|No space left on device|Disk quota exceeded")
_GONE = frozenset({UNKNOWN_TABLE, UNKNOWN_DATABASE, 218})
_DISKS = frozenset({478, 479})  # a storage policy, a disk that the configuration does not have
_STATEMENT = frozenset(
    # argument counts and types, unknown names, syntax, parsing, conversions, overflows, throwIf,
    # unsupported features and types, access
    {6, 8, 10, 16, 20, 27, 34, 35, 36, 38, 41, 42, 43, 44, 46, 47, 48, 50, 53, 62, 63, 69, 70, 72, 73}
    | {
        115,
        117,
        130,
        131,
        153,
        170,
        179,
        184,
        190,
        215,
        248,
        321,
        349,
        344,
        386,
        395,
        407,
        456,
        ACCESS_DENIED,
    }
)
_DAMAGED = frozenset({32, 33, 40, 226, 228, 246, 259, 271, 354, 432})


class SourceBusyError(TemporaryError):
    """An embedded source is open in another process. A worker tries again; a person, told so by
    a command, closes it: the state of the data's folder forbids the work."""

    exit_code = 4


class NoTableError(NotFoundError):
    """The table, or its database, does not exist, or was dropped, detached or renamed while we looked."""


class NoPartitionError(NotFoundError):
    """The table has no such partition."""


def is_answer(error: CalveError) -> bool:
    """Whether ClickHouse itself answered with this error: it was reached, and said no."""
    return error.code == _ANSWER or number_of(error) > 0


def number_of(error: CalveError) -> int:
    """ClickHouse's number of an error that it answered with; 0 for every other error."""
    number = error.code.removeprefix(_LABEL)
    return int(number) if error.code.startswith(_LABEL) and number.isdigit() else 0


def code_of(message: str) -> int:
    """ClickHouse's error code in a message; 0 when there is none."""
    found = _CODE.search(message)
    return int(found.group(1)) if found else 0


def translate(message: str, what: str) -> CalveError:
    """Our error for ClickHouse's `message`, met while doing `what` ("reading parts of …")."""
    code = code_of(message)
    text = f"{what}: {_readable(message, code)}"
    label = f"{_LABEL}{code}" if code else _ANSWER
    if code == _MEMORY:
        return _memory(text, message)
    if code == _NO_SPACE or _FULL.search(message):
        return _full(text)
    if code in _GONE:
        return NoTableError(
            text, code=label, hint="the table or database was dropped or renamed in the meantime"
        )
    if code in _DAMAGED:
        return PermanentError(
            text,
            code=label,
            hint="the part is damaged or unreadable: run CHECK TABLE at the source",
        )
    if code in _DISKS:
        return PermanentError(
            text,
            code=label,
            hint="add it to ClickHouse's configuration; or create the table on a disk that is there, and restore its"
            " rows with --data-only --existing append",
        )
    if code in _STATEMENT:
        return PermanentError(text, code=label)
    return TemporaryError(text, code=label)


PATIENCE = "`limits.stall_seconds` sets how long a statement may take without progress"


def stalled(what: str, seconds: float, *, busy: bool) -> CalveError:
    """Nothing was read or written for so long, while doing `what`."""
    if busy:
        return PermanentError(
            f"{what}: stopped after {seconds:g} s of computing in which nothing was read or written,"
            " which is what a damaged block looks like",
            code="stalled",
            hint="run CHECK TABLE at the source, and replace a damaged part from a replica or a backup;"
            f" {PATIENCE}",
        )
    return TemporaryError(
        f"{what}: stopped after {seconds:g} s of waiting in which nothing was read or written",
        code="stalled",
        hint=f"check the disk that holds the part; {PATIENCE}",
    )


def _full(text: str) -> CalveError:
    return TemporaryError(
        f"no room on the disk: {text}",
        code=DISK_FULL,
        hint="free space there (an executor's own files are in its TMPDIR); Calve retries",
    )


def _memory(text: str, message: str) -> CalveError:
    """A query that met its own limit meets it again; memory that others use may come back."""
    hint = "raise limits.task_memory_mb, or lower limits.task_bytes_mb or limits.open_files"
    if "(total)" in message or "total memory limit" in message.lower():
        return TemporaryError(text, code="memory_limit", hint=hint)
    return PermanentError(text, code="memory_limit", hint=hint)


def _readable(message: str, code: int) -> str:
    """One line without the engine's furniture; the code and its name are kept."""
    text = " ".join(message.split())
    text = re.sub(r"^.*?DB::Exception: ", "", text, count=1)
    name = _NAME.search(text)
    label = f"{code} {name.group(1)}" if name else str(code)
    text = _NAME.sub("", text).strip()
    if len(text) > _MESSAGE_LENGTH:
        text = text[:_MESSAGE_LENGTH] + "…"
    return f"{text} (ClickHouse error {label})" if code else text
