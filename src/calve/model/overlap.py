"""Which selections of one partition can hold the same rows (D8). Only what can be proven is disjoint:
parts whose block ranges do not meet.

A selection is the canonical text of a request: "" for all of a partition, or JSON with `parts`,
`where`, `final`.
"""

import json
import re

_PART = re.compile(r"[^_]+_(\d+)_(\d+)_\d+(?:_\d+)?")


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
