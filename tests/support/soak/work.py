"""What is asked for, again and again: each round inserts a little, exports it, exports it anew by force, and now and then
backs up, restores, deletes the backup, optimizes. Old tables of the lake are dropped, so that their history does not grow."""

import time
from dataclasses import dataclass

from calve import Client
from calve.model.process import Process
from calve.model.states import ProcessState
from support.chaos.chronicle import Chronicle
from support.chaos.clients import DATABASE, NAMESPACE
from support.chaos.ledger import Ledger
from support.chaos.schedule import Act
from support.chaos.world import World
from support.chaos.writer import Writer

_ROUNDS_OF_A_TABLE = 25
_BACKUP_EVERY, _OPTIMIZE_EVERY = 4, 10
_WAIT_SECONDS = 300.0


@dataclass(kw_only=True)
class Rounds:
    world: World
    writer: Writer
    ledger: Ledger
    chronicle: Chronicle
    client: Client
    done: int = 0
    processes: int = 0

    def next(self) -> list[str]:
        """What went wrong in it."""
        number, problems = self.done, list[str]()
        self.done += 1
        to = f"lake.{NAMESPACE}.soak{number // _ROUNDS_OF_A_TABLE}"
        self.writer.do(Act(at=0.0, verb="insert", chance=number))
        for force in (False, True):
            problems += self._finish(
                self.client.export(
                    f"main:{DATABASE}.t0",
                    to,
                    all=True,
                    force=force,
                    mutations="wait",
                    key=f"{number}-{force}",
                ).processes
            )
        if number % _BACKUP_EVERY == 0:
            problems += self._backup(f"soak{number}")
        if number % _OPTIMIZE_EVERY == _OPTIMIZE_EVERY - 1:
            problems += self._finish(self.client.optimize(to, key=f"optimize-{number}").processes)
        if number % _ROUNDS_OF_A_TABLE == 0 and number:
            old = f"soak{number // _ROUNDS_OF_A_TABLE - 1}"
            self.chronicle.catalog.drop_table((NAMESPACE, old))
        return problems

    def _backup(self, name: str) -> list[str]:
        tables = [f"{DATABASE}.t1"]
        problems = self._finish(
            self.client.backup(name, tables, source="disks", key=f"backup-{name}").processes
        )
        restored = self.client.restore(name, source="disks", into=name, key=f"restore-{name}").processes
        problems += self._finish(restored)
        self.world.execute(f"DROP DATABASE IF EXISTS {name} SYNC")
        self.client.ask("backup_delete", name=name)
        return problems

    def _finish(self, processes: tuple[Process, ...]) -> list[str]:
        if not processes:
            return []
        until = time.monotonic() + _WAIT_SECONDS
        ended = self.client.wait(*(one.id for one in processes), timeout_seconds=until - time.monotonic())
        self.processes += len(ended)
        return [
            f"{one.kind} {one.id} is {one.state}: {one.error}"
            for one in ended
            if one.state is not ProcessState.COMPLETED
        ]
