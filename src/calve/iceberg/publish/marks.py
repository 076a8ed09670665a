"""The marks a publish leaves in a table, and their forms.

- tag `calve-<process id>`: asserted absent by the commit that sets it, so it is set once, by
  the publish or as a tombstone by the fence. It counts as published only if its snapshot's
  summary carries the process id.
- summary `calve.fenced-process-id`: of the empty snapshot that the fence puts on main. It refuses
  what was sent before it, whatever becomes of the tag.
- summary `calve.process-id`, `calve.export-key` (hashes, comma between), `calve.version`.
- property `calve.export.<key hash>`: outlives tags and snapshots (P8).
- note: the control plane's row remembers the snapshot ids that were about to be sent.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from calve.destination.outcome import EarlierExport
from calve.destination.plan import ExportPlan, KeyPlan
from calve.destination.receipt import Receipt, tasks_of
from calve.model.record import UNSORTED, Record, loads

PROCESS_ID = "calve.process-id"
EXPORT_KEY = "calve.export-key"
VERSION = "calve.version"
FENCE = "calve.fenced-process-id"
KEY_PROPERTY = "calve.export."


def tag_of(process_id: str) -> str:
    return f"calve-{process_id}"


def property_of(key_hash: str) -> str:
    return f"{KEY_PROPERTY}{key_hash}"


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
        value["input"] = _input(key)
        if sequence:
            value["sequence"] = sequence
        if tasks is None:
            value |= {"rows": key.rows, "tasks": None}
        else:
            mine = [receipt for receipt in receipts if receipt.task in set(tasks)]
            value["rows"] = sum(receipt.rows for receipt in mine)
            value["files"] = sum(len(receipt.files) for receipt in mine)
            if len(plan.keys) > 1:
                value["tasks"] = ranges(tasks)
        properties[property_of(key.hash)] = json.dumps(value, separators=(",", ":"))
    return properties


def _input(key: KeyPlan) -> list[str]:
    """Source identity, partition and selection: what another selection of the same partition is
    compared with (D8). A plan without the readable key has only its partition."""
    return [str(item) for item in json.loads(key.text)[:3]] if key.text else ["", key.partition, ""]


def read_property(key_hash: str, text: str) -> EarlierExport | None:
    """A key's property; None if it cannot be read."""
    try:
        value = json.loads(text)
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
            shared="tasks" in value and tasks is None,
            input=(identity, partition, selection),
            sequence=int(value.get("sequence", 0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
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
        first, _, last = run.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
