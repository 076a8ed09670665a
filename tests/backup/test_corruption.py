"""Whatever happens to an object, `verify` names it and a restore refuses it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_scene import ArchiveScene

from calve.archive import backups
from calve.archive.manifest import Manifest
from calve.archive.parts import fetch
from calve.backup.verification import verify
from calve.model.errors import PermanentError
from calve.restore import task
from calve.restore.task import RestorePayload

Damage = Callable[[Path, list[str]], Path]


@pytest.fixture
def scene(tmp_path: Path) -> ArchiveScene:
    return ArchiveScene(tmp_path)


@pytest.fixture
def manifest(scene: ArchiveScene) -> Manifest:
    return scene.backup(
        "b", scene.part("one"), scene.part("two", "all_2_2_0"), scene.part("six", "all_3_3_0")
    )


def delete_object(root: Path, places: list[str]) -> Path:
    victim = root / places[0] / "0"
    victim.unlink()
    return victim


def delete_index(root: Path, places: list[str]) -> Path:
    victim = root / f"{places[1]}.json"
    victim.unlink()
    return victim


def truncate(root: Path, places: list[str]) -> Path:
    victim = root / places[1] / "0"
    victim.write_bytes(victim.read_bytes()[:-1])
    return victim


def flip(root: Path, places: list[str]) -> Path:
    victim = root / places[2] / "0"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    return victim


def flip_index(root: Path, places: list[str]) -> Path:
    victim = root / f"{places[2]}.json"
    victim.write_bytes(victim.read_bytes().replace(b'"bytes":1,', b'"bytes":2,'))
    return victim


def swap(root: Path, places: list[str]) -> Path:
    """Two objects of one size, each in the other's place."""
    one, two = root / places[0] / "0", root / places[1] / "0"
    one_data, two_data = one.read_bytes(), two.read_bytes()
    assert len(one_data) == len(two_data)
    one.write_bytes(two_data)
    two.write_bytes(one_data)
    return one


def swap_indexes(root: Path, places: list[str]) -> Path:
    one, two = root / f"{places[0]}.json", root / f"{places[1]}.json"
    one_data, two_data = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_data)
    two.write_bytes(one_data)
    return one


SEEN_WITHOUT_READING = [delete_object, delete_index, truncate, flip_index, swap_indexes]


def test_a_whole_backup_verifies(scene: ArchiveScene, manifest: Manifest) -> None:
    found = verify(scene.location, manifest, read_share=1.0)
    assert found.whole
    assert (found.parts, found.objects) == (3, 6)
    assert found.read_bytes == sum(len(text) * 2000 for text in ("one", "two", "six"))
    assert verify(scene.location, manifest).read_bytes == 0


def test_a_share_of_the_data_is_read_back_and_of_little_data_at_least_some(
    scene: ArchiveScene, manifest: Manifest
) -> None:
    one = verify(scene.location, manifest, read_share=0.01).read_bytes
    assert one == len("one") * 2000
    assert verify(scene.location, manifest, read_share=0.5).read_bytes == 2 * one


@pytest.mark.parametrize("damage", [*SEEN_WITHOUT_READING, flip, swap])
def test_verify_names_the_very_object(scene: ArchiveScene, manifest: Manifest, damage: Damage) -> None:
    victim = damage(scene.folder / "backups" / "parts", list(manifest.places))
    share = 0.0 if damage in SEEN_WITHOUT_READING else 1.0
    found = verify(scene.location, manifest, read_share=share)
    assert f"file://{victim}" in [flaw.problem.object for flaw in found.flaws]
    assert len(found.flaws) == (2 if damage in (swap, swap_indexes) else 1)
    assert all(flaw.tables == ("db.t",) for flaw in found.flaws)


@pytest.mark.parametrize("damage", [*SEEN_WITHOUT_READING, flip, swap])
def test_a_restore_refuses_it_and_names_the_object(
    scene: ArchiveScene, manifest: Manifest, tmp_path: Path, damage: Damage
) -> None:
    victim = damage(scene.folder / "backups" / "parts", list(manifest.places))
    payload = RestorePayload(
        process_id="p", task=0, attempt=1, location=scene.location.url, state=str(tmp_path / "state"),
        first=0, parts=tuple(manifest.places.values()),
    )  # fmt: skip
    with pytest.raises(PermanentError, match="the backup is damaged") as caught:
        task.run(payload.to_json())
    assert str(victim) in caught.value.message
    assert "calve backup verify" in caught.value.hint
    assert not list((tmp_path / "state").glob("receipt*"))


def test_a_stale_manifest_of_another_location_is_found(
    scene: ArchiveScene, manifest: Manifest, tmp_path: Path
) -> None:
    other = ArchiveScene(tmp_path / "other")
    other.location.made_identity()
    source = scene.location.manifest(_key(manifest))
    target = other.location.manifest(_key(manifest))
    other.storage.put_if_absent(target, scene.storage.read(source))
    found = verify(other.location, backups.find(other.location, "b"))
    assert found.flaws[0].problem.object == target
    assert "another location" in found.flaws[0].problem.what
    assert len(found.flaws) == 4


def test_a_flipped_manifest_is_refused_and_shown_in_the_list(scene: ArchiveScene, manifest: Manifest) -> None:
    path = Path(scene.location.manifest(_key(manifest)).removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b'"rows": 7', b'"rows": 8', 1))
    with pytest.raises(PermanentError, match="does not match its checksum"):
        backups.find(scene.location, "b")
    [line] = backups.listed(scene.location)
    assert line.manifest is None and line.error is not None and str(path) in line.error.message


def test_a_manifest_under_another_name_is_refused(scene: ArchiveScene, manifest: Manifest) -> None:
    path = Path(scene.location.manifest(_key(manifest)).removeprefix("file://"))
    path.rename(path.with_name("other@1.json"))
    with pytest.raises(PermanentError, match="it is the manifest of b@1"):
        backups.find(scene.location, "other")


def test_an_index_never_leads_out_of_the_folder(
    scene: ArchiveScene, manifest: Manifest, tmp_path: Path
) -> None:
    import hashlib
    from dataclasses import replace

    [part, *_] = manifest.places.values()
    path = scene.folder / "backups" / "parts" / f"{part.place}.json"
    document = json.loads(path.read_bytes())
    document["files"][0]["name"] = "../../escaped"
    path.write_text(json.dumps(document))
    forged = replace(part, index_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(PermanentError, match="unsafe file"):
        fetch(scene.location, forged, tmp_path / "deep" / "part")
    assert not (tmp_path / "escaped").exists()


def _key(manifest: Manifest):  # type: ignore[no-untyped-def]
    from calve.archive.location import Key

    return Key(name=manifest.name, number=manifest.number)
