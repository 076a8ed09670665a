"""T10: whatever a row of a policy, a hold, a release or a sighting holds, it is read, or is one clear error."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from test_T10_damaged_rows import WORDS

from calve.model.change import Change, NewRelease
from calve.model.errors import CalveError
from calve.model.seen import Sighting
from calve.model.states import ReleaseState
from calve.store import SqlStore, open_store
from calve.store.tables import metadata
from calve.testing.contracts import starts
from calve.testing.contracts.contract import lease_of, publishing
from calve.testing.contracts.tier import ASKED, TABLE, allow, announce, hold

TABLES = ("guards", "holds", "intents", "approvals", "policies", "releases", "starts", "sightings")
DAMAGES = ("", "{")
READS: dict[str, Callable[[SqlStore], object]] = {
    "guard": lambda store: store.guard(TABLE),
    "holds": lambda store: store.holds(every=True),
    "approvals": lambda store: store.approvals(every=True),
    "announced": lambda store: store.announced(live_seconds=60),
    "releases": lambda store: store.releases(TABLE.identity),
    "releases_in": lambda store: store.releases_in(frozenset(ReleaseState)),
    "starts": lambda store: store.starts("server/table", "lake.ns.events", ["202401"]),
    "started": lambda store: store.started("events", starts.DAY),
    "sightings": lambda store: store.sightings("health"),
    "sighting": lambda store: store.sighting("lake.ns.events", "health"),
    "body": lambda store: store.sighting_body("lake.ns.events", "health", limit=10),
    "totals": lambda store: store.totals(),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    """A row in each of the tables."""
    with open_store(f"sqlite:///{tmp_path / 'calve.db'}") as store:
        allow(store)
        row = announce(store, publishing(store))
        new = NewRelease(
            identity=TABLE.identity, partition="202401", destination="lake.ns.events", attempt=1, keys="{}"
        )
        store.apply(lease_of(row), Change(new))
        store.add_hold(hold(), ASKED)
        starts.begin(store)
        store.put_sighting(Sighting(subject="lake.ns.events", what="health", summary="{}"), ["[]"])
        yield store


def test_T10_a_damaged_row_of_a_policy_is_read_or_is_one_clear_error(store: SqlStore) -> None:
    engine = store.database.engine
    for table, column in ((name, one) for name in TABLES for one in WORDS[name]):
        damaged = metadata.tables[table]
        with engine.begin() as connection:
            kept = connection.execute(select(damaged.c[column])).scalars().first()
        assert kept is not None, f"no row in {table}"
        for text in DAMAGES:
            try:
                with engine.begin() as connection:
                    connection.execute(
                        update(damaged).values({column: text}).where(damaged.c[column] == kept)
                    )
            except IntegrityError:  # a state, or the id of a process: the database lets in no other
                continue
            for name, read in READS.items():
                try:
                    read(store)
                except CalveError as error:
                    assert error.hint, (table, column, name)
            with engine.begin() as connection:
                connection.execute(update(damaged).values({column: kept}).where(damaged.c[column] == text))
