"""`calve untier` over a real source, store and lake: rows come back as they were, once, and nothing else is moved by it."""

import itertools
from collections.abc import Iterator

import pytest

from calve.app.partitions import Exported, list_partitions
from calve.app.policies.holds import hold_list
from calve.app.policies.tier import view_create, view_show
from calve.app.policies.untier import untier
from calve.app.wiring import App
from calve.iceberg.publish.marks import released_exports
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.model.errors import NotFoundError, RefusedError, UsageError
from calve.model.process import Process
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place, kept_place

_NUMBERS = itertools.count(1)
# Each type that comes back exactly, with values at its edges.
COLUMNS = (
    "id UInt64, day Date, at DateTime64(3, 'Europe/Berlin'), seen DateTime, price Decimal(18, 4), wide UInt64, who UUID,"
    " ip IPv4, six IPv6, kind Enum8('a' = 1, 'b' = -2), tags Array(LowCardinality(String)), pairs Map(String, Nullable(Int32)),"
    " place Tuple(x Float64, y Nullable(String)), flag Bool, bytes String, fixed FixedString(4), half Float32,"
    " made UInt64 MATERIALIZED id * 2, n Nested(k String, v Int64)"
)
ROW = (
    "number, toDate('2024-01-01') + number % 31, toDateTime64('2024-01-31 23:59:59.999', 3, 'Europe/Berlin') - number,"
    " toDateTime('2024-01-10 00:00:00', 'UTC') + number, toDecimal64(number, 4) / 7, 18446744073709551615 - number, generateUUIDv4(),"
    " toIPv4('10.0.0.1'), toIPv6('::1'), if(number % 2, 'a', 'b'), [toString(number), ''], map('k', if(number % 3, number, NULL)),"
    " tuple(number / 3, if(number % 5, 'y', NULL)), number % 2, concat('ü', toString(number)), 'ab', number / 3,"
    " ['k'], [number]"
)
NAMES = "id, day, at, seen, price, wide, who, ip, six, kind, tags, pairs, place, flag, bytes, fixed, half, n.k, n.v"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("untier"), runner) as place:
        yield place


@pytest.fixture
def app(kept: Place) -> Iterator[App]:
    with kept.app() as app:
        yield app


@pytest.fixture
def db(kept: Place) -> str:
    """A database of the test's own. Partition 202401 of its table is exported and dropped, 202402 is both here and there."""
    made = f"d{next(_NUMBERS)}"
    _make(kept, made, "id UInt64, day Date, name String", "number, toDate('2024-01-10'), toString(number)")
    return made


def _make(
    place: Place, db: str, columns: str, row: str, names: str = "", *, rows: int = 100, by: str = ""
) -> None:
    into = f" ({names})" if names else ""
    place.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.events ({columns}) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO {db}.events{into} SELECT {row} FROM numbers({rows})",
        f"INSERT INTO {db}.events (id, day) VALUES (1000, '2024-02-10')",
    )
    for month in ("202401", "202402"):
        place.export(f"{db}.events", month, to=f"lake.{db}.events", partition_by=by)
    place.execute(f"CREATE TABLE {db}.before ENGINE = Memory AS SELECT * FROM {db}.events")
    place.execute(f"ALTER TABLE {db}.events DROP PARTITION ID '202401'")


@pytest.fixture
def plain(kept: Place) -> str:
    """The same, in a lake table that PyIceberg can write to: by `name`."""
    made = f"d{next(_NUMBERS)}"
    row = "number, toDate('2024-01-10'), 'a'"
    _make(kept, made, "id UInt64, day Date, name String", row, by="name")
    return made


def _untier(place: Place, app: App, db: str, partition: str = "202401") -> Process:
    made = untier(app, app.store, f"{db}.events", partition)
    [process] = place.finish(app, [one.id for one in made.processes])
    return process


def _refusal(place: Place, app: App, db: str) -> str:
    """What the source itself says is refused before there is a process."""
    try:
        process = _untier(place, app, db)
    except RefusedError as error:
        assert app.store.live(10) == []
        return f"at once: {error.code}"
    assert (process.state, process.error is None) == (ProcessState.FAILED, False)
    return process.error.code if process.error else ""


def _scratches(place: Place) -> list[str]:
    found = place.select("SELECT name FROM system.tables WHERE database IN ('calve_untier', 'calve_views')")
    return [
        row["name"] for row in found if "residency" not in row["name"] and not row["name"].endswith("_cold")
    ]


def _count(place: Place, db: str) -> int:
    return int(place.select(f"SELECT count() AS n FROM {db}.events")[0]["n"])


def test_a_partition_that_was_dropped_by_hand_comes_back_as_it_was(kept: Place, app: App, db: str) -> None:
    process = _untier(kept, app, db)
    assert (process.state, process.rows) == (ProcessState.COMPLETED, 100), process.error
    differing = kept.select(
        f"SELECT count() AS n FROM (SELECT * FROM {db}.events EXCEPT SELECT * FROM {db}.before) AS x"
    )
    assert (_count(kept, db), differing) == (101, [{"n": 0}])
    assert _scratches(kept) == []
    [hold] = [one for one in hold_list(app) if one["name"] == f"main:{db}.events"]
    assert (hold["id"], hold["partition"], hold["standing"]) == (f"hold-{process.id}", "202401", True)


def test_a_partition_is_named_by_its_value_though_the_table_has_it_no_longer(kept: Place, app: App) -> None:
    db = f"d{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.events (id UInt64, day Date, name String) ENGINE = MergeTree"
        " PARTITION BY (toMonday(day), name) ORDER BY id",
        f"INSERT INTO {db}.events SELECT number, '2024-01-10', if(number < 100, 'it''s', 'b') FROM numbers(110)",
    )
    value = "('2024-01-08','it\\'s')"
    kept.export(f"{db}.events", value, to=f"lake.{db}.events")
    kept.execute(f"ALTER TABLE {db}.events DROP PARTITION {value}")
    process = _untier(kept, app, db, value)
    assert (process.state, process.rows) == (ProcessState.COMPLETED, 100), process.error
    assert _count(kept, db) == 110
    with pytest.raises(NotFoundError):
        untier(app, app.store, f"{db}.events", "('2024-01-08','c')")


def test_what_came_back_counts_as_exported_and_what_comes_after_it_as_new(
    kept: Place, app: App, db: str
) -> None:
    _untier(kept, app, db)
    to = f"lake.{db}.events"
    stands = {one.partition.id: one.exported for one in list_partitions(app, f"{db}.events", to)}
    assert stands == {"202401": Exported.UNCHANGED, "202402": Exported.UNCHANGED}
    kept.execute(f"INSERT INTO {db}.events VALUES (5000, '2024-01-11', 'late')")
    [more] = kept.export(f"{db}.events", "202401", to=to, new_parts=True)
    assert (more.state, more.rows) == (ProcessState.COMPLETED, 1)
    assert kept.read(to).num_rows == 102


def test_every_type_comes_back_exactly_or_is_refused(kept: Place, app: App) -> None:
    db = f"d{next(_NUMBERS)}"
    _make(kept, db, COLUMNS, ROW, NAMES)
    process = _untier(kept, app, db)
    assert process.state is ProcessState.COMPLETED, process.error
    rows = [kept.select(f"SELECT {NAMES} FROM {db}.{table} ORDER BY id") for table in ("events", "before")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 101
    assert kept.select(f"SELECT count() AS n FROM {db}.events WHERE made = id * 2") == [{"n": 101}]


def test_no_materialized_view_sees_the_rows(kept: Place, app: App, db: str) -> None:
    kept.execute(
        f"CREATE TABLE {db}.seen (id UInt64) ENGINE = MergeTree ORDER BY id",
        f"CREATE MATERIALIZED VIEW {db}.mv TO {db}.seen AS SELECT id FROM {db}.events",
    )
    assert _untier(kept, app, db).state is ProcessState.COMPLETED
    assert kept.select(f"SELECT count() AS n FROM {db}.seen") == [{"n": 0}]


def test_a_view_reads_the_table_again_and_each_row_once(kept: Place, app: App, db: str) -> None:
    view_create(app, f"{db}.events", f"lake.{db}.events", f"{db}.every")
    assert view_show(app, f"{db}.events")["cold"][0]["id"] == "202401"
    assert kept.select(f"SELECT count() AS n FROM {db}.every") == [{"n": 101}]
    assert _untier(kept, app, db).state is ProcessState.COMPLETED
    assert view_show(app, f"{db}.events")["cold"] == []
    assert kept.select(f"SELECT count() AS n, uniqExact(id) AS u FROM {db}.every") == [{"n": 101, "u": 101}]


def test_a_released_key_is_an_ordinary_one_again(kept: Place, app: App, db: str) -> None:
    table = app.catalog("lake").load_table((db, "events"))
    [key] = [
        name.removeprefix("calve.export.")
        for name, text in table.properties.items()
        if name.startswith("calve.export.") and '"202401"' in text
    ]
    mark = ReleaseMark(
        process="r1", store="s", attempt=1, rows=100, sums="", place="", input=("", "202401", "")
    )
    lake = ReleasedTable(
        catalog=app.catalog("lake"), identifier=(db, "events"), uuid=str(table.metadata.table_uuid)
    )
    lake.mark("r1", {key: mark}, str(table.metadata.current_snapshot_id))
    assert _untier(kept, app, db).state is ProcessState.COMPLETED
    metadata = app.catalog("lake").load_table((db, "events")).metadata
    assert list(released_exports(metadata)) == []
    assert "calve-released" not in metadata.refs
    stands = {
        one.partition.id: one.exported for one in list_partitions(app, f"{db}.events", f"lake.{db}.events")
    }
    assert stands["202401"] is Exported.UNCHANGED


def test_after_a_compaction_in_the_lake_the_rows_come_back_too(kept: Place, app: App, plain: str) -> None:
    table = app.catalog("lake").load_table((plain, "events"))
    table.overwrite(table.scan().to_arrow())
    process = _untier(kept, app, plain)
    assert (process.state, process.rows) == (ProcessState.COMPLETED, 100), process.error


REFUSED = (
    (
        "INSERT INTO {t} VALUES (7, '2024-01-10', 'late')",
        "at once: not_empty",
        "ALTER TABLE {t} DROP PARTITION ID '202401'",
    ),
    ("ALTER TABLE {t} MODIFY TTL day + INTERVAL 90 YEAR", "at once: ttl", "ALTER TABLE {t} REMOVE TTL"),
    ("ALTER TABLE {t} ADD COLUMN more UInt8", "not_by_value", "ALTER TABLE {t} DROP COLUMN more"),
    ("ALTER TABLE {t} DROP COLUMN name", "not_by_value", "ALTER TABLE {t} ADD COLUMN name String"),
)


def test_what_could_not_be_right_is_refused_by_name(kept: Place, app: App, db: str) -> None:
    for before, code, after in REFUSED:
        kept.execute(before.format(t=f"{db}.events"))
        assert _refusal(kept, app, db) == code
        kept.execute(after.format(t=f"{db}.events"))
        assert (_count(kept, db), _scratches(kept)) == (1, [])
    assert [one for one in hold_list(app) if one["name"] == f"main:{db}.events"] == []
    assert _untier(kept, app, db).state is ProcessState.COMPLETED


def test_an_engine_that_combines_rows_takes_none_back(kept: Place, app: App) -> None:
    db = f"d{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.events (id UInt64, day Date) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO {db}.events VALUES (1, '2024-01-10')",
    )
    kept.export(f"{db}.events", to=f"lake.{db}.events")
    kept.execute(f"ALTER TABLE {db}.events DROP PARTITION ID '202401'")
    assert _refusal(kept, app, db) == "at once: engine"


def test_rows_that_were_deleted_or_added_in_the_lake_are_not_ours(kept: Place, app: App, plain: str) -> None:
    for change in ("deleted", "added"):
        table = app.catalog("lake").load_table((plain, "events"))
        rows = table.scan("day < '2024-02-01'").to_arrow()
        if change == "deleted":
            table.delete("id = 3")
        else:
            table.append(rows.slice(0, 2))
        process = _untier(kept, app, plain)
        assert process.error is not None
        assert process.error.code == "lake_differs"
    assert _count(kept, plain) == 1


def test_which_lake_table_is_meant_is_found_or_asked_for(kept: Place, app: App, db: str) -> None:
    with pytest.raises(NotFoundError) as unknown:
        untier(app, app.store, f"{db}.events", "209901")
    assert unknown.value.code == "not_exported"
    kept.export(f"{db}.events", "202402", to=f"lake.{db}.other")
    kept.execute(f"ALTER TABLE {db}.events DROP PARTITION ID '202402'")
    with pytest.raises(UsageError) as several:
        untier(app, app.store, f"{db}.events", "202402")
    assert "--from" in several.value.hint
    made = untier(app, app.store, f"{db}.events", "202402", f"lake.{db}.events")
    again = untier(app, app.store, f"{db}.events", "202402", f"lake.{db}.events")
    assert [one.id for one in again.processes] == [one.id for one in made.processes]
    kept.finish(app, [one.id for one in made.processes])
