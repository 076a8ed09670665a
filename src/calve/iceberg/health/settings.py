"""The thresholds of one table: documented defaults, changed by the table's own properties.

Names and meanings are Amoro's (`self-optimizing.*`), so that a table that was tuned for it needs
nothing new; `write.target-file-size-bytes` and `history.expire.*` are Iceberg's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from calve.model.errors import RefusedError

MIB = 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NEVER = -1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes in bytes, spans in milliseconds, as the properties have them."""

    enabled: bool = True  # whether workers may optimize it unasked
    target_bytes: int = 128 * MIB
    fragment_ratio: int = 8  # a fragment has at most target / this
    undersized_ratio: float = 0.75  # below this of the target a file is undersized
    oversized_ratio: float = 1.8  # above this of the target a file is split
    minor_files: int = 12  # so many fragments in a partition trigger at once
    minor_interval_ms: int = HOUR_MS  # a fragment of this age triggers, where it has company
    major_delete_ratio: float = 0.1  # deleted rows over rows
    full_interval_ms: int = NEVER
    full_rewrites_all: bool = True
    most_files: int = 10_000  # files that one task rewrites at most
    plan_interval_ms: int = 60_000  # between two processes that a worker starts unasked
    expire: bool = True
    snapshot_age_ms: int = 5 * DAY_MS
    snapshots_kept: int = 1
    clean_orphans: bool = True
    orphan_age_ms: int = 2 * DAY_MS
    manifest_bytes: int = 8 * MIB  # what a manifest should have
    owns_files: bool = True  # false: other tables use its files, and none may be deleted

    @property
    def fragment_bytes(self) -> int:
        """The largest size that is a fragment."""
        return self.target_bytes // self.fragment_ratio

    @property
    def undersized_bytes(self) -> int:
        """A file below this is undersized."""
        return int(self.target_bytes * self.undersized_ratio)

    @property
    def oversized_bytes(self) -> int:
        return int(self.target_bytes * self.oversized_ratio)


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _ratio(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise ValueError(text)
    return number


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _minutes(text: str) -> int:
    return _positive(text) * 60_000


_UNITS_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": HOUR_MS, "hour": HOUR_MS,
             "hours": HOUR_MS, "d": DAY_MS, "day": DAY_MS, "days": DAY_MS}  # fmt: skip


def _span(text: str) -> int:
    """`12h`, `720min`, `3 days`; a bare number is milliseconds."""
    digits = len(text) - len(text.lstrip("0123456789"))
    unit = text[digits:].strip().lower() or "ms"
    return _positive(text[:digits]) * _UNITS_MS[unit]


# Later rows win: what is said for optimizing goes before what is said for writing.
_PROPERTIES: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("write.target-file-size-bytes", "target_bytes", _positive),
    ("self-optimizing.target-size", "target_bytes", _positive),
    ("self-optimizing.enabled", "enabled", _flag),
    ("self-optimizing.fragment-ratio", "fragment_ratio", _positive),
    ("self-optimizing.min-target-size-ratio", "undersized_ratio", _ratio),
    ("self-optimizing.minor.trigger.file-count", "minor_files", _positive),
    ("self-optimizing.minor.trigger.interval", "minor_interval_ms", int),
    ("self-optimizing.major.trigger.duplicate-ratio", "major_delete_ratio", _ratio),
    ("self-optimizing.full.trigger.interval", "full_interval_ms", int),
    ("self-optimizing.full.rewrite-all-files", "full_rewrites_all", _flag),
    ("self-optimizing.max-file-count", "most_files", _positive),
    ("self-optimizing.min-plan-interval", "plan_interval_ms", int),
    ("history.expire.max-snapshot-age-ms", "snapshot_age_ms", _positive),
    ("snapshot.keep.duration", "snapshot_age_ms", _span),
    ("history.expire.min-snapshots-to-keep", "snapshots_kept", _positive),
    ("snapshot.keep.min-count", "snapshots_kept", _positive),
    ("table-expire.enabled", "expire", _flag),
    ("clean-orphan-file.enabled", "clean_orphans", _flag),
    ("clean-orphan-file.min-existing-time-minutes", "orphan_age_ms", _minutes),
    ("commit.manifest.target-size-bytes", "manifest_bytes", _positive),
    ("gc.enabled", "owns_files", _flag),
)
HONOURED = tuple(name for name, _, _ in _PROPERTIES)


def settings_of(properties: Mapping[str, str], base: Settings | None = None) -> Settings:
    """The settings of a table. RefusedError names an invalid property: a threshold that is
    set and silently ignored would be worse."""
    found: dict[str, Any] = {}
    for name, field, read in _PROPERTIES:
        if (text := properties.get(name)) is None:
            continue
        try:
            found[field] = read(text)
        except (ValueError, KeyError) as cause:
            raise RefusedError(
                f"invalid table property {name}: {text!r}",
                code="property_unreadable",
                hint=f"set it to a valid value, or remove it: ALTER TABLE … UNSET TBLPROPERTIES ('{name}')",
            ) from cause
    settings = replace(base or Settings(), **found)
    return settings if settings.owns_files else replace(settings, expire=False, clean_orphans=False)
