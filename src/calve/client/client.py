"""Calve from Python, by a server or here: `from calve import Client`.

Both answer with the same documents (`app.desk`), so a program that works here works there. Submits carry a key:
one that is sent again, also by a program that was started again with the same `key`, is carried out once.
"""

import json
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from calve.app.front import CancelAnswer
from calve.client import values
from calve.client.pages import listed
from calve.client.tables import Document, Queued, QueuedExport, Table
from calve.client.transport import StatementAnswer, Transport, given_token
from calve.client.watch import Reset, Seen, Watch, polled, streamed
from calve.model.errors import TemporaryError, UsageError
from calve.model.process import Event, Process, ProcessId
from calve.model.states import PROCESS_TERMINAL

if TYPE_CHECKING:
    from calve.app.calve import Calve
    from calve.client.local import Local

__all__ = ["Client", "Reset", "Watch"]

_POLL_SECONDS = 0.5
_LOOKS_THAT_MAY_FAIL = 20  # in a row: a server that is started again ends no waiting
_ROWS = "JSONEachRow"


class _Calve(Protocol):
    """A server (`client.transport`), or this program (`client.local`)."""

    def call(self, verb: str, arguments: Mapping[str, Any], *, key: str = "") -> Any: ...
    def statement(self, text: str, form: str = "") -> StatementAnswer: ...
    def close(self) -> None: ...


class Client:
    """One Calve. Options have the names of the command line's, with `_` for `-`; names of tables, destinations
    and processes are as they are typed there. Errors are `CalveError`s. Not for two threads at once."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        token_file: str = "",
        ca_file: str = "",
        timeout_seconds: float = 30.0,
    ) -> None:
        """`token`, or the file that has it; by default CALVE_TOKEN or CALVE_TOKEN_FILE, and for a server on this
        host the `calve.token` in the working folder."""
        transport = Transport(
            url,
            token or given_token(token_file, os.environ),
            local_file=Path("calve.token").absolute(),
            ca_file=ca_file,
            timeout_seconds=timeout_seconds,
        )
        self._calve: _Calve = transport
        self._look: Callable[..., Generator[Seen, None, None]] = partial(streamed, transport)

    @classmethod
    def local(cls, config: str | Path | None = None) -> "Client":
        """Without a server: on the configuration of this folder, or the one given. Queues and reads; the work is
        done by `calve worker`."""
        from calve.client.local import Local

        return cls._of(Local.opened(config))

    @classmethod
    def _over(cls, calve: "Calve") -> "Client":
        """On a façade that is open, and stays so."""
        from calve.client.local import Local

        return cls._of(Local(calve))

    @classmethod
    def _of(cls, local: "Local") -> "Client":
        made = cls.__new__(cls)
        made._calve = local
        made._look = lambda _of, cursor: polled(lambda after: made.ask("feed", after=after), cursor)
        return made

    def close(self) -> None:
        self._calve.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, verb: str, key: str = "", **given: Any) -> Any:
        """Any verb by its name, such as `ask("backup_delete", name="nightly")`: what it answers, as JSON."""
        return self._calve.call(verb, {name: _plain(value) for name, value in given.items()}, key=key)

    # -- reading ------------------------------------------------------------------------------------

    def processes(self, *, all: bool = False, limit: int = 200, **filters: Any) -> Table[Process]:
        """Newest first; those that have not ended, or all. Filters: `kind`, `states`, `table`, `to`, `batch`,
        `since`."""
        found = listed(
            lambda most, after: self.ask("processes", all=all, limit=most, after=after, **filters), limit
        )
        return Table(values.process(one) for one in found)

    def process(self, process_id: str) -> Process:
        return values.process(self.ask("find", ids=[process_id])[0])

    def why(self, process_id: str) -> str:
        """What a process is waiting for."""
        return str(self.ask("why", ids=[process_id])[0]["why"])

    def events(self, *ids: str) -> Table[Event]:
        return Table(values.event(one) for one in self.ask("events", ids=ids))

    def watch(self, *ids: str, after: str = "") -> Watch:
        """Events as they happen, of these processes or of all; from now, or from the `cursor` of an earlier
        watch, or from "start". Goes on by itself after a connection was lost."""
        of = frozenset(ProcessId(one["id"]) for one in self.ask("find", ids=ids)) if ids else None
        cursor = after or str(self.ask("feed")["cursor"])
        return Watch(partial(self._look, of or ()), cursor, of)

    def sql(self, statement: str) -> Table[dict[str, Any]]:
        """The rows of a statement of `calve sql`; of an ALTER the processes that do it. A warning says if a
        table has more rows than a SELECT sees."""
        answer = self._calve.statement(statement, _ROWS)
        if not answer.data:
            return Table({"process": one, "joined": one in answer.joined} for one in answer.processes)
        if answer.form != _ROWS:
            raise UsageError(
                f"sql() reads rows, not {answer.form}", code="bad_option", hint="omit FORMAT in the statement"
            )
        for table in answer.truncated:
            warnings.warn(f"{table} has more rows than a SELECT sees; the oldest are missing", stacklevel=2)
        return Table(json.loads(line) for line in answer.data.splitlines())

    def workers(self) -> Table[dict[str, Any]]:
        return Table(self.ask("workers"))

    def partitions(self, table: str, to: str = "") -> Table[dict[str, Any]]:
        """With `to`, also what that destination has of each."""
        return Table(self.ask("partitions", table=table, to=to))

    def health(self, table: str, *, orphans: bool = False) -> Document:
        return Document(self.ask("health", table=table, orphans=orphans))

    def verify(self, *ids: str, deep: bool = False) -> Table[dict[str, Any]]:
        """Proofs of what was exported; each has `ok` and `faults`."""
        return Table(self.ask("verify", ids=ids, deep=deep))

    def backups(self) -> Table[dict[str, Any]]:
        return Table(self.ask("backup_list")["backups"])

    # -- changing -----------------------------------------------------------------------------------

    def export(self, table: str, to: str, *, key: str = "", **options: Any) -> QueuedExport:
        """Queue an export. Choose by `partitions`, `parts`, `all` or `older_than`."""
        answer = values.export_answer(self.ask("export", key, table=table, to=to, **options))
        return QueuedExport(**vars(answer))

    def backup(self, name: str, tables: Sequence[str], *, key: str = "", **options: Any) -> Queued:
        return _queued(self.ask("backup_create", key, name=name, tables=tables, **options))

    def restore(self, name: str, *, key: str = "", **options: Any) -> Queued:
        return _queued(self.ask("backup_restore", key, name=name, **options))

    def optimize(self, table: str, *, key: str = "", **options: Any) -> Queued:
        return _queued(self.ask("optimize", key, table=table, **options))

    def retry(self, *ids: str, key: str = "") -> Queued:
        return _queued(self.ask("retry", key, ids=ids))

    def cancel(self, *ids: str) -> Table[CancelAnswer]:
        """Ask processes to stop; `wait` for their end."""
        return Table(values.cancel_answer(one) for one in self.ask("cancel", ids=ids))

    def wait(self, *ids: str, timeout_seconds: float | None = None) -> Table[Process]:
        """The processes once all have ended, however they did. TimeoutError if they have not by then; the work
        goes on."""
        if not ids:
            raise UsageError(
                "nothing to wait for", code="missing_option", hint="give ids of processes or batches"
            )
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        failed = 0
        while True:
            try:
                standing = values.standing(self.ask("standing", ids=ids))
                failed = 0
            except TemporaryError:
                failed += 1
                if failed >= _LOOKS_THAT_MAY_FAIL:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            if standing.ended:
                return Table(standing.processes)
            if until is not None and time.monotonic() >= until:
                live = [one.id for one in standing.processes if one.state not in PROCESS_TERMINAL]
                raise TimeoutError(f"not ended after {timeout_seconds} s: {', '.join(live)}")
            time.sleep(_POLL_SECONDS)


def _queued(document: Any) -> Queued:
    return Queued(**vars(values.submitted(document)))


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
