"""Receipts: what a finished attempt leaves beside its files, put if-none-match.

Publishing uses only files that a receipt names, and reads no footer: all that a manifest
needs is here. Integers are Python's, so counters hold more than 2^31 (L15).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.model.record import Record

RECEIPT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FileReceipt:
    """One data file. Maps are by field id; bounds are Iceberg's single-value form, in hex."""

    path: str  # the full URI
    rows: int
    bytes: int
    partition: tuple[
        Any, ...
    ] = ()  # by the plan's spec, in field order; JSON values, see calve.iceberg.partitions
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
class Receipt(Record):
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
