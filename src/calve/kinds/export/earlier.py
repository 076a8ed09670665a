"""What the destination remembers of earlier exports: the same key, or one that overlaps.

The table itself is asked, not the store: two stores that know nothing of each other, or a store
restored from yesterday, then come to the same answer (D1).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

from calve.kinds.export.request import ExportRequest
from calve.lake.publish import marks
from calve.lake.publish.outcome import EarlierExport
from calve.lake.publish.search import find_export
from calve.model.errors import RefusedError
from calve.model.plan import KeyPlan
from calve.source.part_files import parse_name


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """One key that was published before."""

    partition: str
    export: EarlierExport
    unchanged: bool
    rows_now: int

    @property
    def sentence(self) -> str:
        """For a person: what is there, and what changed."""
        by = f"exported by process {self.export.process_id} in snapshot {self.export.snapshot_id}"
        if self.unchanged:
            return f"partition {self.partition} is already {by}, and unchanged since"
        return (
            f"partition {self.partition} was {by} and has changed since:"
            f" {self.export.rows} rows then, {self.rows_now} now"
        )

    def refusal(self, request: ExportRequest) -> RefusedError:
        return RefusedError(
            f"{request.source_table}: {self.sentence}",
            code="changed_since",
            hint="--force replaces what was exported with what is there now",
        )


def look_up(table: Table, wanted: Sequence[KeyPlan]) -> list[Earlier]:
    """The keys among these that the table has already."""
    found = []
    for key in wanted:
        export = find_export(table, key.hash)
        if export is not None:
            found.append(
                Earlier(
                    partition=key.partition,
                    export=export,
                    unchanged=export.content == key.content,
                    rows_now=key.rows,
                )
            )
    return found


def refuse_overlap(table: Table, request: ExportRequest, wanted: Sequence[KeyPlan]) -> None:
    """Another selection of the same partition may hold the same rows: doubled unless refused (D8)."""
    if request.allow_overlap:
        return
    for key in wanted:
        identity, partition, selection, _ = json.loads(key.text)
        for process_id, other in _selections(table, identity, partition):
            if other != selection and not _disjoint(selection, other):
                raise RefusedError(
                    f"partition {partition} of {request.source_table} was exported before with another"
                    f" selection ({other or 'all of it'}) by process {process_id}: rows could be there twice",
                    code="overlap",
                    hint="export the whole partition into another table, or give --allow-overlap",
                )


def _selections(table: Table, identity: str, partition: str) -> Iterator[tuple[str, str]]:
    """The process and selection of every export of that partition that the table remembers."""
    for name, value in table.metadata.properties.items():
        if not name.startswith(marks.KEY_PROPERTY):
            continue
        export = marks.read_property(name.removeprefix(marks.KEY_PROPERTY), value)
        if export is not None and export.input[:2] == (identity, partition):
            yield export.process_id, export.input[2]


def _disjoint(one: str, other: str) -> bool:
    """Only what can be proven: parts whose block ranges do not meet hold different rows."""
    mine, theirs = _blocks(one), _blocks(other)
    if mine is None or theirs is None:
        return False
    return all(high < low or last < first for low, last in mine for first, high in theirs)


def _blocks(selection: str) -> list[tuple[int, int]] | None:
    chosen = json.loads(selection) if selection else {}
    names = [parse_name(name) for name in chosen.get("parts", ())]
    if not names or None in names or chosen.get("final"):
        return None
    return [(name.min_block, name.max_block) for name in names if name is not None]
