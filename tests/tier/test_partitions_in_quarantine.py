"""A quarantine in the embedded engine and at a server."""

from collections.abc import Iterator

import pytest

from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.source import LiveSource
from calve.clickhouse.tier.quarantine import HeldPart, MovingQuarantine, QuarantinePlace, Where
from calve.testing.contracts.quarantine import MovingContract, Way
from support.clickhouse_front import clickhouse_front
from support.kept_source import KeptSource


@pytest.fixture(scope="module", params=["embedded", "server"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSource]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        with KeptSource(folder / "clickhouse") as kept:
            yield kept
    else:
        with clickhouse_front(folder) as front:
            yield ServerSource("main", ServerOptions(url=front.url, id="one"))


class TestByMove(MovingContract):
    @pytest.fixture
    def way(self) -> Way:
        return MovingQuarantine


def _part(hash: str, min_block: int) -> HeldPart:
    return HeldPart(name=f"{hash}_{min_block}", rows=1, bytes=1, hash=hash, min_block=min_block)


@pytest.mark.parametrize(
    ("live", "held", "where"),
    [
        ([("a", 1), ("b", 2)], [], Where.TABLE),
        ([("z", 9)], [], Where.NOWHERE),  # late rows alone
        ([("k", 9)], [], Where.TABLE),  # it came back under another number
        ([], [], Where.NOWHERE),
        ([], [("a", 1)], Where.QUARANTINE),
        ([("z", 9)], [("a", 1)], Where.QUARANTINE),
        ([("a", 9)], [("a", 1)], Where.BOTH),  # by its files, whatever its number
        ([("a", 1), ("b", 2)], [("a", 1)], Where.BOTH),
        ([("a", 1)], [("a", 1), ("b", 2)], Where.DIVIDED),
        ([("ab", 1)], [("a", 1), ("b", 2)], Where.DIVIDED),  # merged since
        ([("a", 1)], [("", 0)], Where.DIVIDED),  # of detached parts nobody knows the hash
    ],
)
def test_where_parts_are_follows_from_hashes_and_blocks(
    live: list[tuple[str, int]], held: list[tuple[str, int]], where: Where
) -> None:
    seen = QuarantinePlace(
        live=tuple(_part(*one) for one in live),
        held=tuple(_part(*one) for one in held),
        closed=True,
        top=5,
        known=frozenset({"k"}),
    )
    assert seen.where is where
