"""What was asked for, as the store keeps it."""

import re
from dataclasses import dataclass, field, replace

from calve.model.errors import UsageError
from calve.model.record import Record

NAME = "optimize"  # of the kind


@dataclass(frozen=True, kw_only=True)
class SortColumn:
    name: str
    direction: str = "asc"
    nulls: str = "NULLS_FIRST"


@dataclass(frozen=True, kw_only=True)
class SortBy:
    """How rewritten rows are ordered: by columns, by the table's own order, or along a Z-curve."""

    columns: tuple[SortColumn, ...] = ()
    zorder: tuple[str, ...] = ()
    table: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns or self.zorder or self.table)

    def __str__(self) -> str:
        """As `parse_sort` reads it."""
        if self.table:
            return "table"
        if self.zorder:
            return f"zorder({', '.join(self.zorder)})"
        nulls = {"NULLS_FIRST": "nulls first", "NULLS_LAST": "nulls last"}
        return ", ".join(f"`{one.name}` {one.direction} {nulls[one.nulls]}" for one in self.columns)


@dataclass(frozen=True, kw_only=True)
class OptimizeOptions:
    """As a person asks for it; each field is an option of `calve optimize`."""

    full: bool = False
    sort: SortBy = field(default_factory=SortBy)  # see `parse_sort`
    expire: bool | None = None  # None: as the table says
    orphans: bool | None = None


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest(OptimizeOptions, Record):
    catalog: str
    identifier: tuple[str, ...]
    most_tasks: int = 0  # 0: as many as there are; the rest waits for the next process
    by_worker: bool = False

    @property
    def name(self) -> str:
        return ".".join((self.catalog, *self.identifier))

    @property
    def asked(self) -> str:
        """What was asked for, in one canonical text: the same request again asks for the same (T16)."""
        return replace(self, by_worker=False).to_json()


_ZORDER = re.compile(r"^zorder\s*\((.*)\)$", re.IGNORECASE)
_COLUMN = re.compile(
    r"^(?P<name>`[^`]+`|[^\s`]+)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?$",
    re.IGNORECASE,
)


def parse_sort(text: str) -> SortBy:
    """`table`, `zorder(a, b)`, or `a, b desc nulls last`."""
    text = text.strip()
    if text.lower() == "table":
        return SortBy(table=True)
    if zorder := _ZORDER.match(text):
        names = tuple(name.strip().strip("`") for name in zorder.group(1).split(","))
        if all(names):
            return SortBy(zorder=names)
        raise _unreadable(text)
    return SortBy(columns=tuple(_column(part, text) for part in text.split(",")))


def _column(part: str, text: str) -> SortColumn:
    found = _COLUMN.match(part.strip())
    if found is None:
        raise _unreadable(text)
    direction = (found["direction"] or "asc").lower()
    nulls = found["nulls"] or ("first" if direction == "asc" else "last")
    return SortColumn(name=found["name"].strip("`"), direction=direction, nulls=f"NULLS_{nulls.upper()}")


def _unreadable(text: str) -> UsageError:
    return UsageError(
        f"invalid sort order {text!r}",
        code="sort_unreadable",
        hint="--sort 'day, id desc nulls last', --sort 'zorder(x, y)', or --sort table",
    )
