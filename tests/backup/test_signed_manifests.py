"""With a signing key, only what the key signed is used: to restore, to export from, to take parts from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from archive_scene import ArchiveScene

from calve.archive import backups
from calve.archive.location import Key, Location
from calve.archive.manifest import Manifest
from calve.backup import deletion
from calve.backup.kind import reusable
from calve.model.errors import RefusedError


class Signed(ArchiveScene):
    def __init__(self, folder: Path, signing_key: str = "k3y") -> None:
        super().__init__(folder)
        self.location = Location(self.location.url, self.storage, signing_key=signing_key)

    def file(self, name: str) -> Path:
        return Path(self.location.manifest(Key(name=name, number=1)).removeprefix("file://"))


@pytest.fixture
def scene(tmp_path: Path) -> Signed:
    return Signed(tmp_path)


def test_a_signed_backup_is_read_with_its_key_and_without_any(scene: Signed, tmp_path: Path) -> None:
    made = scene.backup("b", scene.part("one"))
    assert backups.find(scene.location, "b") == made
    assert backups.find(ArchiveScene(tmp_path).location, "b") == made


def test_an_unsigned_one_is_refused_unless_it_is_accepted(tmp_path: Path) -> None:
    plain = ArchiveScene(tmp_path)
    made = plain.backup("b", plain.part("one"))
    scene = Signed(tmp_path)
    with pytest.raises(RefusedError, match="not signed") as refused:
        backups.find(scene.location, "b")
    assert refused.value.code == "backup_unsigned" and "--unsigned" in refused.value.hint
    key = Key(name="b", number=1)
    with pytest.raises(RefusedError, match="not signed"):
        backups.same(scene.location, key, made.process_id)
    assert backups.find(scene.location, "b", unsigned=True) == made
    assert backups.same(scene.location, key, made.process_id, unsigned=True) == made


def test_one_signed_with_another_key_is_refused(scene: Signed, tmp_path: Path) -> None:
    scene.backup("b", scene.part("one"))
    with pytest.raises(RefusedError, match="signed with another key"):
        backups.find(Signed(tmp_path, "other").location, "b")


@pytest.mark.parametrize("signature", [None, "", 5, [], "0" * 64])
def test_a_changed_manifest_is_refused_whatever_stands_for_its_signature(
    scene: Signed, signature: object
) -> None:
    made = scene.backup("b", scene.part("one"))
    document = json.loads(replace(made, source="evil").to_json())
    if signature is not None:
        document["hmac_sha256"] = signature
    scene.file("b").write_text(json.dumps(document))
    with pytest.raises(RefusedError):
        backups.find(scene.location, "b")


def test_a_signature_is_of_one_manifest(scene: Signed) -> None:
    made = scene.backup("b", scene.part("one"))
    signature = json.loads(scene.file("b").read_text())["hmac_sha256"]
    changed = json.loads(replace(made, source="evil").to_json()) | {"hmac_sha256": signature}
    scene.file("b").write_text(json.dumps(changed))
    with pytest.raises(RefusedError, match="another key"):
        backups.find(scene.location, "b")


def test_a_new_backup_takes_no_parts_from_an_unsigned_one(tmp_path: Path) -> None:
    plain = ArchiveScene(tmp_path)
    part = plain.part("one")
    plain.backup("forged", part)
    scene = Signed(tmp_path)
    plan = scene.plan("b", [part])
    assert reusable(scene.location, plan.location_id, plan.uploads, None) == {}
    again = plain.plan("b", [part])
    assert reusable(plain.location, again.location_id, again.uploads, None) != {}


def test_unsigned_ones_are_listed_and_deleted_like_any_other(tmp_path: Path) -> None:
    plain = ArchiveScene(tmp_path)
    plain.backup("old", plain.part("one"))
    scene = Signed(tmp_path)
    [line] = backups.listed(scene.location)
    assert isinstance(line.manifest, Manifest) and line.error is None
    assert deletion.delete(scene.location, "old").parts == 1
    assert scene.stored == set()
