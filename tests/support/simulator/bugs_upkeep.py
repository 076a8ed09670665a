"""Mistakes planted in optimizes, and in exports to plain Parquet."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from calve.iceberg.health.orphans import Owner, PathSet
from calve.optimize import cleanup, expiry
from calve.parquet import publish as putting
from support.simulator.bugs import bug


@bug("what expired snapshots named is deleted without another look at those that stay (L20)", "upkeep")
def expiry_does_not_look_again() -> Iterator[None]:
    with patch.object(expiry, "reachable", lambda _: PathSet()):
        yield


@bug("files of live processes are taken for orphans, however young (D15)", "upkeep")
def young_orphans() -> Iterator[None]:
    with (
        patch.object(cleanup, "owner_in", lambda *_: lambda _: Owner.ENDED),
        patch.object(cleanup, "orphan_limit", lambda _settings, _limits, now: now),
    ):
        yield


@bug("a late put of a commit object finds its name free: nothing fences it", "folders")
def no_fence_in_a_folder() -> Iterator[None]:
    from calve.destination.outcome import PublishFenced

    def fence(*_: Any) -> Any:
        return PublishFenced(tag="")

    with patch.object(putting, "fence", fence):
        yield
