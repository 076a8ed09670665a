"""Long lists, as many pages as it takes: a server answers with at most a thousand of a list at once."""

from collections.abc import Callable
from typing import Any

PAGE = 1000


def listed(page: Callable[[int, str | None], list[Any]], limit: int) -> list[Any]:
    """`page`: at most so many, after the process of that id."""
    found: list[Any] = []
    while True:
        wanted = min(limit - len(found), PAGE)
        more = page(wanted, found[-1]["id"] if found else None)
        found += more
        if len(more) < wanted or len(found) >= limit:
            return found
