"""What must hold at the end of a run, of plain values. Knows no step of the product; each broken promise is a sentence."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from calve.destination.names import DataFileName
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState
from support.chaos.chronicle import Landed
from support.chaos.evidence import Evidence
from support.chaos.foreign import FIRST_ID
from support.chaos.ledger import Row

_ENDS = {state.lower(): state for state in PROCESS_TERMINAL} | {"nothing_to_do": ProcessState.COMPLETED}
_SHOWN = 3
Content = dict[int, Counter[Row]]  # of a table, by partition


def check(found: Evidence) -> list[str]:
    """Every promise that was broken."""
    return [
        *_ends(found),
        *_exports(found),
        *_tables(found),
        *_restores(found),
        *_left(found),
        *_logs(found),
    ]


def compared(found: Evidence) -> int:
    """How many rows were compared by value."""
    published = sum(map(len, found.published.values()))
    return published + sum(map(len, found.lake.values())) + sum(len(one.rows) for one in found.restored)


def lost_and_doubled(found: Evidence) -> tuple[int, int]:
    """Of all tables of the lake, against what they must have."""
    lost = doubled = 0
    for name, rows in found.lake.items():
        there, wanted = Counter(rows), Counter[Row]()
        for content in _folded(found, name).values():
            wanted += content
        lost += (wanted - there).total()
        doubled += max((there - wanted).total(), len(rows) - len({row.id for row in rows}))
    return lost, doubled


def _ends(found: Evidence) -> Iterator[str]:
    for one in found.processes:
        if one.state not in PROCESS_TERMINAL:
            yield f"{one.kind} {one.id} is {one.state} for ever"
            continue
        if one.owner is not None:
            yield f"{one.kind} {one.id} ended and is still leased to {one.owner}"
        if one.error is not None and one.error.outcome == "unknown":
            yield f"{one.kind} {one.id} has an unknown outcome for ever"
        if one.damaged:
            yield f"{one.kind} {one.id} has a damaged row: {one.damaged}"
        names = [event.name for event in found.events.get(one.id, ())]
        ends = [_ENDS[name] for name in names if name in _ENDS]
        if ends != [one.state]:
            yield f"{one.kind} {one.id} is {one.state}, and its events say {[str(end) for end in ends]}"


def _exports(found: Evidence) -> Iterator[str]:
    """Each completed one published once, the rows of one moment; no other one published anything."""
    landed: dict[str, list[Landed]] = defaultdict(list)
    for table in found.landed.values():
        for one in table:
            if one.process_id and (one.added or one.removed):
                landed[one.process_id].append(one)
    processes = {str(one.id): one for one in found.processes}
    for process_id in landed.keys() - processes.keys():
        yield f"{process_id} was published, and the store does not know it"
    for process in found.processes:
        if process.kind == "export":
            yield from _export(found, process, landed.get(process.id, []), processes)


def _export(
    found: Evidence, process: Process, landed: Sequence[Landed], processes: dict[str, Process]
) -> Iterator[str]:
    said = process.state is ProcessState.COMPLETED and process.files > 0
    applied = process.error is not None and process.error.outcome == "applied"
    if len(landed) > 1:
        yield f"export {process.id} was published {len(landed)} times"
    if said and not landed:
        yield f"export {process.id} is COMPLETED with {process.files} files, and was never published"
    if landed and not said and not applied:
        yield f"export {process.id} is {process.state}, and was published"
    for one in landed:
        rows = found.published.get((one.table, one.snapshot_id), [])
        if said and len(rows) != process.rows:
            yield f"export {process.id} says {process.rows} rows, and published {len(rows)}"
        if said and process.snapshot_id != str(one.snapshot_id):
            yield f"export {process.id} says snapshot {process.snapshot_id}, and published {one.snapshot_id}"
        increment = bool(json.loads(process.request).get("new_parts"))
        earliest, latest = _window(process, processes)
        of: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            of[row.p].append(row)
        asked = {int(partition) for partition in process.partitions}
        if of.keys() - asked:
            yield f"export {process.id} published partitions {sorted(of.keys() - asked)} unasked"
        for partition in asked:
            for fault in found.ledger[one.table].faults(
                of[partition], partition, earliest, latest, whole=not increment
            ):
                yield f"export {process.id}, partition {partition}: {fault}"


def _window(process: Process, processes: dict[str, Process]) -> tuple[float, float]:
    """Between these two moments its rows were pinned. A retry that adopted has the rows of the first one."""
    first = process
    while first.adopted and first.retry_of is not None and first.retry_of in processes:
        first = processes[first.retry_of]
    assert process.finished_at is not None
    return first.created_at.timestamp(), process.finished_at.timestamp()


def _folded(found: Evidence, name: str) -> Content:
    """What the table must have, from what landed in it, in order."""
    content: Content = defaultdict(Counter)
    done: set[str] = set()
    for one in found.landed.get(name, ()):
        if one.process_id:
            added = found.published.get((name, one.snapshot_id), [])
            if one.operation == "overwrite":
                for partition in {row.p for row in added}:
                    content[partition] = Counter()
            for row in added:
                content[row.p][row] += 1
        elif one.act and one.act not in done:
            done.add(one.act)
            effect = found.effects[one.act]
            for row in effect.added:
                content[row.p][row] += 1
            for partition in list(content):
                gone = [row for row in content[partition] if row.id in effect.removed]
                for row in gone:
                    del content[partition][row]
    return content


def _tables(found: Evidence) -> Iterator[str]:
    """By value: exactly what landed, each row once, the foreign writer's as well."""
    for name, rows in found.lake.items():
        content = _folded(found, name)
        there: Content = defaultdict(Counter)
        for row in rows:
            there[row.p][row] += 1
        for partition in sorted(content.keys() | there.keys()):
            missing, more = content[partition] - there[partition], there[partition] - content[partition]
            whose = "a foreign row" if any(row.id >= FIRST_ID for row in (*missing, *more)) else "a row"
            if missing:
                yield f"table {name}, partition {partition}: {missing.total()} rows are lost, {whose} among them: {_few(missing)}"
            if more:
                yield f"table {name}, partition {partition}: {more.total()} rows too many, {whose} among them: {_few(more)}"
            twice = _twice(there[partition])
            if twice:
                yield f"table {name}, partition {partition}: {len(twice)} ids are there twice, {twice[0]} among them"
    for uri in sorted(found.referenced - found.objects):
        yield f"{uri} is gone, and a snapshot refers to it"


def _twice(rows: Counter[Row]) -> list[int]:
    ids = Counter(row.id for row in rows.elements())
    return sorted(id for id, count in ids.items() if count > 1)


def _few(rows: Counter[Row]) -> str:
    return ", ".join(f"{row.id} v{row.version}" for row in sorted(rows)[:_SHOWN])


def _restores(found: Evidence) -> Iterator[str]:
    """Every restored table has the rows of one moment of its backup; every completed backup was restored."""
    processes = {str(one.id): one for one in found.processes}
    for one in found.restored:
        backup = processes.get(one.backup)
        if backup is None:
            yield f"restore {one.process_id} is of a backup that the store does not know"
            continue
        earliest, latest = _window(backup, processes)
        of: dict[int, list[Row]] = defaultdict(list)
        for row in one.rows:
            of[row.p].append(row)
        for partition in sorted(of.keys() | set(found.ledger[one.table].partitions())):
            for fault in found.ledger[one.table].faults(of[partition], partition, earliest, latest):
                yield f"restore {one.process_id} of {one.table}, partition {partition}: {fault}"
    proven = {one.backup for one in found.restored}
    for process in found.processes:
        if process.kind == "backup" and process.state is ProcessState.COMPLETED and process.id not in proven:
            yield f"backup {process.id} is COMPLETED, and no restore of it completed"


def _left(found: Evidence) -> Iterator[str]:
    for pin in found.pins_held:
        yield f"pin {pin.name} is {pin.state} in the store"
    for name in found.clones:
        yield f"the clone {name} is left in calve_pins"
    for name in found.frozen:
        yield f"the freeze {name} is left in shadow"
    for text in found.programs_left:
        yield f"a process outlived its program: {text}"
    for text in found.files_left:
        yield f"a temporary file is left: {text}"
    yield from _objects_left(found)


def _objects_left(found: Evidence) -> Iterator[str]:
    """Data files that nothing refers to, and receipts of what was undone. Expired snapshots' files are the foreign
    writer's to remove."""
    once = {uri for table in found.landed.values() for one in table for uri in one.added}
    states = {str(one.id): one for one in found.processes}
    for uri in sorted(found.objects):
        name = DataFileName.parse(uri)
        receipt = re.search(r"/metadata/calve/([^/]+)/", uri)
        process = states.get(name.process_id if name else receipt[1] if receipt else "")
        if process is None:
            continue
        if name is not None and uri not in once:
            yield f"{uri} is left, and nothing ever referred to it: {process.state}, {process.leftovers}"
        undone = process.state is not ProcessState.COMPLETED and process.leftovers is Leftovers.GONE
        if receipt is not None and undone:
            yield f"the receipt {uri} of a process that was undone is left"


def _logs(found: Evidence) -> Iterator[str]:
    for name, text in found.logs.items():
        tracebacks = text.count("Traceback (most recent call last)")
        if tracebacks:
            yield f"the log of {name} has {tracebacks} tracebacks"
