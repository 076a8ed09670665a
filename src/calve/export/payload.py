"""What an executor is given for one attempt at one task: JSON, and all that it needs.

It holds the keys of storage and source, so it is shipped and never stored or printed (P22).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from calve.clickhouse.reader import Read, Reader
from calve.destination import names
from calve.destination.plan import ColumnPlan, DestinationPlan, ExportPlan, PartPlan, Relation, Slice
from calve.model.record import Record


@dataclass(frozen=True, kw_only=True)
class TaskPayload(Record):
    process_id: str
    task: int
    attempt: int
    relation: Relation
    reader: Reader
    parts: tuple[PartPlan, ...]  # those that the slices name, and no others
    slices: tuple[Slice, ...]  # by place in `parts`
    columns: tuple[ColumnPlan, ...]
    destination: DestinationPlan
    memory_mb: int = 1000
    file_mb: int = 128
    open_files: int = 32
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    lending: Mapping[str, Any] = field(default_factory=dict, repr=False)  # to ask for new keys of `storage`
    connect_seconds: float = 5.0
    call_seconds: float = 15.0

    @classmethod
    def of(
        cls,
        plan: ExportPlan,
        *,
        task: int,
        attempt: int,
        reader: Reader,
        storage: Mapping[str, str],
        lending: Mapping[str, Any] | None = None,
        connect_seconds: float = 5.0,
        call_seconds: float = 15.0,
    ) -> Self:
        """What task number `task` (from 0, its place in the plan) needs of the plan."""
        slices = plan.tasks[task]
        places = sorted({piece.part for piece in slices})
        moved = {place: new for new, place in enumerate(places)}
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            relation=plan.relation,
            reader=reader,
            parts=tuple(plan.parts[place] for place in places),
            slices=tuple(Slice(part=moved[piece.part], start=piece.start, end=piece.end) for piece in slices),
            columns=plan.columns,
            destination=plan.destination,
            memory_mb=plan.memory_mb,
            file_mb=plan.file_mb,
            open_files=plan.open_files,
            settings=plan.settings,
            storage=storage,
            lending=lending or {},
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
        )

    @property
    def read(self) -> Read:
        """What its reader is asked for."""
        return Read(
            relation=self.relation,
            parts=self.parts,
            slices=self.slices,
            access=self.reader.access,
            settings=self.settings,
            memory_mb=self.memory_mb,
            connect_seconds=self.connect_seconds,
            call_seconds=self.call_seconds,
        )

    @property
    def receipt_uri(self) -> str:
        return names.receipt_uri(self.destination.receipts_location, self.process_id, self.task, self.attempt)
