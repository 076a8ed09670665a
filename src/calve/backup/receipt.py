"""What a finished attempt of a backup leaves: where each part is, and the hash of its index, which
names every file with its size and checksum."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from calve.model.stored import known_fields


@dataclass(frozen=True, kw_only=True)
class PartReceipt:
    address: str
    place: str
    index_sha256: str
    bytes: int
    moved: bool  # stored by this attempt; otherwise it was there


@dataclass(frozen=True, kw_only=True)
class BackupReceipt:
    process_id: str
    task: int
    attempt: int
    parts: tuple[PartReceipt, ...]
    rows: int
    bytes: int  # of all parts, moved or not
    moved_bytes: int
    seconds: float = 0.0
    version: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        data["parts"] = tuple(PartReceipt(**item) for item in data["parts"])
        return cls(**known_fields(cls, data))
