"""What an executor is given to store the parts of one task: JSON, and all that it needs.

It holds the keys of the storage, so it is shipped and never stored or printed (P22).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from calve.archive.location import Location
from calve.backup.plan import BackupPlan, Reuse, Upload
from calve.objects.storage import Storage


@dataclass(frozen=True, kw_only=True)
class BackupPayload:
    process_id: str
    task: int
    attempt: int
    key: str
    location: str
    location_id: str
    uploads: tuple[Upload, ...]
    reuse: Mapping[str, Reuse]
    hard_links: bool = False
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 5.0
    call_seconds: float = 15.0

    @classmethod
    def of(
        cls,
        plan: BackupPlan,
        *,
        task: int,
        attempt: int,
        storage: Mapping[str, str],
        hard_links: bool = False,
        connect_seconds: float,
        call_seconds: float,
    ) -> Self:
        start, end = plan.tasks[task]
        uploads = plan.uploads[start:end]
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            key=plan.key,
            location=plan.location,
            location_id=plan.location_id,
            uploads=uploads,
            reuse={one.address: plan.reuse[one.address] for one in uploads if one.address in plan.reuse},
            hard_links=hard_links,
            storage=storage,
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
        )

    def open(self) -> Location:
        storage = Storage(self.storage, connect_seconds=self.connect_seconds, call_seconds=self.call_seconds)
        return Location(self.location, storage)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        return cls(
            **data
            | {
                "uploads": tuple(Upload(**item) for item in data["uploads"]),
                "reuse": {address: Reuse(**item) for address, item in data["reuse"].items()},
            }
        )
