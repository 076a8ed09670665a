"""A backup whose manifest cannot be read: it holds up what it may need, and there is a way out."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_scene import ArchiveScene

from calve.archive import backups
from calve.archive.location import Key
from calve.archive.manifest import Manifest
from calve.backup import deletion, publish
from calve.model.errors import NotFoundError, PermanentError
from support.calve_command import Run

Damage = Callable[[Path], None]


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"rows": 7', b'"rows": 8', 1))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))


def without_tables(path: Path) -> None:
    """With a checksum that holds: it would read as an empty backup."""
    _rewrite(path, lambda manifest: manifest.pop("tables"))


def without_parts(path: Path) -> None:
    _rewrite(path, lambda manifest: manifest["tables"][0].pop("parts"))


def _rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads(path.read_text())["manifest"]
    change(manifest)
    body = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
    path.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "manifest": manifest}))


DAMAGES = [flip, cut, empty, garble, without_tables, without_parts]


@pytest.fixture
def scene(tmp_path: Path) -> ArchiveScene:
    return ArchiveScene(tmp_path)


def damage(scene: ArchiveScene, name: str, how: Damage = flip) -> None:
    how(Path(scene.location.manifest(Key(name=name, number=1)).removeprefix("file://")))
    with pytest.raises(PermanentError, match="is damaged"):
        backups.find(scene.location, name)


@pytest.mark.parametrize("how", DAMAGES)
def test_nothing_that_it_may_need_is_removed_with_another(scene: ArchiveScene, how: Damage) -> None:
    shared = scene.part("shared")
    damaged = scene.backup("damaged", shared)
    scene.backup("other", shared, scene.part("own", "all_2_2_0"))
    damage(scene, "damaged", how)
    before = scene.stored
    deleted = deletion.delete(scene.location, "other")
    assert (deleted.parts, deleted.held, deleted.held_by) == (0, 2, ("damaged",))
    assert scene.stored == before >= set(damaged.places)
    with pytest.raises(NotFoundError):
        backups.find(scene.location, "other")


def test_what_was_held_is_removed_once_the_damaged_one_is_gone(scene: ArchiveScene) -> None:
    shared = scene.part("shared")
    scene.backup("damaged", shared)
    scene.backup("other", shared, scene.part("own", "all_2_2_0"))
    kept = scene.backup("kept", scene.part("third", "all_3_3_0"))
    damage(scene, "damaged")
    deletion.delete(scene.location, "other")
    assert deletion.delete(scene.location, "damaged").damaged
    for key in deletion.unfinished(scene.location):
        deletion.sweep(scene.location, key)
    assert deletion.unfinished(scene.location) == []
    assert scene.stored == set(kept.places)


def test_a_manifest_put_back_is_whole_again(scene: ArchiveScene) -> None:
    manifest = scene.backup("b", scene.part("one"))
    path = Path(scene.location.manifest(Key(name="b", number=1)).removeprefix("file://"))
    written = path.read_bytes()
    scene.backup("other", scene.part("one"))
    damage(scene, "b")
    deletion.delete(scene.location, "other")
    path.write_bytes(written)
    assert backups.find(scene.location, "b") == manifest
    [begun] = deletion.unfinished(scene.location)
    assert (deletion.sweep(scene.location, begun).shared, deletion.unfinished(scene.location)) == (1, [])


@pytest.mark.parametrize("how", DAMAGES)
def test_it_can_be_deleted_and_hurts_no_other(scene: ArchiveScene, how: Damage) -> None:
    shared = scene.part("shared")
    scene.backup("damaged", shared, scene.part("own", "all_2_2_0"))
    kept = scene.backup("kept", shared)
    damage(scene, "damaged", how)
    deleted = deletion.delete(scene.location, "damaged")
    assert deleted.damaged and set(kept.places) <= scene.stored
    assert [one.key.name for one in backups.listed(scene.location)] == ["kept"]
    if how is flip:  # legible: what it alone needed goes with it
        assert (deleted.parts, deleted.shared, scene.stored) == (1, 1, set(kept.places))
    again = scene.backup("damaged", scene.part("anew"))
    assert again.number == 2


def test_one_of_two_damaged_ones_holds_what_the_other_named(scene: ArchiveScene) -> None:
    part = scene.part("shared")
    for name in ("one", "two"):
        scene.backup(name, part)
    for name in ("one", "two"):
        damage(scene, name)
    first = deletion.delete(scene.location, "one")
    assert (first.held, first.held_by) == (1, ("two",)) and len(scene.stored) == 1
    deletion.delete(scene.location, "two")
    for key in deletion.unfinished(scene.location):
        deletion.sweep(scene.location, key)
    assert scene.stored == set() and deletion.unfinished(scene.location) == []


def test_D9_a_part_that_a_backup_under_way_relies_on_outlives_it(scene: ArchiveScene) -> None:
    part = scene.part("shared")
    scene.backup("damaged", part)
    plan = scene.plan("new", [part])
    receipts = scene.run(plan)  # it relies on the stored part
    damage(scene, "damaged")
    assert deletion.delete(scene.location, "damaged").awaited == 1
    scene.publish(plan, receipts)
    assert set(backups.find(scene.location, "new").places) <= scene.stored


def test_undoing_a_failed_backup_waits_and_names_it(scene: ArchiveScene) -> None:
    scene.backup("damaged", scene.part("one"))
    plan = scene.plan("failed", [scene.part("two", "all_2_2_0")])
    scene.run(plan)
    damage(scene, "damaged")
    stored = scene.stored
    with pytest.raises(PermanentError, match="backup damaged cannot be read") as caught:
        publish.undo(scene.location, plan)
    assert "calve backup delete damaged" in caught.value.hint and scene.stored == stored
    deletion.delete(scene.location, "damaged")
    publish.undo(scene.location, plan)
    assert scene.stored == set()


def test_a_manifest_of_another_backup_in_its_place_costs_that_one_nothing(scene: ArchiveScene) -> None:
    mine, other = (scene.backup(name, scene.part(name)) for name in ("mine", "other"))
    paths = [
        Path(scene.location.manifest(Key(name=one.name, number=1)).removeprefix("file://"))
        for one in (mine, other)
    ]
    paths[0].write_bytes(paths[1].read_bytes())
    deleted = deletion.delete(scene.location, "mine")
    assert (deleted.damaged, deleted.parts, deleted.shared) == (True, 0, 1)
    assert set(backups.find(scene.location, "other").places) <= scene.stored
    assert isinstance(other, Manifest)


def test_a_person_sees_it_and_gets_rid_of_it(run: Run, tmp_path: Path) -> None:
    for name in ("monday", "tuesday", "wednesday"):
        assert run("backup", "create", name, "--tables", "db.*").code == 0
    cut(tmp_path / "backups" / "backups" / "tuesday@1.json")

    listed = run("backup", "list")
    assert "damaged tuesday: " in listed.out and "hint: " in listed.out and "3 backups" in listed.out
    [line] = [one for one in run("backup", "list", "--json").json if one["error"]]
    assert line["name"] == "tuesday" and "calve backup delete tuesday" in line["hint"]
    for command in ("show", "verify", "restore"):
        run("backup", command, "tuesday").is_error(1, "tuesday@1.json is damaged", "backup delete tuesday")
    run("backup", "create", "tuesday", "--tables", "db.*").is_error(1, "damaged", "backup delete tuesday")

    pruned = run("backup", "prune", "--keep-last", "1")
    assert pruned.code == 0 and "backup tuesday cannot be read" in pruned.err
    assert "deleted monday" in pruned.out and "1 shared parts kept" in pruned.out

    dropped = run("backup", "delete", "wednesday")
    assert dropped.code == 0 and "1 kept because tuesday cannot be read" in dropped.out
    held = run("backup", "prune", "--keep-last", "1")
    assert held.code == 4 and "calve backup delete tuesday" in held.err
    assert list(tmp_path.glob("backups/parts/*/*/*/0"))

    gone = run("backup", "delete", "tuesday")
    assert gone.code == 0 and "the manifest of tuesday was damaged" in gone.err
    assert run("backup", "prune", "--keep-last", "1").code == 0
    assert run("backup", "list", "--json").json == []
    assert not list(tmp_path.glob("backups/parts/*/*/*/0"))
