"""What the destination remembers of earlier exports: the same key, or one that overlaps.

The table itself is asked, not the store: two stores that know nothing of each other, or a store
restored from yesterday, then come to the same answer (D1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.destination.outcome import EarlierExport
from calve.destination.port import FoundTable
from calve.export.request import ExportRequest
from calve.model.content import merged_since, unchanged
from calve.model.errors import RefusedError
from calve.model.plan import KeyPlan


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """One key that was published before."""

    partition: str
    export: EarlierExport
    unchanged: bool
    rows_now: int
    merged: bool = False  # its parts are others now, in a table whose block numbers can begin again

    @property
    def sentence(self) -> str:
        """For a person: what is there, and what changed."""
        by = f"exported by process {self.export.process_id} in snapshot {self.export.snapshot_id}"
        if self.unchanged:
            seen = f"partition {self.partition} is already {by}, and unchanged since"
            return f"{seen} but for merges" if self.merged else seen
        counts = f"{self.export.rows} rows then, {self.rows_now} now"
        if self.export.rows == self.rows_now:
            counts = f"{self.rows_now} rows then and now, in other parts"
        return f"partition {self.partition} was {by} and has changed since: {counts}"

    def refusal(self, request: ExportRequest) -> RefusedError:
        return RefusedError(
            f"{request.source_table}: {self.sentence}",
            code="changed_since",
            hint="--force replaces what was exported with what is there now",
        )


def look_up(table: FoundTable, wanted: Sequence[KeyPlan]) -> list[Earlier]:
    """The keys among these that the table has already."""
    found = []
    for key in wanted:
        export = table.find_export(key.hash)
        if export is not None:
            found.append(
                Earlier(
                    partition=key.partition,
                    export=export,
                    unchanged=unchanged(export.content, key.content),
                    rows_now=key.rows,
                    merged=merged_since(export.content, key.content),
                )
            )
    return found
