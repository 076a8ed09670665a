"""UNFREEZE: the source lets go of a freeze by itself, with its own rights to its own files.

Where a worker may read the server's files but not remove them, this is the only way. It is tried
first, and never relied on: a table that was dropped has no UNFREEZE of its own (codes 60, 81,
218), `SYSTEM UNFREEZE` is off unless the server's configuration has `enable_system_unfreeze`, and
tables of the old syntax are left half frozen. Whatever is left afterwards goes with the folder.
"""

from collections.abc import Sequence
from pathlib import Path

from calve.clickhouse.pins import shadow
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.model.errors import CalveError

ANSWERED = "clickhouse"  # how codes of errors begin that the source itself answered with


def unfreeze(session: Session, name: str, table: tuple[str, str] | None, disks: Sequence[Path]) -> None:
    """Ask the source, as far as it can and anything is left. An answer that may come later (a timeout,
    a server that is down) is raised: the release is tried again."""
    shadow.checked(name)  # never a freeze that is not ours
    if not shadow.holds(disks, name):
        return
    if table is not None and session.unfreezes_tables:
        database, table_name = table
        _ask(session, f"ALTER TABLE {quoted(database)}.{quoted(table_name)} UNFREEZE", name)
    if session.unfreezes_all and shadow.holds(disks, name):
        _ask(session, "SYSTEM UNFREEZE", name)


def _ask(session: Session, statement: str, name: str) -> None:
    try:
        # if we die here, the freeze is there, half there or gone: the next try looks
        session.execute(f"{statement} WITH NAME {string(name)}", what=f"releasing the pin {name}")
    except CalveError as error:
        if not error.code.startswith(ANSWERED):
            raise
        # no such table any more, not allowed, or switched off: there are other ways
