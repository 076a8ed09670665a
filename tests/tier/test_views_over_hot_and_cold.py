"""A view over a table and its lake: each row once, from where its partition is read."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from calve.app.doctor import views
from calve.app.policies import tier
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tier import residency, view
from calve.clickhouse.tier.residency import Resident
from calve.iceberg.health.due import expiry
from calve.iceberg.health.settings import settings_of
from calve.model.errors import CalveError, DamagedError, NotFoundError, RefusedError, UsageError
from support.local_runner import LocalRunner
from support.place import Place, kept_place

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("views"), runner) as place:
        yield place


@pytest.fixture(scope="module")
def app(kept: Place) -> Iterator[App]:
    with kept.app() as app:
        yield app


class Table:
    """A table of two exported months and one that is not, in a database of its own."""

    def __init__(self, place: Place, app: App, name: str) -> None:
        self.place, self.app, self.name = place, app, name
        self.table, self.view, self.to = f"{name}.events", f"{name}.events_all", f"lake.{name}.events"

    def make(self, **options: Any) -> dict[str, Any]:
        return tier.view_create(self.app, self.table, self.to, self.view, **options)

    def ids(self, where: str = "1") -> list[int]:
        found = self.place.select(f"SELECT id FROM {self.view} WHERE {where} ORDER BY id")
        return [row["id"] for row in found]

    def export(self, *partitions: str, **options: Any) -> None:
        self.place.export(self.table, *partitions, to=self.to, **options)


@pytest.fixture
def table(kept: Place, app: App) -> Table:
    made = Table(kept, app, f"v{next(_NUMBERS)}")
    kept.execute(
        f"CREATE DATABASE {made.name}",
        f"CREATE TABLE {made.table} (id UInt64, at DateTime('Europe/Berlin'), text LowCardinality(String)) "
        "ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
        *(
            f"INSERT INTO {made.table} SELECT {month} * 100 + number, '2024-0{month}-10 12:00:00', 'x' FROM numbers(10)"
            for month in (1, 2, 3)
        ),
    )
    made.export("202401", "202402")
    return made


ALL = [month * 100 + number for month in (1, 2, 3) for number in range(10)]


def test_a_partition_that_the_table_lost_is_read_from_the_lake(table: Table) -> None:
    made = table.make()
    assert (made["cold"], table.ids()) == ([], ALL)
    table.place.execute(f"ALTER TABLE {table.table} DROP PARTITION ID '202401'")
    assert table.ids() == ALL[10:]
    made = table.make()
    assert (made["cold"], made["added"], table.ids()) == (["202401"], ["202401"], ALL)


def test_a_partition_is_read_from_the_lake_as_asked_and_back(table: Table) -> None:
    made = table.make(cold=["202402"])
    assert (made["cold"], table.ids()) == (["202402"], ALL)
    made = table.make(hot=["202402"])
    assert (made["cold"], made["returned"], table.ids()) == ([], ["202402"], ALL)


def test_answers_are_the_same_wherever_partitions_are_read_from(table: Table) -> None:
    asked = "SELECT at, text, count() AS n, sum(id) AS ids, any(toTypeName(id)) AS kind FROM {} GROUP BY 1, 2 ORDER BY 1"
    wanted = table.place.select(asked.format(table.table))
    for cold in ([], ["202401"], ["202402"]):
        table.make(cold=cold)
        assert table.place.select(asked.format(table.view)) == wanted
        assert table.ids("at < '2024-02-15 00:00:00'") == ALL[:20]
        assert table.ids("toYYYYMM(at) = 202402 OR id = 101") == [101, *ALL[10:20]]


def test_rows_that_come_late_into_a_cold_partition_are_said_and_not_shown(table: Table) -> None:
    table.make(cold=["202401"])
    table.place.execute(f"INSERT INTO {table.table} VALUES (199, '2024-01-20 00:00:00', 'late')")
    made = table.make()
    assert (made["cold"], made["late_rows"]) == (["202401"], {"202401": 11})
    assert table.ids() == ALL


KEYS = {
    "a day of a Date": ("Date", "k", "'2024-01-31'", "'2024-02-01'"),
    "a month of a Date": ("Date32", "toStartOfMonth(k)", "'2024-01-31'", "'2024-02-01'"),
    "a month in a zone": ("DateTime", "toYYYYMM(k, 'Asia/Tokyo')", "'2024-01-31 14:59:59'", "'2024-01-31 15:00:00'"),
    "an hour that comes twice": (
        "DateTime('Europe/Berlin')",
        "toStartOfHour(k)",
        "toDateTime(1729990800 - 1)",
        "toDateTime(1729990800 + 1)",
    ),
    "a tuple": ("DateTime", "(toYYYYMM(k), id % 2)", "'2024-01-31 00:00:00'", "'2024-02-01 00:00:00'"),
    "a negative number": ("Int16", "k", "-5", "7"),
    "text": ("String", "k", "'it\\'s'", "'\\\\'"),
    "NULL": ("Nullable(String)", "k", "NULL", "''"),
    "a Bool": ("Bool", "k", "true", "false"),
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_rows_are_told_apart_by_keys_of_every_kind(kept: Place, app: App, key: str) -> None:
    """One partition from the lake, then both; and again when the table has lost one of them."""
    kind, by, first, second = KEYS[key]
    table = Table(kept, app, f"v{next(_NUMBERS)}")
    kept.execute(
        f"CREATE DATABASE {table.name}",
        f"CREATE TABLE {table.table} (id UInt64, k {kind}) ENGINE = MergeTree PARTITION BY {by} ORDER BY id "
        "SETTINGS allow_nullable_key = 1",
        f"INSERT INTO {table.table} SELECT 2 * number, {first} FROM numbers(5)",
        f"INSERT INTO {table.table} SELECT 100 + 2 * number, {second} FROM numbers(5)",
    )
    table.export(partition_by="none")
    ids = [
        row["id"]
        for row in kept.select(f"SELECT DISTINCT _partition_id AS id FROM {table.table} ORDER BY id")
    ]
    wanted = kept.select(f"SELECT id, k FROM {table.table} ORDER BY id")
    assert len(ids) == 2
    if kind.startswith("Nullable"):
        null = kept.select(f"SELECT any(_partition_id) AS id FROM {table.table} WHERE k IS NULL")[0]["id"]
        assert _refused(table, cold=[null]) == "cold_differs"
        ids.remove(null)
    for cold in ids:
        made = table.make(cold=[cold])
        assert kept.select(f"SELECT id, k FROM {table.view} ORDER BY id") == wanted, made["cold"]
    kept.execute(f"ALTER TABLE {table.table} DROP PARTITION ID '{ids[0]}'")
    tier.view_drop(app, table.table, force=True)
    assert table.make()["cold"] == ids[:1]
    assert kept.select(f"SELECT id, k FROM {table.view} ORDER BY id") == wanted


def test_names_are_names_whatever_they_hold(kept: Place, app: App) -> None:
    base, column = "d`'\\;\"--", "c`'\\ \"x"
    quoted, named = _quoted(base), _quoted(column)
    kept.execute(
        f"CREATE DATABASE {quoted}",
        f"CREATE TABLE {quoted}.{quoted} (id UInt64, {named} UInt8, h UInt8, c UInt8, e0 Array(UInt8), last UInt8) "
        f"ENGINE = MergeTree PARTITION BY {named} ORDER BY id",
        f"INSERT INTO {quoted}.{quoted} SELECT number, number % 2, 1, 2, [3], 4 FROM numbers(4)",
    )
    kept.export(f"{quoted}.{quoted}", to="lake.hostile.t", partition_by="none")
    made = tier.view_create(
        app, f"{quoted}.{quoted}", "lake.hostile.t", f"{quoted}.`v{base.replace('`', '')}`", cold=["1"]
    )
    assert tier.view_show(app, f"{quoted}.{quoted}")["view"] == made["view"]
    rows = kept.select(f"SELECT * FROM {made['view']} ORDER BY id")
    assert rows == kept.select(f"SELECT * FROM {quoted}.{quoted} ORDER BY id")
    assert tier.view_drop(app, f"{quoted}.{quoted}", force=True)["dropped"]


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


# -- what it stands on ---------------------------------------------------------------------------------


def _residency(table: Table) -> str:
    [row] = table.place.select(
        "SELECT name FROM system.tables WHERE database = 'calve_views' "
        f"AND comment LIKE '%{table.view}%' AND name LIKE '%residency'"
    )
    return f"calve_views.`{row['name']}`"


@pytest.mark.parametrize("harm", ["TRUNCATE TABLE", "DROP TABLE"])
def test_a_view_without_its_residency_answers_with_an_error_and_is_repaired(table: Table, harm: str) -> None:
    table.make(cold=["202401"])
    table.place.execute(f"ALTER TABLE {table.table} DROP PARTITION ID '202401'")
    table.place.execute(f"{harm} {_residency(table)}")
    with table.place.visit() as session:
        uuid = session.describe(table.name, "events").uuid
        residency.create(session, uuid, json.dumps({"exclude": [], "view": table.view}))  # and died
    with pytest.raises(CalveError, match="residency"):
        table.ids()
    table.make()
    assert table.ids() == ALL


def test_a_state_of_the_lake_whose_commit_was_lost_is_not_read(table: Table) -> None:
    table.make(cold=["202401"])
    lake = table.place.table(table.to)
    folder = Path(lake.metadata_location.removeprefix("file://")).parent
    text = lake.metadata.model_copy(update={"snapshots": [], "current_snapshot_id": None, "refs": {}})
    (folder / "99999-00000000-0000-0000-0000-000000000000.metadata.json").write_text(text.model_dump_json())
    assert table.ids() == ALL


def test_what_a_view_reads_is_kept_from_expiry_until_it_is_dropped(table: Table) -> None:
    table.make(cold=["202401"])
    read = table.place.table(table.to)
    [tag] = [name for name in read.refs() if name.startswith("calve-view-")]
    assert read.refs()[tag].snapshot_id == read.metadata.current_snapshot_id
    table.export("202403")
    moved = table.place.table(table.to)
    assert read.metadata.current_snapshot_id != moved.metadata.current_snapshot_id
    assert moved.refs()[tag].snapshot_id == read.metadata.current_snapshot_id  # what the view still reads
    later = moved.metadata.last_updated_ms + 4000 * 86_400_000
    past = expiry(moved.metadata, settings_of(moved.metadata.properties), now_ms=later)
    assert past.snapshot_ids
    assert read.metadata.current_snapshot_id not in past.snapshot_ids
    table.make()
    assert table.place.table(table.to).refs()[tag].snapshot_id == moved.metadata.current_snapshot_id
    tier.view_drop(table.app, table.table, force=True)
    assert tag not in table.place.table(table.to).refs()


def test_a_condition_on_time_reads_the_files_of_that_time_alone(table: Table) -> None:
    """Through the view: a check inside of the column's expression would lose this."""
    table.make(cold=["202401", "202402"])
    assert _files(table, "at >= '2024-02-01 00:00:00' AND at < '2024-03-01 00:00:00'") == 1
    assert _files(table, "1") == 2


def _files(table: Table, where: str) -> int:
    """How many files of the lake an answer reads."""
    asked = "SELECT value FROM system.events WHERE event = 'IcebergMetadataReturnedObjectInfos'"
    counts = []
    for _ in range(2):
        counts.append(sum(int(row["value"]) for row in table.place.select(asked)))
        if len(counts) < 2:
            table.place.select(f"SELECT sum(id) AS n FROM {table.view} WHERE {where}")
    return counts[1] - counts[0]


def test_doctor_says_whether_a_view_answers_and_prunes(table: Table) -> None:
    def said() -> tuple[bool, bool, str]:
        [found] = [one for one in views.views(table.app, source="main") if table.view in one.words]
        return found.ok, found.warning, found.words.partition(table.to)[2]

    table.make()
    assert said() == (True, False, " answers")
    table.make(cold=["202401", "202402"])
    assert said() == (True, False, " answers, and prunes")
    [row] = table.place.select(
        f"SELECT as_select AS text FROM system.tables WHERE database = '{table.name}' AND name = 'events_all'"
    )
    hidden = (
        row["text"]
        .replace("c.at >= ", "identity(c.at) >= ")
        .replace("CAST(toDateTime(c.at", "CAST(toDateTime(identity(c.at)")
    )
    assert hidden.count("identity") > 1
    table.place.execute(f"CREATE OR REPLACE VIEW {table.view} COMMENT 'x' AS {hidden}")
    ok, warning, words = said()
    assert (ok, warning, "cold half reads 2 of 2 files" in words) == (True, True, True), words
    table.place.execute(f"TRUNCATE TABLE {_residency(table)}")
    ok, _, words = said()
    assert (ok, "is missing" in words) == (False, True)


# -- what is refused -----------------------------------------------------------------------------------


def _refused(table: Table, **options: Any) -> str:
    with pytest.raises((RefusedError, UsageError, NotFoundError)) as refused:
        table.make(**options)
    return refused.value.code


def test_T10_a_residency_that_does_not_say_whose_it_is_is_named_and_made_again(table: Table) -> None:
    table.make()
    uuid = table.place.select(
        f"SELECT uuid FROM system.tables WHERE database = '{table.name}' AND name = 'events'"
    )
    about = residency.residency_table(uuid[0]["uuid"])
    table.place.execute(f"ALTER TABLE {about.sql} MODIFY COMMENT '{{'")
    [found] = [one for one in views.views(table.app, source="main") if str(about) in one.words]
    assert not found.ok and "calve view TABLE --to DEST --as" in found.remedy
    with pytest.raises(NotFoundError, match="has no view"):
        tier.view_show(table.app, table.table)
    table.make()
    assert [one.ok for one in views.views(table.app, source="main") if table.view in one.words] == [True]


DAMAGED = ["", "{", "[1]", '{"view": 5}', '{"view": "db.v", "to": "lake.ns.t"}', "[" * 100_000]


@pytest.mark.parametrize("comment", DAMAGED, ids=range(len(DAMAGED)))
def test_T10_what_a_residency_cannot_be_told_from_is_an_error_with_a_hint(comment: str) -> None:
    with pytest.raises(DamagedError) as refused:
        residency.about("u1", comment)
    assert refused.value.hint


def test_a_partition_that_is_not_exported_or_has_changed_stays_hot(table: Table) -> None:
    assert _refused(table, cold=["202403"]) == "not_exported"
    table.place.execute(f"INSERT INTO {table.table} VALUES (199, '2024-01-20 00:00:00', 'late')")
    assert _refused(table, cold=["202401"]) == "not_exported"


def test_a_partition_that_is_nowhere_else_stays_cold(table: Table) -> None:
    table.place.execute(f"ALTER TABLE {table.table} DROP PARTITION ID '202401'")
    table.make()
    assert _refused(table, hot=["202401"]) == "not_in_table"
    assert table.ids() == ALL


def test_rows_that_others_put_into_the_lake_are_found_before_anything_changes(kept: Place, app: App) -> None:
    table = Table(kept, app, f"v{next(_NUMBERS)}")
    kept.execute(
        f"CREATE DATABASE {table.name}",
        f"CREATE TABLE {table.table} (id UInt32, k UInt8) ENGINE = MergeTree PARTITION BY k ORDER BY id",
        f"INSERT INTO {table.table} SELECT number, number % 2 FROM numbers(10)",
    )
    table.export(partition_by="none")
    table.make(cold=["0"])
    lake = kept.table(table.to)
    lake.append(lake.scan(row_filter="k = 1", limit=2).to_arrow())
    assert _refused(table, cold=["1"]) == "cold_differs"
    assert table.make()["cold"] == ["0"]  # of which there are as many as before
    lake.append(lake.scan(row_filter="k = 0", limit=2).to_arrow())
    assert _refused(table) == "cold_differs"
    assert table.ids() == list(range(10))  # by the state from before


def test_a_table_that_shares_its_lake_with_another_has_no_view(table: Table) -> None:
    other = f"{table.name}.other"
    table.place.execute(
        f"CREATE TABLE {other} AS {table.table}", f"INSERT INTO {other} SELECT * FROM {table.table}"
    )
    table.place.export(other, "202401", to=table.to)
    assert _refused(table) == "other_identity"


def test_nothing_of_another_name_is_replaced_or_dropped(table: Table) -> None:
    table.place.execute(f"CREATE VIEW {table.view} AS SELECT 7 AS id")
    assert _refused(table) == "view_name_taken"
    assert table.ids() == [7]
    table.place.execute(f"DROP VIEW {table.view}")
    table.make()
    table.place.execute(f"DROP VIEW {table.view}", f"CREATE VIEW {table.view} AS SELECT 8 AS id")
    tier.view_drop(table.app, table.table)
    assert table.ids() == [8]


def test_a_table_has_one_view(table: Table) -> None:
    table.make()
    table.view = f"{table.name}.second"
    assert _refused(table) == "view_exists"


def test_columns_that_the_lake_lacks_are_named(table: Table) -> None:
    table.place.execute(f"ALTER TABLE {table.table} ADD COLUMN more UInt8 DEFAULT 5")
    with pytest.raises(RefusedError, match="more: the lake has no such column"):
        table.make()
    table.make(exclude=["more"], cold=["202401"])
    assert table.ids() == ALL


def test_what_a_view_cannot_be_made_of_is_refused(table: Table) -> None:
    table.place.execute(
        f"CREATE TABLE {table.name}.whole (id UInt64) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO {table.name}.whole VALUES (1)",
    )
    table.place.export(f"{table.name}.whole", to=f"lake.{table.name}.whole")
    for name, to, into, code in (
        (f"{table.name}.whole", f"lake.{table.name}.whole", table.view, "unpartitioned"),
        (table.table, f"lake.{table.name}.nothing", table.view, "no_destination"),
        (table.table, "./folder/", table.view, "destination_name"),
        (table.table, table.to, "system.v", "view_name"),
        (table.table, table.to, f"other:{table.view}", "view_name"),
    ):
        with pytest.raises(CalveError) as refused:
            tier.view_create(table.app, name, to, into)
        assert refused.value.code == code
    assert _refused(table, cold=["202401"], hot=["202401"]) == "view_partitions"


# -- showing and dropping ------------------------------------------------------------------------------


def test_a_view_is_shown_and_dropped_and_no_row_with_it(table: Table) -> None:
    with pytest.raises(NotFoundError, match="no view"):
        tier.view_show(table.app, table.table)
    table.make(cold=["202401"])
    shown = tier.view_show(table.app, table.table)
    assert (shown["view"], shown["to"], shown["same_everywhere"]) == (table.view, table.to, True)
    assert shown["cold"] == [{"id": "202401", "rows_in_table": 10, "bounded": True}]
    with pytest.raises(RefusedError) as refused:
        tier.view_drop(table.app, table.table)
    assert refused.value.code == "view_in_use"
    assert table.ids() == ALL
    tier.view_drop(table.app, table.table, force=True)
    with pytest.raises(NotFoundError):
        tier.view_drop(table.app, table.table, force=True)
    left = table.place.select(f"SELECT count() AS n FROM {table.table}")
    assert (left, table.place.read(table.to).num_rows) == ([{"n": 30}], 20)


def test_a_key_that_the_table_could_not_hold_is_an_error_where_it_is_cold_and_nothing_elsewhere(
    kept: Place, app: App
) -> None:
    """Rows that no export wrote: a DateTime has no microseconds."""
    name = f"v{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id UInt64, at DateTime('UTC')) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
    )
    catalog = app.catalog("lake")
    catalog.create_namespace(name)
    rows = {"id": [1, 2], "at": [datetime(2024, 1, 5, 0, 0, 0, 1, UTC), datetime(2024, 2, 5, tzinfo=UTC)]}
    kinds = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    lake = catalog.create_table((name, "t"), kinds)
    lake.append(pa.table(rows, kinds))
    location = lake.location().removeprefix("file://")
    with kept.visit() as session:
        table = session.describe(name, "t")
        cold = view.cold_table(table.uuid)
        metadata = lake.metadata_location.rpartition("/")[2]
        view.pin(session, table, cold, f"IcebergLocal('{location}/')", f"metadata/{metadata}")
        shown = TableName(source=None, database=name, table="v")
        text = view.compose(session, table, shown, view.columns_of(session, cold), time_column="at")
        residency.create(session, table.uuid, "{}")
        session.execute(text.create())
        asked = f"SELECT count() AS n FROM {name}.v"
        before = residency.stamped([Resident(id="202402", cold=True)], {}, "test")
        residency.put(session, table.uuid, before)
        assert session.rows(asked) == [{"n": 1}]
        residency.put(session, table.uuid, residency.stamped([Resident(id="202401", cold=True)], {}, "test"))
        with pytest.raises(CalveError, match="does not fit"):
            session.rows(asked)
        view.drop(session, table.uuid, shown)
