"""T9: names in a backup are data from outside. None of them leads out of a folder, to read, write or delete."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from archive_scene import ArchiveScene
from test_exporting_from_a_backup import back_up

from calve.archive import backups, parts
from calve.archive.location import Key, Location, segment
from calve.archive.manifest import Manifest, PartEntry
from calve.backup import deletion
from calve.control.ports import Runner
from calve.model.errors import PermanentError
from calve.objects.storage import Storage
from calve.restore.plan import detached_name
from support.local_runner import LocalRunner
from support.place import Place

HOSTILE = ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "a\0b", "../../../../tmp/x"]


@pytest.fixture
def scene(tmp_path: Path) -> ArchiveScene:
    return ArchiveScene(tmp_path)


def rewrite(location: Location, manifest: Manifest, part: PartEntry) -> Manifest:
    """The manifest with its one part replaced, its checksum right: what a hostile writer would put."""
    changed = replace(manifest, tables=(replace(manifest.tables[0], parts=(part,)),))
    key = Key(name=manifest.name, number=manifest.number)
    Path(location.manifest(key).removeprefix("file://")).write_text(changed.to_json())
    return changed


@pytest.mark.parametrize("name", HOSTILE)
def test_T9_a_segment_is_one_segment(name: str) -> None:
    with pytest.raises(PermanentError, match="unsafe name") as refused:
        segment(name)
    assert refused.value.code == "backup_damaged"


@pytest.mark.parametrize("name", ["all_1_1_0", "202401_1_1_0_5", "-1_2_2_0", "…"])
def test_T9_names_that_parts_have_are_segments(name: str) -> None:
    assert segment(name) == name


@pytest.mark.parametrize(
    "place", ["../../secret/0-1/" + "a" * 40, "p/0-1/../../x", "/abs", "p/0-1/" + "g" * 40]
)
def test_T9_no_place_leads_out_of_the_location(scene: ArchiveScene, place: str) -> None:
    [part] = scene.backup("b", scene.part("one")).tables[0].parts
    rewrite(scene.location, backups.find(scene.location, "b"), replace(part, place=place))
    [hostile] = backups.find(scene.location, "b").tables[0].parts
    with pytest.raises(PermanentError, match="unsafe name"):
        parts.fetch(scene.location, hostile, scene.folder / "fetched")
    assert not (scene.folder / "fetched").exists()
    before = scene.objects
    with pytest.raises(PermanentError, match="unsafe name"):
        deletion.delete(scene.location, "b")
    assert set(before) <= set(scene.objects)  # nothing but the mark is new


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "..", ""])
@pytest.mark.parametrize("inlined", [True, False])
def test_T9_no_file_of_an_index_leads_out_of_its_part(scene: ArchiveScene, name: str, inlined: bool) -> None:
    manifest = scene.backup("b", scene.part("one"))
    [part] = manifest.tables[0].parts
    path = Path(scene.location.index(part.place).removeprefix("file://"))
    index = json.loads(path.read_text())
    chosen = next(file for file in index["files"] if (file["object"] is None) == inlined)
    chosen["name"] = name
    path.write_text(json.dumps(index))
    hostile = replace(part, index_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(PermanentError, match="unsafe file"):
        parts.fetch(scene.location, hostile, scene.folder / "deep" / "er" / "part")
    assert not list(scene.folder.rglob("escaped*"))


@pytest.mark.parametrize("number", ["../../../calve-location.json", -1, 1.5, True])
def test_T9_an_object_s_number_is_a_number(number: object) -> None:
    with pytest.raises(PermanentError, match="unsafe file"):
        parts.StoredFile(name="data.bin", bytes=1, sha256="", object=number)  # type: ignore[arg-type]


def test_T9_a_part_is_never_attached_under_a_name_that_leads_elsewhere(scene: ArchiveScene) -> None:
    [part] = scene.backup("b", scene.part("one")).tables[0].parts
    assert "/" not in detached_name(part, "seed", 0)
    with pytest.raises(PermanentError, match="unsafe name"):
        detached_name(replace(part, partition_id="../../data/db/other"), "seed", 0)


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner()
    yield runner
    runner.close()


def test_T9_an_export_from_a_hostile_manifest_writes_nothing_outside_of_the_executor_s_folder(
    tmp_path: Path, runner: Runner
) -> None:
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.events SELECT number FROM numbers(10)",
    )
    back_up(place, "b")
    location = Location(f"file://{place.folder}/backups", Storage())
    manifest = backups.find(location, "b")
    [part] = manifest.tables[0].parts
    outside = tmp_path / "outside"
    rewrite(location, manifest, replace(part, name=f"../../../../../../../..{outside}"))
    [failed] = place.export("db.events", from_backup="b")
    assert failed.error is not None and failed.error.code == "backup_damaged", failed.error
    assert not outside.exists()
    assert place.read().num_rows == 0


@pytest.mark.parametrize("drop", ["process_id", "created_at", "location_id"])
def test_T10_a_manifest_that_lacks_something_is_damaged_and_no_defect(scene: ArchiveScene, drop: str) -> None:
    scene.backup("b", scene.part("one"))
    path = Path(scene.location.manifest(Key(name="b", number=1)).removeprefix("file://"))
    body = json.loads(path.read_text())["manifest"]
    del body[drop]
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    path.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "manifest": body}))
    with pytest.raises(PermanentError, match="does not read as a manifest") as refused:
        backups.find(scene.location, "b")
    assert refused.value.code == "backup_damaged"
