"""Versions of ClickHouse that are known to lose parts when partitions are dropped or moved, by number."""

import re

_OLDEST = (23, 6)  # before, rows cannot be proven by value
# Line -> first release in it where DROP PARTITION no longer removes parts of later log entries (#94123).
_REPLICATED = {
    (25, 3): (13, 19),
    (25, 8): (15, 35),
    (25, 10): (5, 40),
    (25, 11): (7, 41),
    (25, 12): (4, 33),
}
_FIXED_FROM = (26, 1)
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+)\.(\d+))?")


def known_loss(version: str, *, replicated: bool) -> str:
    """Why no partition may leave a table of this version, for a person; "" where nothing is known against it."""
    found = _NUMBERS.match(version)
    if found is None:
        return f"invalid version {version!r}"
    line = int(found[1]), int(found[2])
    if line < _OLDEST:
        return f"ClickHouse {version} is older than 23.6"
    if not replicated or line >= _FIXED_FROM:
        return ""
    fixed = _REPLICATED.get(line)
    if fixed is not None and found[3] is not None and (int(found[3]), int(found[4])) >= fixed:
        return ""
    known = f"fixed in {line[0]}.{line[1]}.{fixed[0]}.{fixed[1]}" if fixed else "fixed in 26.1"
    return f"ClickHouse {version} may lose parts of a replicated table when a partition is removed ({known})"
