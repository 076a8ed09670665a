"""Receipts: what a finished attempt leaves beside its files, put if-none-match.

Publishing uses only files that a receipt names, and reads no footer: all that a manifest
needs is here. Integers are Python's, so counters hold more than 2^31 (L15).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from calve.model.stored import known_fields

RECEIPT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FileReceipt:
    """One data file. Maps are by field id; bounds are Iceberg's single-value form, in hex."""

    path: str  # the full URI
    rows: int
    bytes: int
    partition: tuple[Any, ...] = ()  # by the plan's spec, in field order; JSON values, see lake.partitions
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_counts: Mapping[int, int] = field(default_factory=dict)
    nan_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, str] = field(default_factory=dict)
    upper_bounds: Mapping[int, str] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one attempt of one task read and wrote."""

    process_id: str
    task: int
    attempt: int
    rows: int
    bytes: int
    files: tuple[FileReceipt, ...] = ()
    checksums: Mapping[str, str] = field(
        default_factory=dict
    )  # per column, order-independent, of what was read
    seconds: float = 0.0
    version: int = RECEIPT_VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a receipt of this or an older version; fields that did not exist then get defaults."""
        data: dict[str, Any] = json.loads(text)
        data["files"] = tuple(_file(item) for item in data.get("files", ()))
        return cls(**known_fields(cls, data))


_BY_FIELD_ID = frozenset(
    {"column_sizes", "value_counts", "null_counts", "nan_counts", "lower_bounds", "upper_bounds"}
)


def _file(data: Mapping[str, Any]) -> FileReceipt:
    known = known_fields(FileReceipt, data)
    for name in _BY_FIELD_ID & known.keys():
        known[name] = {int(field_id): value for field_id, value in known[name].items()}
    for name in ("partition", "split_offsets"):
        known[name] = tuple(known.get(name, ()))
    return FileReceipt(**known)
