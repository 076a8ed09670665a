"""Errors of statements, and the numbers by which ClickHouse's clients know them.

Every error has a number, a name and an HTTP status; the table is complete by a test.
"""

from dataclasses import dataclass

from calve.clickhouse import errors as clickhouse
from calve.model.errors import (
    CalveError,
    DeniedError,
    LockedError,
    NotFoundError,
    PermanentError,
    RefusedError,
    StoreError,
    TemporaryError,
    UsageError,
)

SYNTAX = "sql_syntax"
STATEMENT = "sql_statement"  # not one of ours
TABLE = "sql_table"
FUNCTION = "sql_function"
REFUSED = "sql_refused"  # a construct that a SELECT here may not have
SETTING = "sql_setting"
FORMAT = "sql_format"
TOO_LONG = "sql_too_long"
READONLY = "sql_readonly"
DATABASE = "sql_database"
TIMEOUT = "select_timeout"
MEMORY = "select_memory"
BUSY = "select_busy"


def wrong(message: str, *, code: str = SYNTAX, hint: str = "") -> UsageError:
    """The statement is at fault."""
    return UsageError(message, code=code, hint=hint)


@dataclass(frozen=True, kw_only=True)
class ErrorName:
    """How ClickHouse says it."""

    number: int
    name: str
    status: int


_NO_TOKEN = ErrorName(number=516, name="AUTHENTICATION_FAILED", status=401)
_BY_CODE = {
    SYNTAX: ErrorName(number=62, name="SYNTAX_ERROR", status=400),
    STATEMENT: ErrorName(number=48, name="NOT_IMPLEMENTED", status=400),
    TABLE: ErrorName(number=60, name="UNKNOWN_TABLE", status=404),
    FUNCTION: ErrorName(number=46, name="UNKNOWN_FUNCTION", status=400),
    REFUSED: ErrorName(number=392, name="QUERY_IS_PROHIBITED", status=403),
    SETTING: ErrorName(number=115, name="UNKNOWN_SETTING", status=400),
    FORMAT: ErrorName(number=73, name="UNKNOWN_FORMAT", status=400),
    TOO_LONG: ErrorName(number=62, name="SYNTAX_ERROR", status=413),
    READONLY: ErrorName(number=164, name="READONLY", status=405),
    DATABASE: ErrorName(number=81, name="UNKNOWN_DATABASE", status=404),
    TIMEOUT: ErrorName(number=159, name="TIMEOUT_EXCEEDED", status=504),
    MEMORY: ErrorName(number=241, name="MEMORY_LIMIT_EXCEEDED", status=413),
    BUSY: ErrorName(number=202, name="TOO_MANY_SIMULTANEOUS_QUERIES", status=503),
    "server_busy": ErrorName(number=202, name="TOO_MANY_SIMULTANEOUS_QUERIES", status=503),
    "too_many_requests": ErrorName(number=202, name="TOO_MANY_SIMULTANEOUS_QUERIES", status=429),
    "no_cage": ErrorName(number=48, name="NOT_IMPLEMENTED", status=501),
    "role": ErrorName(number=497, name="ACCESS_DENIED", status=403),
    "token_missing": _NO_TOKEN,
    "token_wrong": _NO_TOKEN,
    "key_reused": ErrorName(number=36, name="BAD_ARGUMENTS", status=422),
}
_BY_CLASS: tuple[tuple[type[CalveError], ErrorName], ...] = (  # the first that fits
    (LockedError, ErrorName(number=473, name="DEADLOCK_AVOIDED", status=409)),
    (RefusedError, ErrorName(number=36, name="BAD_ARGUMENTS", status=409)),
    (UsageError, ErrorName(number=36, name="BAD_ARGUMENTS", status=400)),
    (NotFoundError, ErrorName(number=36, name="BAD_ARGUMENTS", status=404)),
    (StoreError, ErrorName(number=999, name="KEEPER_EXCEPTION", status=503)),
    (TemporaryError, ErrorName(number=210, name="NETWORK_ERROR", status=503)),
    (DeniedError, ErrorName(number=497, name="ACCESS_DENIED", status=502)),
    (PermanentError, ErrorName(number=36, name="BAD_ARGUMENTS", status=502)),
)
_INTERNAL = ErrorName(number=1002, name="UNKNOWN_EXCEPTION", status=500)


def known(error: BaseException) -> ErrorName:
    """ClickHouse's number, name and status for an error of ours."""
    if not isinstance(error, CalveError):
        return _INTERNAL
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if number := clickhouse.number_of(error):
        return ErrorName(number=number, name=_NAMES.get(number, "BAD_ARGUMENTS"), status=400)
    return next((one for kind, one in _BY_CLASS if isinstance(error, kind)), _INTERNAL)


# of what the engine says about a statement that we let through
_NAMES = {
    6: "CANNOT_PARSE_TEXT",
    27: "CANNOT_PARSE_INPUT_ASSERTION_FAILED",
    42: "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
    43: "ILLEGAL_TYPE_OF_ARGUMENT",
    46: "UNKNOWN_FUNCTION",
    47: "UNKNOWN_IDENTIFIER",
    53: "TYPE_MISMATCH",
    60: "UNKNOWN_TABLE",
    62: "SYNTAX_ERROR",
    70: "CANNOT_CONVERT_TYPE",
    153: "ILLEGAL_DIVISION",
    179: "MULTIPLE_EXPRESSIONS_FOR_ALIAS",
    184: "ILLEGAL_AGGREGATION",
    215: "NOT_AN_AGGREGATE",
    386: "NO_COMMON_TYPE",
    396: "TOO_MANY_ROWS_OR_BYTES",
}
