"""Somebody who acts while the fate of a call is open: the moment at which most can go wrong.

A commit that was sent and not answered, a worker that was stopped before a write, a read that lags behind: within the
next half a minute a person cancels, forces or retries, or another writer moves main.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from calve.clickhouse.parts.partitions import Selection
from calve.control.client import cancel, retry
from calve.export.kind import NAME
from calve.export.request import ExportRequest
from calve.model.process import Process
from calve.model.states import PROCESS_LIVE, ProcessState
from support.simulator import archives, foreign
from support.simulator.schedule import Program
from support.simulator.weather import Fault

if TYPE_CHECKING:
    from support.simulator.world import World

_SHARE = 0.6  # of such moments
_SECONDS = (0.3, 2.0, 6.0, 15.0, 33.0)  # after it began
_OPEN = {
    "catalog.commit": frozenset(Fault),
    "catalog.load": frozenset({Fault.SLOW, Fault.STOPS}),
    "store.write": frozenset({Fault.STOPS, Fault.SLOW}),
    "objects.write": frozenset({Fault.STOPS, Fault.SLOW, Fault.LATE}),
    "objects.manifest": frozenset(Fault),
    "objects.read": frozenset({Fault.STOPS, Fault.SLOW}),
}


@dataclass(frozen=True, kw_only=True)
class Rivals:
    world: "World"
    does: Sequence[str]

    def met(self, call: str, fault: Fault) -> None:
        """Told of each fault."""
        schedule, weather = self.world.schedule, self.world.weather
        if not self.does or fault not in _OPEN.get(call, ()):
            return
        name, chance = schedule.draw("rival")
        if chance >= _SHARE or not weather.keeps(name):
            return
        source = schedule.random(name)
        act = partial(self._act, source.choice(self.does))
        self.world.acting += 1  # from now on: it is waited for
        schedule.spawn(Program(f"rival {name}"), "rival", act, source.choice(_SECONDS))

    def _act(self, what: str) -> None:
        self.world.schedule.tell(f"somebody does: {what}")
        self.world.acting -= 1
        with self.world.acts("somebody"):
            self._do(what)

    def _do(self, what: str) -> None:
        world = self.world
        lake, table = world.lake
        match what:
            case "rollback":
                foreign.rollback(lake, table)
            case "append":
                foreign.append(lake, world.objects, table, f"r{world.schedule.draw('append')[0]}")
            case "rename_table":
                foreign.rename_table(lake, table)
            case "drop_table":
                foreign.drop_table(lake, table)
            case "cancel":
                self._cancel()
            case "force":
                for row in self._working():
                    self._force(row)
            case "delete_backup" | "prune":
                archives.do(world, what, world.schedule.random(world.schedule.draw("rival's backup")[0]))
            case "give_up_and_retry":
                given_up = self._cancel()
                world.schedule.sleep(8.0)
                for row in given_up:
                    retry(world.holder(row.id), row.id)

    def _working(self) -> list[Process]:
        """The one that is nearest to its end."""
        rows = [row for row in self.world.processes() if row.state in PROCESS_LIVE]
        return sorted(rows, key=lambda row: (row.state is not ProcessState.PUBLISHING, row.created_at))[:1]

    def _cancel(self) -> list[Process]:
        rows = self._working()
        for row in rows:
            cancel(self.world.holder(row.id), row.id)
        return rows

    def _force(self, row: Process) -> None:
        if row.kind == NAME:
            request = replace(ExportRequest.from_json(row.request), force=True, new_parts=False)
            self.world.export(request, Selection(partitions=row.partitions))
