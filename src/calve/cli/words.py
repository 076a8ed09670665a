"""Numbers, sizes and times as people read them, and tables that need no colour."""

from collections.abc import Sequence
from datetime import datetime, timedelta

_LEAST = 6  # characters that a shortened column keeps
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    for unit in _SIZES[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_SIZES[-1]}"


def seconds(number: float) -> str:
    if number < 60:
        return f"{number:.1f} s"
    return duration(timedelta(seconds=number))


def duration(span: timedelta) -> str:
    """The two largest units: `3d 4h`, `12m 5s`."""
    left = max(0, int(span.total_seconds()))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length}{unit}")
            left %= length
    return " ".join(parts[:2])


def age(at: datetime | None, now: datetime) -> str:
    return duration(now - at) if at else ""


def moment(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({age(at, now)} ago)"


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[str] = frozenset(),
    *,
    width: int | None = None,
    cut: frozenset[str] = frozenset(),
    drop: Sequence[str] = (),
) -> str:
    """Columns parted by two spaces; those in `right` are set to the right. Where a `width` is given, a
    row stays a line, as far as that is possible: the columns in `cut` are shortened, and where that is
    not enough those in `drop` are omitted, the first one first."""
    widths = _widths(head, rows)
    if width is not None:
        for name in drop:
            if _total(_fitted(head, widths, width, cut)) <= width:
                break
            kept = [at for at, title in enumerate(head) if title != name]
            head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
            widths = _widths(head, rows)
        widths = _fitted(head, widths, width, cut)

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(room) if name in right else _shortened(cell, room).ljust(room)
            for name, cell, room in zip(head, cells, widths, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join(line(row) for row in (head, *rows))


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitted(head: Sequence[str], widths: Sequence[int], width: int, cut: frozenset[str]) -> list[int]:
    """The widest of those that may be cut gives a character at a time."""
    fitted = list(widths)
    while _total(fitted) > width:
        spare = [at for at, name in enumerate(head) if name in cut and fitted[at] > _LEAST]
        if not spare:
            break
        fitted[max(spare, key=lambda at: fitted[at])] -= 1
    return fitted


def _shortened(cell: str, room: int) -> str:
    return cell if len(cell) <= room else f"{cell[: room - 1]}…"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one to a line; empty values are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)
