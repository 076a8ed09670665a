"""SQLAlchemy's errors turned into ours. No password gets into one.

What matters most is the outcome: an error before the commit means that nothing was applied;
an error of the commit itself, with no answer from the database, means that the outcome is unknown.
"""

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from calve.model.errors import CalveError, ConflictError, PermanentError, StoreError, StoreUnknownError

_HINT = "calve doctor"
_BUSY = ("locked", "busy")
_AGAIN = frozenset({"40001", "40P01"})  # serialization failure, deadlock: rolled back whole
_CONNECTION_STATES = ("08", "57P")  # connection exceptions, shut down by an operator
_STANDBY = "25006"  # read-only: a fail-over is under way


def sqlstate(error: SQLAlchemyError) -> str:
    """PostgreSQL's code, where the server itself answered."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def is_lost_connection(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_check_violation(error: IntegrityError) -> bool:
    name = getattr(error.orig, "sqlite_errorname", "")
    return sqlstate(error) == "23514" or name == "SQLITE_CONSTRAINT_CHECK"


def may_run_again(error: SQLAlchemyError) -> bool:
    """Errors before the commit that another run of the same transaction may not meet: nothing
    was applied, and what stood in the way has been decided by now."""
    if isinstance(error, IntegrityError):
        return not is_check_violation(error)
    return is_lost_connection(error) or sqlstate(error) in _AGAIN


def translate(error: SQLAlchemyError, url: URL, *, committing: bool = False) -> CalveError:
    where = url.render_as_string(hide_password=True)
    cause = _cause(error, url)
    if committing and not _answered(error):
        return StoreUnknownError(
            f"the store {where} did not say whether it made the change: {cause}",
            code="store_unknown",
            hint=_HINT,
        )
    if isinstance(error, IntegrityError) and not is_check_violation(error):
        return ConflictError(f"the store {where} refused a change: {cause}", code="conflict", hint=_HINT)
    if isinstance(error, PoolTimeoutError):
        return StoreError(
            f"no free connection to the store {where}: nothing was changed", code="store_busy", hint=_HINT
        )
    unavailable = isinstance(error, OperationalError | InterfaceError) or sqlstate(error) == _STANDBY
    if unavailable or is_lost_connection(error):
        busy = any(word in cause.lower() for word in _BUSY)
        return StoreError(
            f"the store {where} cannot be used now: {cause}; nothing was changed",
            code="store_busy" if busy else "store_unavailable",
            hint=_HINT,
        )
    return PermanentError(
        f"the store {where} refused a statement: {cause}; nothing was changed",
        code="store_rejected",
        hint=_HINT,
    )


def _answered(error: SQLAlchemyError) -> bool:
    """Whether the database itself said no to the commit; silence is not an answer."""
    state = sqlstate(error)
    busy = getattr(getattr(error, "orig", None), "sqlite_errorname", "") == "SQLITE_BUSY"
    return busy or bool(state and not state.startswith(_CONNECTION_STATES))


def _cause(error: SQLAlchemyError, url: URL) -> str:
    """The first line only: later ones quote rows, statements and parameters."""
    text = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
    line = text.splitlines()[0]
    return line.replace(url.password, "***") if url.password else line
