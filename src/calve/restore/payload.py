"""What an executor is given to fetch the parts of one task. It holds the keys of the storage, so it is
shipped and never stored or printed (P22)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from calve.archive.location import Location
from calve.archive.manifest import PartEntry
from calve.objects.storage import Storage
from calve.restore.plan import RestorePlan


@dataclass(frozen=True, kw_only=True)
class RestorePayload:
    process_id: str
    task: int
    attempt: int
    location: str
    state: str  # the target's folder
    first: int  # the plan's number of the first part
    parts: tuple[PartEntry, ...]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 5.0
    call_seconds: float = 15.0

    @classmethod
    def of(
        cls,
        plan: RestorePlan,
        *,
        task: int,
        attempt: int,
        storage: Mapping[str, str],
        connect_seconds: float,
        call_seconds: float,
    ) -> Self:
        start, end = plan.tasks[task]
        parts = plan.parts[start:end]
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            location=plan.location,
            state=plan.targets[parts[0].target].state,
            first=start,
            parts=tuple(part.entry for part in parts),
            storage=storage,
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
        )

    def open(self) -> Location:
        storage = Storage(self.storage, connect_seconds=self.connect_seconds, call_seconds=self.call_seconds)
        return Location(self.location, storage)

    @property
    def receipt_uri(self) -> str:
        return receipt_uri(self.state, self.process_id, self.task, self.attempt)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        return cls(**data | {"parts": tuple(PartEntry.read(item) for item in data["parts"])})


def receipt_uri(state: str, process_id: str, task: int, attempt: int) -> str:
    """Beside the staged parts, on the target's disk: the one place that a restore writes to."""
    return f"file://{state}/receipt-{process_id}-{task}-{attempt}.json"
