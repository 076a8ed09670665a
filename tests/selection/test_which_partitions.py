"""What of a table is meant: ids, values, parts, ages, conditions; and what is refused before any work."""

from datetime import timedelta
from typing import Any

import pytest

from calve.clickhouse.parts.partitions import PartitionInfo
from calve.export.submit import submit_export
from calve.export.survey import Survey
from calve.model.errors import CalveError, NotFoundError, RefusedError, UsageError
from calve.model.process import ProcessQuery
from support.place import Place

EXCLUDED = {"exclude": ("wide",)}


def check(
    place: Place, table: str = "db.events", to: str = "lake.ns.events", **asked: Any
) -> Survey[PartitionInfo]:
    with place.app() as app:
        return place.check(app, table, to, **(EXCLUDED if table == "db.events" else {}) | asked)


def chosen(checked: Survey[PartitionInfo]) -> list[str]:
    return [one.id for one in checked.chosen]


def test_partitions_are_named_by_id_or_by_value(place: Place) -> None:
    assert chosen(check(place, partitions=("202402", "202401"))) == ["202402", "202401"]
    for value in ("a", "'a'", "quo'te", "/../x"):
        [one] = check(place, "db.keyless", partitions=(value,)).chosen
        assert one.value == value.strip("'")
    with pytest.raises(NotFoundError, match="202405") as caught:
        check(place, partitions=("202401", "202405"))
    assert "202401" in caught.value.hint


def test_older_than_goes_by_the_partition_s_own_time(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.recent (id UInt64, at DateTime) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
        "INSERT INTO db.recent VALUES (1, now())",
        "INSERT INTO db.recent VALUES (2, now() - INTERVAL 200 DAY)",
        "INSERT INTO db.recent VALUES (3, '2020-01-15 00:00:00')",
    )
    assert len(check(place, "db.recent", older_than=timedelta(days=90)).chosen) == 2
    assert chosen(check(place, "db.recent", older_than=timedelta(days=365))) == ["202001"]
    with pytest.raises(RefusedError, match="no date or time column"):
        check(place, "db.keyless", older_than=timedelta(hours=24))


def test_parts_are_named_and_only_they_are_sliced(place: Place) -> None:
    [name] = place.select(
        "SELECT min(name) AS name FROM system.parts WHERE active AND table = 'events' AND partition_id = '202402'"
    )
    checked = check(place, parts=(name["name"],))
    assert chosen(checked) == ["202402"]
    assert [part.name for part in checked.parts] == [name["name"]]
    assert sum(piece.end - piece.start for task in checked.tasks for piece in task) == 200
    with pytest.raises(NotFoundError, match="202402_99_99_0") as caught:
        check(place, parts=("202402_99_99_0",))
    assert "--parts" in caught.value.hint


def test_a_condition_is_part_of_the_key(place: Place) -> None:
    checked = check(place, where="id < 5 -- few")
    assert '"where": "id < 5"' in checked.request.selection
    assert check(place, where="id<5").request.selection == checked.request.selection


def test_every_reason_is_told_at_once_and_nothing_is_written(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.hopeless (id UInt64, w Int256, n DateTime64(9), s AggregateFunction(uniq, String))"
        " ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.hopeless (id) VALUES (1)",
    )
    with pytest.raises(CalveError) as caught:
        check(place, "db.hopeless", exclude=("nosuch",), casts={"id": "nonsense"})
    for words in (
        "w: Int256",
        "n: DateTime64(9)",
        "s: AggregateFunction",
        "nosuch: there is no such",
        "id: 'nonsense'",
    ):
        assert words in caught.value.message
    assert isinstance(caught.value, UsageError)
    assert not (place.folder / "lake" / "warehouse").exists()


def test_reasons_of_table_command_and_columns_come_in_one_list(place: Place) -> None:
    """Where the data forbids one of them the whole is refused (4), though the rest could be mended (2)."""
    place.execute(
        "CREATE TABLE db.mixed (id UInt64, w Int256) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.mixed VALUES (1, 2)",
    )
    usage = {"where": "id < today()", "final": True}
    with pytest.raises(UsageError) as caught:
        check(place, "db.mixed", **usage)
    for words in ("never merges rows", "today() is not allowed", "\n  w: Int256"):
        assert words in caught.value.message
    assert caught.value.message.count("cannot be exported as it is") == 1
    assert "omit --final" in caught.value.hint and "--cast w=" in caught.value.hint
    with pytest.raises(RefusedError, match="no age"):
        check(place, "db.mixed", older_than=timedelta(hours=24), **usage)


def test_every_field_of_a_partitioning_that_cannot_be_is_named(place: Place) -> None:
    with pytest.raises(UsageError) as caught:
        check(
            place,
            partition_by="day(nosuch), glacier(id), month(nor)",
        )
    for words in ("'nosuch'", "invalid partition field 'glacier(id)'", "'nor'"):
        assert words in caught.value.message


def test_casts_and_exclusions_make_a_way(place: Place) -> None:
    checked = check(place, exclude=("note",), casts={"wide": "decimal(38,0)", "id": "long"})
    assert {column.name: column.type for column in checked.target.columns} == {
        "id": "long",
        "day": "date",
        "wide": "decimal(38, 0)",
    }


def test_a_partitioning_that_spark_could_not_read_is_not_made(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.fixed (id UInt64, f FixedString(2)) ENGINE = MergeTree PARTITION BY f ORDER BY id",
        "INSERT INTO db.fixed VALUES (1, 'ab')",
    )
    checked = check(place, "db.fixed")
    assert checked.target.spec.is_unpartitioned()
    assert any("the partition key f" in note for note in checked.notes)
    with pytest.raises(UsageError, match=r"Spark cannot read .* fixed\[2\]") as caught:
        check(place, "db.fixed", partition_by="f")
    assert "bucket(16, f)" in caught.value.hint


def test_a_missing_table_is_not_made_where_that_is_not_wanted(place: Place) -> None:
    with pytest.raises(NotFoundError, match="absent") as caught:
        check(place, create=False, to="lake.ns.absent")
    assert "--no-create" in caught.value.hint


def test_thousands_of_partitions_share_processes(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.many (id UInt64) ENGINE = MergeTree PARTITION BY id ORDER BY id",
        "INSERT INTO db.many SELECT number FROM numbers(3000) SETTINGS max_partitions_per_insert_block = 0",
    )
    with place.app() as app:
        checked = place.check(app, "db.many", "lake.ns.many")
        submission = submit_export(app, app.store, checked)
        assert len(submission.processes) == 50 == app.limits.commits_per_export
        assert len({process.batch for process in submission.processes}) == 1
        exported = [one for process in submission.processes for one in process.partitions]
        assert len(exported) == len(set(exported)) == 3000
        stored = app.store.processes(ProcessQuery(batch=submission.processes[0].batch))
        assert sorted(one for process in stored for one in process.partitions) == sorted(exported)
