"""The database's clock as an SQL expression, in microseconds since 1970.

It stands inside the statements that write and compare times, so no machine's clock but the
database's ever decides (D11).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def from_us(us: int | None) -> datetime | None:
    return None if us is None else _EPOCH + timedelta(microseconds=us)


def time_from_us(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def seconds_to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)


class _DatabaseClock(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


@compiles(_DatabaseClock, "sqlite")
def _sqlite(*_: Any, **__: Any) -> str:
    # Milliseconds is all that SQLite has; `unixepoch(…, 'subsec')` would need 3.42.
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"


@compiles(_DatabaseClock, "postgresql")
def _postgresql(*_: Any, **__: Any) -> str:
    # statement_timestamp(), not clock_timestamp(): stable within a statement, so an index can
    # serve a comparison with it; not now(): that one stands still for the whole transaction.
    return "(CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT))"


def database_clock(offset_seconds: Callable[[], float] | None) -> ColumnElement[int]:
    """`offset_seconds` moves the clock in tests; it is asked at each execution."""
    if offset_seconds is None:
        return _DatabaseClock()
    moved = offset_seconds

    def offset_us() -> int:
        return seconds_to_us(moved())

    return _DatabaseClock() + bindparam("clock_offset_us", callable_=offset_us, type_=BigInteger)
