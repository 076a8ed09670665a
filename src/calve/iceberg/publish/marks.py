"""The marks that a publish leaves in a table, and the search for them.

- tag `calve-<process id>`: asserted absent by the commit that sets it, so it is set once, by
  the publish or as a tombstone by the fence. It counts as published only if its snapshot's
  summary carries the process id.
- summary `calve.fenced-process-id`: of the empty snapshot that the fence puts on main. It refuses
  what was sent before it, whatever becomes of the tag.
- summary `calve.process-id`, `calve.export-key` (hashes, comma between), `calve.version`.
- property `calve.export.<key hash>`: outlives tags and snapshots (P8).
- property `calve.released.<key hash>`: the rows left the source, so the key is never replaced. Its
  `calve.export.` is then `{"released": {…}, "by": process}`, which earlier versions refuse to read.
- note: the control plane's row remembers the snapshot ids that were about to be sent.

The search comes before every other check (L11), at every attempt (L13).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from calve.destination.content import input_of
from calve.destination.outcome import EarlierExport, PublishedSnapshot
from calve.destination.plan import ExportPlan, KeyPlan
from calve.destination.receipt import Receipt, tasks_of, written_as
from calve.model.errors import RefusedError
from calve.model.record import UNSORTED, Record, fields_of, loads

PROCESS_ID = "calve.process-id"
EXPORT_KEY = "calve.export-key"
VERSION = "calve.version"
FENCE = "calve.fenced-process-id"
KEY_PROPERTY = "calve.export."
RELEASED_PROPERTY = "calve.released."
RELEASED_TAG = "calve-released"  # the last head that is proven to hold all released rows
_Summaries = Sequence[tuple[Snapshot, Mapping[str, str]]]
_UNKNOWN = "unknown"
_NO_INPUT = ("", "", "")
_RELEASED_FORM = '{"released":'
_MOST_TASKS = 1_000_000  # a property is data from outside: two numbers must not fill the memory
_FEW_KEYS = 10  # are looked for in the text of a property before it is read


def tag_of(process_id: str) -> str:
    return f"calve-{process_id}"


def property_of(key_hash: str) -> str:
    return f"{KEY_PROPERTY}{key_hash}"


def released_property_of(key_hash: str) -> str:
    return f"{RELEASED_PROPERTY}{key_hash}"


def as_released(text: str, process_id: str) -> str:
    """A key's property after its release, in a form that versions from before releases refuse to read."""
    return f'{_RELEASED_FORM}{text},"by":{json.dumps(process_id)}}}'


def is_as_released(text: str) -> bool:
    return text.startswith(_RELEASED_FORM)


def as_returned(text: str, content: str = "") -> str:
    """A key's property after its rows went back, with the content id that they have there now."""
    value = json.loads(text)["released"]
    return json.dumps(value | ({"content": content} if content else {}), separators=(",", ":"))


def as_here(text: str, content: str, top: int) -> str:
    """A key's property after its rows came back by themselves: as parts of that content id, up to that block. "" and 0 where
    nobody can tell them from rows that came since."""
    value = json.loads(text)
    value = value.get("released", value) | {"content": content, "top": top}
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One commit that may have been sent."""

    snapshot_id: str
    timestamp_ms: int = 0
    manifests: int = 0  # how many manifest files were written for it; their names follow


@dataclass(frozen=True, kw_only=True)
class _Note(Record, layout=UNSORTED):
    sent: tuple[Sent, ...] = ()


def read_note(text: str) -> tuple[Sent, ...]:
    """What earlier attempts noted, oldest first. Unknown keys are ignored."""
    if not text:
        return ()
    return loads(_Note, text, "what was noted of a publish").sent


def write_note(sent: Sequence[Sent]) -> str:
    return _Note(sent=tuple(sent)).to_json()


def key_properties(
    plan: ExportPlan, receipts: Sequence[Receipt], process_id: str, snapshot_id: int, sequence: int = 0
) -> dict[str, str]:
    """One lasting property for each key: who published it, as what, and which tasks hold its files."""
    properties = {}
    for key in plan.keys:
        tasks = tasks_of(plan, key) if len(plan.keys) > 1 else tuple(range(len(plan.tasks)))
        value: dict[str, Any] = {"process": process_id, "snapshot": str(snapshot_id), "content": key.content}
        value["input"] = input_of(key)
        if sequence:
            value["sequence"] = sequence
        if key.top:
            value["top"] = key.top
        if tasks is None:
            value |= {"rows": key.rows, "tasks": None}
        else:
            mine = [receipt for receipt in receipts if receipt.task in set(tasks)]
            value["rows"] = sum(receipt.rows for receipt in mine)
            value["files"] = sum(len(receipt.files) for receipt in mine)
            if len(plan.keys) > 1:
                value["tasks"] = ranges(tasks)
                if adopted := _adopted(process_id, mine):
                    value["adopted"] = adopted
        properties[property_of(key.hash)] = json.dumps(value, separators=(",", ":"))
    return properties


def _adopted(process_id: str, receipts: Sequence[Receipt]) -> dict[str, str]:
    """The tasks of other processes whose files a retry publishes, by the numbers in the files' names."""
    others: dict[str, list[int]] = {}
    for receipt in receipts:
        if receipt.process_id != process_id and receipt.files:
            others.setdefault(receipt.process_id, []).append(written_as(receipt))
    return {process: ranges(tasks) for process, tasks in sorted(others.items())}


def read_property(key_hash: str, text: str) -> EarlierExport | None:
    """A key's property; None if it cannot be read."""
    try:
        found = json.loads(text)
        value = found.get("released", found)
        tasks = value.get("tasks")
        identity, partition, selection = value.get("input", ("", "", ""))
        return EarlierExport(
            key_hash=key_hash,
            process_id=str(value["process"]),
            snapshot_id=str(int(value["snapshot"])),
            content=str(value.get("content", "")),
            rows=int(value.get("rows", 0)),
            files=int(value.get("files", 0)),
            tasks=None if tasks is None else tuple(unranged(tasks)),
            adopted={str(one): tuple(unranged(text)) for one, text in value.get("adopted", {}).items()}
            or None,
            shared="tasks" in value and tasks is None,
            input=(identity, partition, selection),
            sequence=int(value.get("sequence", 0)),
            top=int(value.get("top", 0)),
            released="" if value is found else str(found.get("by") or _UNKNOWN),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7`: thousands of tasks stay a short property."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def unranged(text: str) -> list[int]:
    numbers: list[int] = []
    for run in filter(None, text.split(",")):
        begin, _, last = run.partition("-")
        first, end = int(begin), int(last or begin) + 1
        if end - first > _MOST_TASKS:
            raise ValueError(f"{run}: no export has that many tasks")
        numbers.extend(range(first, end))
    return numbers


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the marks say."""

    ours: PublishedSnapshot | None = None
    tombstone: bool = False  # our tag stands on a snapshot that is not ours, or a snapshot says so
    fenced: bool = False  # and main's head comes after that snapshot: no commit of ours can land
    earlier: tuple[EarlierExport, ...] = ()  # keys of the plan that others published


def search(
    metadata: TableMetadata, process_id: str, keys: Sequence[KeyPlan], sent: Sequence[Sent] = ()
) -> Findings:
    """Ours by tag, by summary, by noted snapshot id, by a key's property; then the keys of others."""
    tagged = metadata.refs.get(tag_of(process_id))
    at_tag = None if tagged is None else snapshot_of(metadata, tagged.snapshot_id)
    if at_tag is not None and at_tag.summary is not None and at_tag.summary[PROCESS_ID] == process_id:
        return Findings(ours=_published(process_id, at_tag))  # as nearly always after a commit
    noted = frozenset(item.snapshot_id for item in sent)
    summaries = _summaries(metadata, frozenset(key.hash for key in keys), process_id, noted)
    earlier = [found for key in keys if (found := _earlier(metadata, summaries, key.hash)) is not None]
    snapshot = _our_snapshot(metadata, summaries, process_id, noted)
    if snapshot is not None:
        return Findings(ours=_published(process_id, snapshot))
    for export in earlier:
        if export.process_id == process_id:
            return Findings(ours=_remembered(export, earlier))
    fences = {one.snapshot_id for one, said in summaries if said.get(FENCE) == process_id}
    main = ancestors_of(head_of(metadata), metadata) if fences else ()
    return Findings(
        tombstone=bool(fences) or tag_of(process_id) in metadata.refs,
        fenced=any(one.snapshot_id in fences for one in main),
        earlier=tuple(earlier),
    )


def find_export(table: Table, key_hash: str) -> EarlierExport | None:
    """Who published a key into this table, if anybody did."""
    return _earlier(table.metadata, _summaries(table.metadata, frozenset({key_hash})), key_hash)


def all_exports(metadata: TableMetadata, of: Sequence[KeyPlan] = ()) -> Iterator[EarlierExport]:
    """Every key that a property remembers; those that cannot be read are left out. Given keys, those of
    other partitions may be left out too: a table can have 100,000 properties, and reading one takes 6 µs."""
    yield from released_exports(metadata)
    found = metadata.properties
    if of and len(of) <= _FEW_KEYS:
        wanted = [json.dumps(input_of(key)[1]) for key in of]
        found = {name: value for one in wanted for name, value in found.items() if one in value}
    for name, value in found.items():
        if name.startswith(KEY_PROPERTY):
            export = read_property(name.removeprefix(KEY_PROPERTY), value)
            marked = released_property_of(name.removeprefix(KEY_PROPERTY)) in metadata.properties
            if export is not None and not export.released and not marked:
                yield export


def is_released(metadata: TableMetadata, process_id: str) -> bool:
    """Whether keys that the process exported were released since."""
    return any(one.process_id in (process_id, _UNKNOWN) for one in released_exports(metadata))


def released_exports(metadata: TableMetadata) -> Iterator[EarlierExport]:
    """Every released key, by its mark or by the form of its property: somebody may have removed one of the
    two. A mark that cannot be read is one all the same."""
    properties = metadata.properties
    for name, value in properties.items():
        if name.startswith(RELEASED_PROPERTY):
            key_hash = name.removeprefix(RELEASED_PROPERTY)
            export = read_property(key_hash, properties.get(property_of(key_hash), ""))
            yield _with_release(key_hash, value, export)
        elif is_as_released(value) and name.startswith(KEY_PROPERTY):
            key_hash = name.removeprefix(KEY_PROPERTY)
            if released_property_of(key_hash) not in properties:
                yield _with_release(key_hash, "", read_property(key_hash, value))


def is_unguarded(metadata: TableMetadata) -> bool:
    """Whether rows were released, and no tag holds the head that is proven to have them. Then nothing of
    the table may be deleted: an old snapshot may hold the last copy."""
    return RELEASED_TAG not in metadata.refs and any(True for _ in released_exports(metadata))


def _with_release(key_hash: str, mark: str, export: EarlierExport | None) -> EarlierExport:
    """What is known of a released key; the mark alone where its property is gone."""
    found = fields_of(mark)
    if export is None:
        given = found.get("input")
        if not isinstance(given, list) or len(given) != len(_NO_INPUT):
            given = _NO_INPUT
        identity, partition, selection = map(str, given)
        export = EarlierExport(
            key_hash=key_hash, process_id=_UNKNOWN, snapshot_id="0", input=(identity, partition, selection)
        )
    return replace(export, released=export.released or str(found.get("process") or _UNKNOWN))


def refuse_if_unprovable(metadata: TableMetadata, sent: Sequence[Sent], tag_age_ms: int) -> None:
    """P8: nothing found proves that nothing landed, unless the marks may have been swept away.

    The tag holds our snapshot for `tag_age_ms` and the property stays for good, so a landed
    publish can only be unseen if somebody removed the property and the tag's age has passed
    and snapshots made since were expired. Then nobody can tell, and nothing is published.
    """
    if not sent or isinstance(metadata, TableMetadataV1):
        return
    first = min(sent, key=lambda item: item.timestamp_ms)
    aged = metadata.last_updated_ms - first.timestamp_ms >= tag_age_ms
    younger = [s for s in metadata.snapshots if s.timestamp_ms >= first.timestamp_ms]
    older = [s.sequence_number or 0 for s in metadata.snapshots if s.timestamp_ms < first.timestamp_ms]
    missing = metadata.last_sequence_number - max(older, default=0) - len(younger)
    if aged and missing > 0:
        raise RefusedError(
            f"a commit of snapshot {first.snapshot_id} may have been sent long ago, and {missing} snapshots"
            " made since then are expired: whether it landed cannot be proven",
            code="publish_unprovable",
            hint="look whether the rows are in the table; if they are not, export the partition again"
            " as a new process",
        )


def snapshot_of(metadata: TableMetadata, snapshot_id: int) -> Snapshot | None:
    """PyIceberg's `snapshot_by_id`, from the newest on: a publish asks for those."""
    return next((one for one in reversed(metadata.snapshots) if one.snapshot_id == snapshot_id), None)


def head_of(metadata: TableMetadata) -> Snapshot | None:
    """PyIceberg's `snapshot_by_name` of main, likewise."""
    main = metadata.refs.get(MAIN_BRANCH)
    return None if main is None else snapshot_of(metadata, main.snapshot_id)


def _summaries(
    metadata: TableMetadata,
    key_hashes: frozenset[str],
    process_id: str = "",
    noted: frozenset[str] = frozenset(),
) -> _Summaries:
    """Of the snapshots with a mark that is looked for. Every publish looks at every snapshot, so this is one pass."""
    found = []
    for one in metadata.snapshots:
        said = _said(one)
        carried = said.get(EXPORT_KEY, "")
        if (
            carried in key_hashes
            or ("," in carried and not key_hashes.isdisjoint(carried.split(",")))
            or said.get(PROCESS_ID) == process_id
            or said.get(FENCE) == process_id
            or (noted and str(one.snapshot_id) in noted)
        ):
            found.append((one, said))
    return found


def _said(snapshot: Snapshot) -> Mapping[str, str]:
    """Not by `additional_properties`: pydantic takes 2 µs to find what is private, 2 ms at 1,000 snapshots."""
    private = None if snapshot.summary is None else snapshot.summary.__pydantic_private__
    return {} if private is None else private["_additional_properties"]


def _our_snapshot(
    metadata: TableMetadata, summaries: _Summaries, process_id: str, noted: frozenset[str]
) -> Snapshot | None:
    tagged = metadata.refs.get(tag_of(process_id))
    ours = [
        snapshot
        for snapshot, said in summaries
        if said.get(PROCESS_ID) == process_id or str(snapshot.snapshot_id) in noted
    ]
    return next(
        (one for one in ours if tagged and one.snapshot_id == tagged.snapshot_id), next(iter(ours), None)
    )


def _earlier(metadata: TableMetadata, summaries: _Summaries, key_hash: str) -> EarlierExport | None:
    export = _last_export(metadata, summaries, key_hash)
    mark = metadata.properties.get(released_property_of(key_hash))
    return export if mark is None else _with_release(key_hash, mark, export)


def _last_export(metadata: TableMetadata, summaries: _Summaries, key_hash: str) -> EarlierExport | None:
    """The property names the last export of a key; without it, the newest snapshot that carries it."""
    name = property_of(key_hash)
    if (text := metadata.properties.get(name)) is not None:
        export = read_property(key_hash, text)
        if export is None:
            raise RefusedError(
                f"table property {name} does not read as an export: {text[:200]!r}",
                code="mark_unreadable",
                hint="it was changed by hand or damaged; check whether the rows are in the table before you remove it",
            )
        return export
    for snapshot, said in reversed(summaries):
        if key_hash in (keys := said.get(EXPORT_KEY, "").split(",")):
            return EarlierExport(
                key_hash=key_hash,
                process_id=said.get(PROCESS_ID) or _UNKNOWN,
                snapshot_id=str(snapshot.snapshot_id),
                rows=_number(snapshot, "added-records") if len(keys) == 1 else 0,
                files=_number(snapshot, "added-data-files") if len(keys) == 1 else 0,
                shared=len(keys) > 1,
            )
    return None


def _published(process_id: str, snapshot: Snapshot) -> PublishedSnapshot:
    return PublishedSnapshot(
        process_id=process_id,
        snapshot_id=str(snapshot.snapshot_id),
        rows=_number(snapshot, "added-records"),
        files=_number(snapshot, "added-data-files"),
        bytes=_number(snapshot, "added-files-size"),
        replaced_rows=_number(snapshot, "deleted-records"),
        replaced_files=_number(snapshot, "deleted-data-files"),
    )


def _remembered(export: EarlierExport, earlier: Sequence[EarlierExport]) -> PublishedSnapshot:
    """Only properties remember it: tag and snapshot are expired."""
    mine = [item for item in earlier if item.process_id == export.process_id]
    return PublishedSnapshot(
        process_id=export.process_id,
        snapshot_id=export.snapshot_id,
        rows=sum(item.rows for item in mine),
        files=sum(item.files for item in mine),
        bytes=0,
        expired=True,
    )


def _number(snapshot: Snapshot, name: str) -> int:
    text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)
    return int(text) if text is not None and text.isdigit() else 0
