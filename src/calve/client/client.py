"""Calve from Python, by a server or here: `from calve import Client`.

Both answer with the same documents (`app.desk`), so a program that works here works there. Submits carry a key:
one that is sent again, also by a program that was started again with the same `key`, is carried out once.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from calve.app.front import CancelAnswer, ExportAnswer, Submitted
from calve.client import values
from calve.client.tables import Document, Table
from calve.model.errors import UsageError
from calve.model.process import Event, Process
from calve.model.states import PROCESS_TERMINAL

Perform = Callable[[str, Mapping[str, Any], str], Any]
_POLL_SECONDS = 0.5


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
        from calve.client.transport import Transport, given_token

        transport = Transport(
            url,
            token or given_token(token_file, os.environ),
            local_file=Path("calve.token").absolute(),
            ca_file=ca_file,
            timeout_seconds=timeout_seconds,
        )
        self._close: Callable[[], None] = transport.close
        self._perform: Perform = lambda verb, given, key: transport.call(verb, given, key=key)

    @classmethod
    def local(cls, config: str | Path | None = None) -> "Client":
        """Without a server: on the configuration of this folder, or the one given. Queues and reads; the work is
        done by `calve worker`."""
        from calve.app.calve import Calve
        from calve.app.config import load_config
        from calve.app.desk import Desk, local_caller

        calve = Calve(load_config(config))
        desk, caller = Desk(calve), local_caller()
        made = cls.__new__(cls)
        made._close = calve.close
        made._perform = lambda verb, given, key: desk.perform(caller, verb, given, key=key)
        return made

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, verb: str, key: str = "", **given: Any) -> Any:
        return self._perform(verb, {name: _plain(value) for name, value in given.items()}, key)

    # -- reading ------------------------------------------------------------------------------------

    def processes(self, *, all: bool = False, limit: int = 200, **filters: Any) -> Table[Process]:
        """Newest first; those that have not ended, or all. Filters: `kind`, `states`, `table`, `to`, `batch`,
        `since`."""
        return Table(values.process(one) for one in self._ask("processes", all=all, limit=limit, **filters))

    def process(self, process_id: str) -> Process:
        return values.process(self._ask("find", ids=[process_id])[0])

    def why(self, process_id: str) -> str:
        """What a process is waiting for."""
        return str(self._ask("why", ids=[process_id])[0]["why"])

    def events(self, *ids: str) -> Table[Event]:
        return Table(values.event(one) for one in self._ask("events", ids=ids))

    def watch(self, *ids: str, after: str = "") -> "Watch":
        """Events as they happen, of these processes or of all; from now, or from the `cursor` of an earlier
        watch, or from "start"."""
        of = {one["id"] for one in self._ask("find", ids=ids)} if ids else None
        return Watch(lambda cursor: self._ask("feed", after=cursor), after, of)

    def workers(self) -> Table[dict[str, Any]]:
        return Table(self._ask("workers"))

    def partitions(self, table: str, to: str = "") -> Table[dict[str, Any]]:
        """With `to`, also what that destination has of each."""
        return Table(self._ask("partitions", table=table, to=to))

    def health(self, table: str, *, orphans: bool = False) -> Document:
        return Document(self._ask("health", table=table, orphans=orphans))

    def verify(self, *ids: str, deep: bool = False) -> Table[dict[str, Any]]:
        """Proofs of what was exported; each has `ok` and `faults`."""
        return Table(self._ask("verify", ids=ids, deep=deep))

    def backups(self) -> Table[dict[str, Any]]:
        return Table(self._ask("backup_list")["backups"])

    # -- changing -----------------------------------------------------------------------------------

    def export(self, table: str, to: str, *, key: str = "", **options: Any) -> ExportAnswer:
        """Queue an export. Choose by `partitions`, `parts`, `all` or `older_than`."""
        return values.export_answer(self._ask("export", key, table=table, to=to, **options))

    def backup(self, name: str, tables: Sequence[str], *, key: str = "", **options: Any) -> Submitted:
        return values.submitted(self._ask("backup_create", key, name=name, tables=tables, **options))

    def restore(self, name: str, *, key: str = "", **options: Any) -> Submitted:
        return values.submitted(self._ask("backup_restore", key, name=name, **options))

    def optimize(self, table: str, *, key: str = "", **options: Any) -> Submitted:
        return values.submitted(self._ask("optimize", key, table=table, **options))

    def retry(self, *ids: str, key: str = "") -> Submitted:
        return values.submitted(self._ask("retry", key, ids=ids))

    def cancel(self, *ids: str) -> list[CancelAnswer]:
        """Ask processes to stop; `wait` for their end."""
        return [values.cancel_answer(one) for one in self._ask("cancel", ids=ids)]

    def wait(self, *ids: str, timeout_seconds: float | None = None) -> Table[Process]:
        """The processes once all have ended, however they did. TimeoutError if they have not by then; the work
        goes on."""
        if not ids:
            raise UsageError(
                "nothing to wait for", code="missing_option", hint="give ids of processes or batches"
            )
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            standing = values.standing(self._ask("standing", ids=ids))
            if standing.ended:
                return Table(standing.processes)
            if until is not None and time.monotonic() >= until:
                live = [one.id for one in standing.processes if one.state not in PROCESS_TERMINAL]
                raise TimeoutError(f"not ended after {timeout_seconds} s: {', '.join(live)}")
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Reset:
    """Events may have been missed: look at the processes again. The watch goes on from now."""

    reason: str  # "forgotten", "foreign", "rewritten" or "unreadable"


class Watch:
    """An endless iterator of events. `cursor` is where it stands: give it to the next one."""

    def __init__(self, page: Callable[[str], Any], after: str, of: Collection[str] | None) -> None:
        self._page = page
        self._of = of
        self._found: deque[tuple[str, Event | Reset]] = deque()
        self.cursor = after or str(page("")["cursor"])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event | Reset:
        while not self._found:
            page = self._page(self.cursor)
            if page["reset"]:
                self._found.append((page["cursor"], Reset(page["reset"])))
            for one in page["events"]:
                if self._of is None or one["process"] in self._of:
                    self._found.append((one["cursor"], values.event(one)))
            if not self._found:
                self.cursor = page["cursor"]
                if not page["events"]:
                    time.sleep(_POLL_SECONDS)
        self.cursor, found = self._found.popleft()
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
