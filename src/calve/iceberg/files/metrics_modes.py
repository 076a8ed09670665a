"""How much a manifest says about each column: the table's own properties, read as Iceberg does."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.types import IcebergType, ListType, MapType, StructType

_DEFAULT_PROPERTY = "write.metadata.metrics.default"
_COLUMN_PROPERTY = "write.metadata.metrics.column."
_MOST_PROPERTY = "write.metadata.metrics.max-inferred-column-defaults"
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_USUAL_LENGTH = 16
_USUAL_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Mode:
    counts: bool = True
    bounds: bool = True
    length: int | None = _USUAL_LENGTH  # None: whole values


NONE = Mode(counts=False, bounds=False)
COUNTS = Mode(bounds=False)
USUAL = Mode()


def metrics_modes(schema: StructType, properties: Mapping[str, str]) -> dict[int, Mode]:
    """The mode of every primitive field, by field id."""
    leaves = list(_leaves(schema, ""))
    default = _mode(properties.get(_DEFAULT_PROPERTY, ""))
    most = int(properties.get(_MOST_PROPERTY, _USUAL_MOST))
    modes = {}
    for place, (field_id, name) in enumerate(leaves):
        own = _mode(properties.get(_COLUMN_PROPERTY + name, ""))
        inferred = USUAL if place < most else NONE  # very wide tables would have huge manifests
        modes[field_id] = own or default or inferred
    return modes


def _mode(text: str) -> Mode | None:
    match text.strip().lower():
        case "none":
            return NONE
        case "counts":
            return COUNTS
        case "full":
            return Mode(length=None)
        case plain if (found := _TRUNCATE.fullmatch(plain)) and int(found[1]):
            return Mode(length=int(found[1]))
        case _:
            return None


def _leaves(kind: IcebergType, prefix: str, field_id: int = 0) -> Iterator[tuple[int, str]]:
    match kind:
        case StructType():
            for item in kind.fields:
                yield from _leaves(
                    item.field_type, f"{prefix}.{item.name}" if prefix else item.name, item.field_id
                )
        case ListType():
            yield from _leaves(kind.element_type, f"{prefix}.element", kind.element_id)
        case MapType():
            yield from _leaves(kind.key_type, f"{prefix}.key", kind.key_id)
            yield from _leaves(kind.value_type, f"{prefix}.value", kind.value_id)
        case _:
            yield field_id, prefix
