"""People and programs that ask Calve for work over its server, while it is broken.

Each submit carries a key, and is sent again until there is an answer or too much time has passed. What was answered is
kept: asked again at the end, the same key must name the same processes.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from calve import CalveError, Client
from calve.model.states import PROCESS_TERMINAL
from support.chaos.diary import Diary
from support.chaos.fleet import Fleet
from support.chaos.ledger import Ledger
from support.chaos.schedule import Act

DATABASE = "chaos"
NAMESPACE = "ns"
_PATIENCE_SECONDS = 45.0
_PAUSE_SECONDS = 0.5
# Refusals that say what is so, and nothing is wrong: nothing to do, changed since, another process is at work, …
_ROUTINE = frozenset({2, 3, 4})


def destination(table: str) -> str:
    return f"lake.{NAMESPACE}.{table}"


@dataclass(kw_only=True)
class Asked:
    """One request, and what came of it."""

    verb: str
    text: str
    key: str
    began: float
    again: Callable[[Client], Sequence[str]] | None = None  # sends it once more
    ended: float | None = None
    ids: tuple[str, ...] = ()
    refused: str = ""
    heard: bool = False


@dataclass(kw_only=True)
class Clients:
    """Threads with a client each, that share one list of acts."""

    fleet: Fleet
    ledger: Ledger
    diary: Diary
    asked: list[Asked] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, acts: Sequence[Act], over: threading.Event, threads: int) -> None:
        shares = [acts[number::threads] for number in range(threads)]
        running = [
            threading.Thread(target=self._run, args=(number, share, over), name=f"chaos-client-{number}")
            for number, share in enumerate(shares)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def client(self) -> Client:
        return Client(self.fleet.url, self.fleet.token(), timeout_seconds=8.0)

    def _run(self, number: int, acts: Sequence[Act], over: threading.Event) -> None:
        with self.client() as client:
            one = Person(self, client, number)
            for act in acts:
                if over.wait(max(0.0, act.at - self.diary.now())):
                    return
                try:
                    one.do(act)
                except CalveError as error:
                    if error.exit_code not in _ROUTINE and not error.retryable:
                        self.problems.append(f"{act.verb} was answered with {error.code}: {error.message}")
                except Exception as error:  # noqa: BLE001 - the run goes on, and fails in the end
                    self.problems.append(f"the client failed at {act.verb}: {type(error).__name__}: {error}")

    def keep(self, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)


class Person:
    """Carries out one act at a time."""

    def __init__(self, clients: Clients, client: Client, number: int) -> None:
        self._clients, self._client, self._lane = clients, client, f"client {number}"
        self._diary, self._ledger = clients.diary, clients.ledger

    def do(self, act: Act) -> None:
        getattr(self, f"_{act.verb}")(act)

    # -- asking -------------------------------------------------------------------------------------

    def _send(self, verb: str, text: str, act: Act, send: Callable[[Client, str], Sequence[str]]) -> None:
        key = f"chaos-{verb}-{act.chance}"
        asked = Asked(
            verb=verb, text=text, key=key, began=time.time(), again=lambda client: send(client, key)
        )
        self._clients.keep(asked)
        with self._diary.during(self._lane, verb, text) as span:
            try:
                asked.ids = tuple(self._until_answered(lambda: send(self._client, key)))
                asked.heard = True
                span.text = f"{text}: {', '.join(asked.ids) or 'nothing to do'}"
            except CalveError as error:
                asked.refused = f"{error.code}: {error.message}"
                asked.heard = not error.retryable
                span.text = f"{text}: {asked.refused}"
                raise
            finally:
                asked.ended = time.time()
                self._diary.count(f"asked: {verb}")

    def _until_answered(self, send: Callable[[], Any]) -> Any:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return send()
            except CalveError as error:
                if not error.retryable or time.monotonic() > until:
                    raise
                self._diary.count("requests sent again")
                time.sleep(_PAUSE_SECONDS)

    def _choose(self, chance: random.Random) -> tuple[str, str, int]:
        """Source, table, partition: one table is read from the disk's files, the others over HTTP."""
        table = chance.choice(sorted(self._ledger.tables))
        source = "disks" if table == max(self._ledger.tables) else "main"
        return source, table, chance.choice(self._ledger[table].partitions())

    # -- exports ------------------------------------------------------------------------------------

    def _export(self, act: Act, **options: Any) -> None:
        source, table, partition = self._choose(act.random)
        options = options or {"partitions": [str(partition)]}

        def send(client: Client, key: str) -> list[str]:
            answer = client.export(
                f"{source}:{DATABASE}.{table}", destination(table), key=key, mutations="wait", **options
            )
            return [one.id for one in answer.processes]

        self._send(act.verb, f"{table} {json.dumps(options)}", act, send)

    def _export_all(self, act: Act) -> None:
        self._export(act, all=True)

    def _force(self, act: Act) -> None:
        _, _, partition = self._choose(act.random)
        self._export(act, partitions=[str(partition)], force=True)

    def _new_parts(self, act: Act) -> None:
        _, _, partition = self._choose(act.random)
        self._export(act, partitions=[str(partition)], new_parts=True)

    def _sql_export(self, act: Act) -> None:
        source, table, partition = self._choose(act.random)
        text = (
            f"ALTER TABLE {source}:{DATABASE}.{table} EXPORT PARTITION ID '{partition}'"
            f" TO TABLE {destination(table)}"
        )
        self._send("sql_export", text, act, lambda client, _key: [one["process"] for one in client.sql(text)])

    # -- backups and tables -------------------------------------------------------------------------

    def _backup(self, act: Act) -> None:
        name = f"b{act.chance}"
        tables = [f"{DATABASE}.{one}" for one in sorted(self._ledger.tables) if act.random.random() < 0.7]

        def send(client: Client, key: str) -> list[str]:
            answer = client.backup(
                name, tables or [f"{DATABASE}.*"], key=key, source="disks", mutations="wait"
            )
            return [one.id for one in answer.processes]

        self._send("backup", name, act, send)

    def _restore(self, act: Act) -> None:
        done = self._ended(kind="backup", states=["COMPLETED"])
        if done:
            self.restore(act.random.choice(done).destination.rpartition("/")[2], f"r{act.chance}", act)

    def restore(self, name: str, into: str, act: Act) -> None:
        def send(client: Client, key: str) -> list[str]:
            return [one.id for one in client.restore(name, key=key, source="disks", into=into).processes]

        self._send("restore", f"{name} as {into}", act, send)

    def _optimize(self, act: Act) -> None:
        _, table, _ = self._choose(act.random)
        self._send(
            "optimize",
            table,
            act,
            lambda client, key: [one.id for one in client.optimize(destination(table), key=key).processes],
        )

    # -- the rest -----------------------------------------------------------------------------------

    def _cancel(self, act: Act) -> None:
        live = self._until_answered(lambda: self._client.processes(limit=50))
        if live:
            chosen = act.random.choice(live).id
            with self._diary.during(self._lane, "cancel", chosen):
                self._until_answered(lambda: self._client.cancel(chosen))
                self._diary.count("asked: cancel")

    def _retry(self, act: Act) -> None:
        failed = self._ended(states=["FAILED", "CANCELLED"])
        if failed:
            chosen = act.random.choice(failed).id
            self._send(
                "retry",
                chosen,
                act,
                lambda client, key: [one.id for one in client.retry(chosen, key=key).processes],
            )

    def _read(self, act: Act) -> None:
        """Pages that people look at: none may fail other than by saying so."""
        source, table, _ = self._choose(act.random)
        with self._diary.during(self._lane, "read", table):
            self._diary.count("asked: read")
            self._until_answered(self._client.workers)
            self._until_answered(
                lambda: self._client.sql("SELECT state, count() FROM calve.processes GROUP BY state")
            )
            self._until_answered(
                lambda: self._client.partitions(f"{source}:{DATABASE}.{table}", destination(table))
            )
            for process in self._until_answered(lambda: self._client.processes(limit=5)):
                self._until_answered(partial(self._client.why, process.id))

    def _ended(self, *, states: Sequence[str], kind: str = "") -> list[Any]:
        filters = {"kind": kind} if kind else {}
        found = self._until_answered(
            lambda: self._client.processes(all=True, limit=200, states=list(states), **filters)
        )
        return [one for one in found if one.state in PROCESS_TERMINAL]
