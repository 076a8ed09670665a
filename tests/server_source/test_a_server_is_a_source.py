import pytest
from servers import Place

from calve.clickhouse.server.source import ServerSource
from calve.testing.contracts.source import DATABASE, FILL, LiveSourceContract, SourceContract, run


def filled(place: Place, **changes: object) -> ServerSource:
    source = place.source()
    run(source, f"DROP DATABASE IF EXISTS {DATABASE}", *FILL)
    return place.source(**changes)


class TestServerReadOverHttp(LiveSourceContract):
    @pytest.fixture
    def source(self, today: Place) -> ServerSource:
        return filled(today)


class TestServerWhoseDisksAreSeen(LiveSourceContract):
    @pytest.fixture
    def source(self, today: Place) -> ServerSource:
        return filled(today, disks={"default": str(today.data)})


class TestServerWhoseUserMayOnlyRead(SourceContract):
    """Nothing is pinned, so nothing holds still: looking and reading are promised, no more."""

    @pytest.fixture
    def source(self, today: Place) -> ServerSource:
        return filled(today, user="reader")
