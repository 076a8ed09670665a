"""Another selection of the same partition may hold the same rows: doubled unless refused (D8).

The destination itself is asked, at the survey and again at every attempt to publish. An Iceberg
commit asserts the very head that was asked, so of two stores that know nothing of each other one is
refused.

Only what can be proven is disjoint: parts whose block ranges do not meet. A selection is the canonical
text of a request: "" for all of a partition, or JSON with `parts`, `where`, `final`.
"""

import json
import re
from collections.abc import Iterable, Sequence

from calve.destination.outcome import EarlierExport
from calve.destination.plan import KeyPlan
from calve.model.errors import RefusedError

_PART = re.compile(r"[^_]+_(\d+)_(\d+)_\d+(?:_\d+)?")


def refuse_overlap(exports: Iterable[EarlierExport], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """`exports` are all that the destination remembers. A key of an old plan, without its readable text,
    is not compared."""
    known = list(exports)
    for key in wanted:
        if not key.text:
            continue
        identity, partition, selection, _ = json.loads(key.text)
        for export in known:
            other = export.input[2]
            if export.input[:2] != (identity, partition) or other == selection:
                continue
            if not disjoint(selection, other):
                raise RefusedError(
                    f"partition {partition} of {source_table} was exported before with another selection"
                    f" ({other or 'all of it'}) by process {export.process_id}: rows could be there twice",
                    code="overlap",
                    hint="export the whole partition into another table, or give --allow-overlap",
                )


def block_ranges(selection: str) -> list[tuple[int, int]] | None:
    """First and last block of each part that is named; None where rows of any block may be meant."""
    chosen = json.loads(selection) if selection else {}
    names = [_PART.fullmatch(name) for name in chosen.get("parts", ())]
    if not names or chosen.get("final"):
        return None
    ranges = [(int(name[1]), int(name[2])) for name in names if name is not None]
    # A name of a table of old syntax has dates there, which end before they begin.
    if len(ranges) < len(names) or any(first > last for first, last in ranges):
        return None
    return ranges


def disjoint(one: str, other: str) -> bool:
    mine, theirs = block_ranges(one), block_ranges(other)
    if mine is None or theirs is None:
        return False
    return all(last < begin or end < first for first, last in mine for begin, end in theirs)
