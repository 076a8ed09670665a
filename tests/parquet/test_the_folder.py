"""What a folder of plain Parquet looks like to people and readers."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from plain_place import PlainPlace, commits_in, globbed, listed, rows_of

from calve.app.destination import parse_destination
from calve.app.partitions import Exported, list_partitions
from calve.app.processes import details
from calve.app.proof import prove
from calve.app.view import detail_json
from calve.model.errors import PermanentError, RefusedError, UsageError
from calve.model.states import ProcessState

NASTY = ("/../../x", "a b?\n%", "", ".", "..", "é" * 150, "=", "null")


def test_D10_no_value_chooses_a_path_outside_its_folder(place: PlainPlace, out: Path) -> None:
    values = ", ".join(f"({n}, {_literal(value)})" for n, value in enumerate(NASTY))
    place.execute(
        "CREATE TABLE db.nasty (id UInt64, k Nullable(String)) ENGINE = MergeTree PARTITION BY tuple() ORDER BY id",
        f"INSERT INTO db.nasty VALUES {values}, (99, NULL)",
    )
    [process] = place.export("db.nasty", to=place.to(out), partition_by="k")
    assert process.rows == len(NASTY) + 1
    files = globbed(out)
    assert len(files) == len(NASTY) + 1
    assert all(file.parent.parent == out and file.parent.name.startswith("k=") for file in files)
    assert {file.parent.name for file in files} >= {
        "k=__HIVE_DEFAULT_PARTITION__",
        "k=%2F..%2F..%2Fx",
        "k=..",
    }
    found = rows_of(listed(out)).to_pylist()
    assert {row["id"]: row["k"] for row in found} == {**dict(enumerate(NASTY)), 99: None}


def test_readers_of_hive_folders_prune_by_partition(place: PlainPlace, out: Path) -> None:
    place.export("db.events", to=place.to(out))
    # Given, not inferred: Arrow would take the smallest type that the folders' names fit.
    hive = ds.partitioning(pa.schema([("month", pa.int64())]), flavor="hive")
    dataset = ds.dataset(out, format="parquet", partitioning=hive)
    assert dataset.to_table(filter=ds.field("month") == 2).column("id").to_pylist() == list(range(50, 100))
    assert len(list(dataset.get_fragments(filter=ds.field("month") == 2))) == 1


def test_each_partition_is_a_process_however_many_there_are(place: PlainPlace, out: Path) -> None:
    """One put is a whole publish, so several keys never share one."""
    few = PlainPlace.__new__(PlainPlace)
    few.__dict__.update(place.__dict__)
    few.settings = place.settings | {"CALVE_LIMITS__COMMITS_PER_EXPORT": "1"}
    processes = few.export("db.events", to=place.to(out))
    assert len(processes) == len(commits_in(out)) == 2


def test_the_first_export_decides_the_schema(place: PlainPlace, out: Path) -> None:
    place.one(out)
    schema = json.loads((out / "_calve" / "schema.json").read_text())
    names = [field["name"] for field in schema["table"]["schemas"][0]["fields"]]
    assert names == ["id", "month", "note"]
    place.execute(
        "CREATE TABLE IF NOT EXISTS db.other (id String, month UInt32) ENGINE = MergeTree"
        " PARTITION BY month ORDER BY id",
        "INSERT INTO db.other VALUES ('x', 1)",
    )
    with pytest.raises(UsageError, match="the table's column id is decimal"):
        place.export("db.other", to=place.to(out))
    assert json.loads((out / "_calve" / "schema.json").read_text()) == schema


def test_an_export_is_proven_and_a_changed_file_is_found(place: PlainPlace, out: Path) -> None:
    process = place.one(out)
    with place.app() as app:
        assert prove(app, process.id).ok
        [file] = listed(out)
        file.write_bytes(file.read_bytes() + b"x")
        with pytest.raises(PermanentError) as told:
            prove(app, process.id)
        assert told.value.code == "files_missing"


def test_columns_that_a_folder_lacks_are_refused_before_anything_is_queued(
    place: PlainPlace, out: Path
) -> None:
    place.execute(
        "CREATE TABLE db.grows (id UInt64, month UInt32) ENGINE = MergeTree PARTITION BY month ORDER BY id",
        "INSERT INTO db.grows VALUES (1, 1)",
    )
    place.export("db.grows", "1", to=place.to(out))
    place.execute("ALTER TABLE db.grows ADD COLUMN more String", "INSERT INTO db.grows VALUES (2, 2, 'x')")
    with pytest.raises(RefusedError) as told:
        place.export("db.grows", "2", to=place.to(out), evolve=True)
    assert told.value.code == "evolve"
    [process] = place.export("db.grows", "2", to=place.to(out), exclude=("more",))
    assert process.rows == 1


def test_what_was_replaced_is_not_proven_but_named(place: PlainPlace, out: Path) -> None:
    first = place.one(out)
    second = place.one(out, force=True)
    with place.app() as app:
        with pytest.raises(RefusedError) as told:
            prove(app, first.id)
        assert told.value.hint == f"calve verify {second.id}"
        assert prove(app, second.id).ok


def test_partitions_say_what_the_folder_has(place: PlainPlace, out: Path) -> None:
    place.one(out)
    with place.app() as app:
        found = {one.partition.id: one.exported for one in list_partitions(app, "db.events", place.to(out))}
    assert found == {"1": Exported.UNCHANGED, "2": Exported.NO}


def test_T11_files_deleted_by_hand_are_said_and_the_hint_s_command_puts_them_back(
    place: PlainPlace, out: Path
) -> None:
    place.execute(
        "CREATE TABLE db.gone (id UInt64, month UInt32) ENGINE = MergeTree PARTITION BY month ORDER BY id",
        "INSERT INTO db.gone SELECT number, 1 FROM numbers(5)",
    )
    place.export("db.gone", "1", to=place.to(out))
    for file in globbed(out):
        file.unlink()
    # Fewer rows than were exported, but none of those is left to lose.
    place.execute("ALTER TABLE db.gone DELETE WHERE id = 1 SETTINGS mutations_sync = 2")
    with place.app() as app:
        [listing] = list_partitions(app, "db.gone", place.to(out))
        checked = place.check(app, "db.gone", place.to(out))
    assert listing.exported is Exported.MISSING
    [gone] = checked.changed
    refusal = gone.refusal(checked.request)
    assert (refusal.code, refusal.hint) == ("no_longer_there", "--force puts it back, once")
    [again] = place.export("db.gone", "1", to=place.to(out), force=True)
    assert again.state is ProcessState.COMPLETED, again.error
    assert sorted(rows_of(listed(out))["id"].to_pylist()) == [0, 2, 3, 4]
    assert place.export("db.gone", "1", to=place.to(out)) == []


def test_show_lists_the_files_for_readers(place: PlainPlace, out: Path) -> None:
    process = place.one(out)
    with place.app() as app:
        document = detail_json(details(app, [process.id])[0])
    assert [Path(file["path"].removeprefix("file://")) for file in document["files_for_readers"]] == listed(
        out
    )


@pytest.mark.parametrize("text", ["s3:///no-bucket", "ftp://bucket/x", "s3://bucket/../x", "./a?b/"])
def test_what_is_no_place_is_told_at_once(place: PlainPlace, text: str) -> None:
    with place.app() as app, pytest.raises(UsageError) as told:
        parse_destination(text, app.config)
    assert told.value.exit_code == 2


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
