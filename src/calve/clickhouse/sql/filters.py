"""`--where`: a condition over the columns of the table, and over nothing else.

It is part of the export's key and is computed by executors, attempt after attempt, away from the
source. So it must mean the same each time and everywhere: no clock, no chance, no other table.
"""

from calve.clickhouse.engine.ddl import needs_server
from calve.clickhouse.ports import Session
from calve.clickhouse.sql.tokens import Sort, called, tokens
from calve.clickhouse.tables import TableInfo
from calve.model.errors import PermanentError, UsageError

_HINT = "give a condition over the table's columns, such as --where \"id < 100 AND day = '2024-01-01'\""
_CHANGING = frozenset(
    {"now", "now64", "nowinblock", "nowinblock64", "today", "yesterday", "current_timestamp", "curdate"}
    | {"utctimestamp", "utc_timestamp", "current_date", "currentdate"}
    | {"rand", "rand32", "rand64", "randconstant", "randuniform", "randnormal", "randbernoulli"}
    | {"randomstring", "randomfixedstring", "randomprintableascii", "randomstringutf8", "randcanonical"}
    | {"generateuuidv4", "generateuuidv7", "generateulid", "generatesnowflakeid", "rownumberinallblocks"}
    | {"rownumberinblock", "blocknumber", "blocksize", "runningdifference", "runningaccumulate", "neighbor"}
)


def check_where(session: Session, table: TableInfo, where: str) -> None:
    """UsageError for a condition that cannot be computed, or would not mean the same twice."""
    if not where:
        return
    refuse_uncertain(table, where)
    try:
        session.rows(f"SELECT 1 AS one FROM {table.sql} WHERE ({where}\n) LIMIT 0", what=f"table {table}")
    except PermanentError as error:
        raise _wrong(where, error.message) from None


def refuse_uncertain(table: TableInfo, where: str) -> None:
    """What can be told of a condition without asking the source."""
    words = list(tokens(where))
    if any(word.sort is Sort.NAME and word.text.upper() in {"SELECT", "WITH"} for word in words):
        raise _wrong(where, "it reads another table, which executors do not have")
    for function in called(words):
        if function.casefold() in _CHANGING:
            raise _wrong(where, f"{function}() changes from call to call, so it names no certain rows")
        if needs_server(function, table):
            raise _wrong(where, f"{function}() can only be computed by the source itself")


def _wrong(where: str, why: str) -> UsageError:
    return UsageError(f"--where {where!r}: {why}", code="where", hint=_HINT)
