"""One run: everything is started, broken for a while, left alone until all has ended, and read."""

import random
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from calve.model.process import ProcessQuery
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, Leftovers, ProcessState
from calve.restore.plan import RestoreRequest
from calve.store import open_store
from support.chaos.check import check, compared, lost_and_doubled
from support.chaos.chronicle import Chronicle
from support.chaos.clients import DATABASE, Clients, Person, destination
from support.chaos.diary import Diary
from support.chaos.evidence import Evidence, after_the_end, clones, frozen, gather
from support.chaos.fleet import Fleet
from support.chaos.foreign import Foreign
from support.chaos.ledger import Ledger
from support.chaos.nemesis import Nemesis
from support.chaos.report import Report
from support.chaos.schedule import Act, Schedule
from support.chaos.world import World, disk, world
from support.chaos.writer import Writer

_READY_SECONDS = 120.0
_END_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_TABLES = 2
_CLIENTS = 3


@dataclass(frozen=True, kw_only=True)
class Asked:
    seed: int
    minutes: float
    folder: Path  # of everything that the run writes; kept
    workers: int = 2
    command: tuple[str, ...] = (sys.executable, "-m", "calve.cli")  # another for a planted mistake
    limits: Mapping[str, float] = field(default_factory=dict)
    settle_seconds: float = 300.0  # by then all must have ended by itself
    say: Callable[[str], None] = print


def run(asked: Asked) -> Report:
    schedule = Schedule.of(asked.seed, asked.minutes * 60)
    diary, ledger = Diary(), Ledger()
    problems: list[str] = []
    with ExitStack() as stack:
        asked.say(f"seed {asked.seed}: starting services and programs in {asked.folder}")
        place = stack.enter_context(world(asked.folder, diary, asked.limits))
        writer = Writer(place, ledger)
        writer.create(_TABLES)
        disks = [stack.enter_context(disk(asked.folder / f"disk-{n}", diary)) for n in range(asked.workers)]
        command = (*asked.command, "--config", str(place.config))
        fleet = stack.enter_context(Fleet(place, disks, command, secrets.token_hex(4)))
        clients = Clients(fleet=fleet, ledger=ledger, diary=diary)
        until_ready(fleet)
        chronicle = Chronicle(catalog=place.catalog())
        foreign = Foreign(chronicle=chronicle, tables=tuple(ledger.tables), diary=diary)
        nemesis = Nemesis(place, fleet)
        _first_exports(clients, ledger)
        # What follows is timed from here.
        diary.spans = [span for span in diary.spans if span.end is None]
        diary.began, started = time.time(), diary.began
        for span in diary.spans:
            span.begin += started - diary.began
        asked.say("struck from now on")
        over = threading.Event()
        beside = [
            threading.Thread(target=work, args=args, name=f"chaos-{name}", daemon=True)
            for name, work, args in (
                ("writer", writer.run, (schedule.written, over)),
                ("foreign", foreign.run, (schedule.foreign, over)),
                ("clients", clients.run, (schedule.asked, over, _CLIENTS)),
            )
        ]
        for thread in beside:
            thread.start()
        nemesis.run(schedule.strikes, over)
        over.set()  # who is late does not catch up
        for thread in beside:
            thread.join()
        nemesis.heal()
        # Pins that a stopped worker took late are looked for soon after a start, and every ten minutes.
        fleet.workers[0].ending = True
        fleet.workers[0].signal(signal.SIGTERM)
        nemeses_end = diary.now()
        asked.say(f"no more strikes after {nemeses_end:.0f} s; waiting until everything has ended")
        problems += _settle(place, asked.settle_seconds)
        problems += _restore_every_backup(clients, place.store_url)
        problems += _settle(place, asked.settle_seconds)
        problems += _asked_again(clients)
        settled = diary.now()
        asked.say("reading everything by value")
        found = gather(place, ledger, chronicle, foreign.effects)
        problems += fleet.stop(_END_SECONDS)
        after_the_end(found, fleet)
        diary.close()
        problems += [*writer.problems, *foreign.problems, *clients.problems, *nemesis.problems, *check(found)]
        return _report(asked, diary, found, problems, nemeses_end, settled, fleet)


def _report(
    asked: Asked,
    diary: Diary,
    found: Evidence,
    problems: list[str],
    nemeses_end: float,
    settled: float,
    fleet: Fleet,
) -> Report:
    lost, doubled = lost_and_doubled(found)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Report(
        seed=asked.seed,
        minutes=asked.minutes,
        command=f"make chaos MINUTES={asked.minutes:g} SEED={asked.seed}",
        folder=asked.folder,
        nemeses_end=nemeses_end,
        settled=settled,
        problems=problems,
        processes=found.processes,
        diary=diary,
        rows_compared=compared(found),
        lost=lost,
        doubled=doubled,
        core_seconds=used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime,
        logs={one.name: str(one.log) for one in fleet.all},
    )


def until_ready(fleet: Fleet) -> None:
    until = time.monotonic() + _READY_SECONDS
    for one in fleet.all:
        words = "the token of this host" if one is fleet.server else " reaches "
        while words not in (one.log.read_text(errors="replace") if one.log.exists() else ""):
            if time.monotonic() > until:
                raise TimeoutError(f"{one.name} was not ready in time, see {one.log}")
            time.sleep(_LOOK_SECONDS)


def _first_exports(clients: Clients, ledger: Ledger) -> None:
    """Makes the tables of the lake, so that the foreign writer has some."""
    with clients.client() as client:
        ids = [
            one.id
            for table in ledger.tables
            for one in client.export(
                f"main:{DATABASE}.{table}", destination(table), partitions=["0"], key=f"first-{table}"
            ).processes
        ]
        ended = client.wait(*ids, timeout_seconds=_READY_SECONDS)
        failed = [one for one in ended if one.state is not ProcessState.COMPLETED]
        if failed:
            raise RuntimeError(f"the first exports did not complete: {failed[0].error}")


def _settle(world: World, seconds: float) -> list[str]:
    """Wait until all has ended, was cleaned up and is known. What has not by then is a problem."""
    until = time.monotonic() + seconds
    while True:
        open_ends = _open_ends(world.store_url)
        open_ends += [f"pin {name} is at ClickHouse" for name in (*clones(world), *frozen(world))]
        if not open_ends or time.monotonic() > until:
            return [f"{one}, {seconds:.0f} s after the last strike" for one in open_ends]
        time.sleep(_LOOK_SECONDS)


def _open_ends(store_url: str) -> list[str]:
    with open_store(store_url) as store:
        found = [
            f"{one.kind} {one.id} is {one.state}"
            for one in store.processes(ProcessQuery(limit=10_000))
            if one.state not in PROCESS_TERMINAL
        ]
        for one in store.processes(ProcessQuery(limit=10_000)):
            if one.leftovers in (Leftovers.KEPT, Leftovers.UNDOING):
                found.append(f"{one.kind} {one.id} is not cleaned up ({one.leftovers})")
            if one.error is not None and one.error.outcome == "unknown":
                found.append(f"the outcome of {one.kind} {one.id} is unknown")
            if one.cleanup_at is not None:
                found.append(f"{one.kind} {one.id} still needs a step")
        found += [f"pin {one.name} is {one.state}" for one in store.pins(states=PIN_HELD)]
    return found


def _restore_every_backup(clients: Clients, store_url: str) -> list[str]:
    """Those that no restore has proven yet."""
    with open_store(store_url) as store:
        rows = store.processes(ProcessQuery(limit=10_000))
    done = [one for one in rows if one.state is ProcessState.COMPLETED]
    proven = {RestoreRequest.from_json(one.request).backup_process for one in done if one.kind == "restore"}
    problems = []
    with clients.client() as client:
        person = Person(clients, client, 0)
        for number, one in enumerate(one for one in done if one.kind == "backup" and one.id not in proven):
            name = one.destination.rpartition("/")[2]
            try:
                person.restore(name, f"last{number}", Act(at=0.0, verb="restore", chance=number))
            except Exception as error:  # noqa: BLE001 - each is tried
                problems.append(f"backup {name} could not be restored: {error}")
    return problems


def _asked_again(clients: Clients) -> list[str]:
    """The same key names the same processes, however often and whenever it is sent."""
    problems = []
    with clients.client() as client:
        heard = [one for one in clients.asked if one.heard and one.ids and one.verb != "sql_export"]
        for one in random.Random(0).sample(heard, min(8, len(heard))):
            assert one.again is not None
            try:
                again = tuple(one.again(client))
            except Exception as error:  # noqa: BLE001 - each is tried
                problems.append(f"{one.verb} with the key {one.key} failed when asked again: {error}")
                continue
            if again != one.ids:
                problems.append(f"{one.verb} with the key {one.key} gave {one.ids}, and asked again {again}")
    return problems
