"""What a person chose about types: per column on the command line, per type in the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class UInt64As(StrEnum):
    """Iceberg has no unsigned integers: all values as digits, or a long that overflows loudly."""

    DECIMAL = "decimal"
    LONG = "long"


class UuidAs(StrEnum):
    UUID = "uuid"
    STRING = "string"


class StringAs(StrEnum):
    """Iceberg strings are UTF-8; ClickHouse strings are bytes."""

    STRING = "string"
    BINARY = "binary"


class NanosecondsAs(StrEnum):
    """Iceberg v2 timestamps have microseconds."""

    REFUSE = "refuse"
    TRUNCATE = "truncate"


class WideIntegersAs(StrEnum):
    """Int128, UInt128, Int256, UInt256."""

    REFUSE = "refuse"
    DECIMAL = "decimal"
    STRING = "string"


@dataclass(frozen=True, kw_only=True)
class Choices:
    casts: Mapping[str, str] = field(default_factory=dict)  # source column -> Iceberg type's text
    exclude: frozenset[str] = frozenset()  # source columns
    include: frozenset[str] = frozenset()  # source columns that are left out unless they are named: ALIAS
    uint64: UInt64As = UInt64As.DECIMAL
    uuid: UuidAs = UuidAs.UUID
    strings: StringAs = StringAs.STRING
    nanoseconds: NanosecondsAs = NanosecondsAs.REFUSE
    wide_integers: WideIntegersAs = WideIntegersAs.REFUSE
