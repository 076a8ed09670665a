"""Long lists in pieces: both databases bound the number of parameters of a statement."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_SIZE = 500


def chunks(items: Sequence[T], size: int = _SIZE) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
