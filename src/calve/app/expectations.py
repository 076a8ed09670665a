"""Work that `[expect]` says must happen, compared with when it last did."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from calve.app.config.values import Expectation
from calve.model.access import Latest


@dataclass(frozen=True, kw_only=True)
class Overdue:
    """`completed_at` is None if it never happened. `unproven`: it happened, and nobody has proven it lately."""

    expectation: Expectation
    table: str
    destination: str = ""
    completed_at: datetime | None = None
    proven_at: datetime | None = None
    unproven: bool = False


def overdue(
    expectations: Sequence[Expectation], latest: Iterable[Latest], now: datetime
) -> Iterator[Overdue]:
    """An expectation with a pattern is about each known table that it fits, or, if there is none, about itself."""
    done = list(latest)
    for wanted in expectations:
        found: dict[tuple[str, str], list[Latest]] = {}
        for one in done:
            if one.kind == wanted.kind and _fits(wanted, one):
                place = (one.table, one.destination if wanted.to else "")
                found.setdefault(place, []).append(one)
        if not found:
            yield Overdue(expectation=wanted, table=wanted.table, destination=wanted.to)
        for (table, destination), ends in found.items():
            completed = max((one.completed_at for one in ends if one.completed_at), default=None)
            proven = max((one.proven_at for one in ends if one.proven_at), default=None)
            late = completed is None or now - completed > wanted.within
            limit = wanted.proven_within
            unproven = not late and limit is not None and (proven is None or now - proven > limit)
            if late or unproven:
                yield Overdue(
                    expectation=wanted,
                    table=table,
                    destination=destination or ends[0].destination,
                    completed_at=completed,
                    proven_at=proven,
                    unproven=unproven,
                )


def _fits(wanted: Expectation, one: Latest) -> bool:
    return (one.table == wanted.table or fnmatchcase(one.table, wanted.table)) and (
        not wanted.to or fnmatchcase(one.destination, wanted.to)
    )
