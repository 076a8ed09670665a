"""With a key, what is stored says nothing without it, and everything works with it."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_scene import ArchiveScene
from backup_place import TABLES, BackupPlace

from calve.app.backups import requests as application
from calve.app.backups.requests import delete_backup, prune
from calve.archive.location import Location, address_of
from calve.archive.parts import pools, store
from calve.archive.vault import KeyMissingError, Vault, properties
from calve.backup.deletion import Keep
from calve.model.errors import DamagedError, PermanentError, RefusedError, UsageError
from calve.objects.storage import Storage
from support.calve_command import Run

KEY, NEW = secrets.token_hex(32), secrets.token_hex(32)
ENCRYPTED = {"CALVE_BACKUP__ENCRYPTION_KEY": KEY}
COMPRESSED = {"CALVE_BACKUP__COMPRESSION": "zstd"}
BOTH = ENCRYPTED | COMPRESSED


class Vaulted(BackupPlace):
    def use(self, *keys: str) -> None:
        """The keys from now on."""
        self.settings["CALVE_BACKUP__ENCRYPTION_KEY"] = "\n".join(keys)

    @property
    def objects(self) -> list[Path]:
        return [path for path in self.backups.rglob("*") if path.is_file()]

    def stored(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.objects)


@pytest.fixture(params=[ENCRYPTED, COMPRESSED, BOTH], ids=["encrypted", "compressed", "both"])
def sealed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Vaulted]:
    place = Vaulted(tmp_path, **request.param)
    place.execute(*TABLES)
    yield place
    place.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Vaulted]:
    place = Vaulted(tmp_path, **ENCRYPTED)
    place.execute(*TABLES)
    yield place
    place.close()


def test_a_round_trip(sealed: Vaulted) -> None:
    sealed.create("b")
    assert sealed.verify("b", read_share=1.0).whole
    sealed.restore("b", into="r")
    assert sealed.checksum("r.events", "r.users") == sealed.checksum("db.events", "db.users")


def test_equal_parts_are_still_stored_once_and_shared(sealed: Vaulted) -> None:
    first = sealed.create("a")
    before = len(sealed.objects)
    second = sealed.create("b")
    assert second.moved_bytes == 0 and second.places.keys() == first.places.keys()
    assert len(sealed.objects) == before + 1
    with sealed.app() as app:
        assert delete_backup(app, "a").shared == len(first.places)
    assert sealed.verify("b", read_share=1.0).whole
    with sealed.app() as app:
        delete_backup(app, "b")
    assert [path.name for path in sealed.objects if "parts" in path.parts] == []


def test_compressed_files_take_less(tmp_path: Path) -> None:
    place = Vaulted(tmp_path, **COMPRESSED)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (s String CODEC(NONE)) ENGINE = MergeTree ORDER BY tuple()",
        "INSERT INTO db.t SELECT repeat('abc', 100) FROM numbers(10000)",
    )
    made = place.create("b")
    assert len(place.stored()) < made.bytes / 10
    place.close()


def test_nothing_that_is_stored_can_be_read_without_the_key(place: Vaulted) -> None:
    made = place.create("b")
    stored = place.stored()
    for word in (b"db.events", b"events", b"user 1", b"MergeTree", b"CREATE", b"id", KEY.encode()):
        # two random bytes may well be there by chance
        assert word not in stored or len(word) < 4, word
    place.use()
    plain = {part.address for part in place.create("plain").places.values()}
    named = {part.address for part in made.places.values()}
    assert not plain & named, "the name of a part says nothing of its content"


def test_the_key_is_in_no_row_of_the_store_and_in_no_plan(place: Vaulted) -> None:
    process = place.try_create("b")
    restored = place.restore("b", into="r")
    with place.app() as app:
        for one in (process, restored):
            assert KEY not in f"{one}{app.store.plan(one.id)}{app.store.tasks(one.id)}"
        assert "MergeTree" not in app.store.plan(process.id), "the manifest in the plan is encrypted too"
    assert KEY.encode() not in (place.folder / "calve.db").read_bytes()
    assert all(KEY in order.payload and KEY not in repr(order) for order in place.runner.orders)


def test_without_the_key_the_error_names_it_and_nothing_is_lost(place: Vaulted) -> None:
    place.create("b")
    before = {path: path.read_bytes() for path in place.objects}
    for keys in ((), (NEW,)):
        place.use(*keys)
        with place.app() as app:
            [listed] = application.entries(app)
            assert listed.manifest is None and "encrypted with key" in listed.error
            for use in (
                lambda app: application.verify(app, "b"),
                lambda app: application.restore(app, app.store, "b"),
                lambda app: delete_backup(app, "b"),
                lambda app: place.submit_create(app, "b"),
            ):
                with pytest.raises(KeyMissingError, match="backup b is encrypted with key") as missing:
                    use(app)
                assert missing.value.code == "backup_key_missing" and missing.value.exit_code == 4
            assert prune(app, Keep(last=1), dry_run=False).unreadable == ("b",)
    assert {path: path.read_bytes() for path in place.objects} == before
    place.use(KEY)
    assert place.verify("b", read_share=1.0).whole


def test_other_backups_are_made_and_deleted_beside_one_whose_key_is_missing(place: Vaulted) -> None:
    place.create("old")
    place.use(NEW)
    made = place.create("new")
    assert made.moved_bytes == made.bytes, "nothing is shared between keys"
    with place.app() as app:
        assert delete_backup(app, "new").held == len(made.places), "old may need any part, as far as is known"
    place.use(NEW, KEY)
    with place.app() as app:
        prune(app, Keep(last=5), dry_run=False)
    assert place.verify("old", read_share=1.0).whole
    assert not any(part.place in str(path) for part in made.places.values() for path in place.objects)


def test_keys_rotate(place: Vaulted) -> None:
    place.create("old")
    place.use(NEW, KEY)
    place.create("new")
    for name in ("old", "new"):
        assert place.verify(name, read_share=1.0).whole
        place.restore(name, into=f"r_{name}")
    with place.app() as app:
        delete_backup(app, "old")
    place.use(NEW)
    assert place.verify("new", read_share=1.0).whole


def test_plain_backups_stay_readable_and_share_nothing_with_encrypted_ones(place: Vaulted) -> None:
    place.use()
    plain = place.create("plain")
    place.use(KEY)
    made = place.create("sealed")
    assert made.moved_bytes == made.bytes
    assert not plain.places.keys() & made.places.keys()
    for name in ("plain", "sealed"):
        assert place.verify(name, read_share=1.0).whole
        place.restore(name, into=f"r_{name}")


def test_compressed_and_plain_backups_share_their_parts(place: Vaulted) -> None:
    place.use()
    place.create("plain")
    place.settings |= COMPRESSED
    assert place.create("small").moved_bytes == 0
    assert place.verify("small", read_share=1.0).whole


def test_a_key_that_changes_under_way_is_named(tmp_path: Path) -> None:
    scene = ArchiveScene(tmp_path)
    part = scene.part("one")
    plain = address_of(part)
    keyed = Vault.of(properties(keys=KEY, compression="", level=3)).address(plain)
    rotated = Location(scene.location.url, Storage(properties(keys=f"{NEW} {KEY}", compression="", level=3)))
    for planned in (plain, keyed):
        with (
            pools() as (_, files),
            pytest.raises(PermanentError, match="encryption_key was changed") as changed,
        ):
            store(rotated, part, planned, "p1/0-1", files)
        assert changed.value.code == "backup_key_changed"
    with pools() as (_, files), pytest.raises(PermanentError, match="not the one that was planned"):
        store(rotated, part, "0" * 40, "p1/0-2", files)


# ---- damage and forgery


def files_of(place: Vaulted) -> list[Path]:
    return sorted(path for path in place.objects if path.parent.name != "backups" and "parts" in path.parts)


def test_damaged_bytes_are_named(sealed: Vaulted) -> None:
    sealed.create("b")
    for victim in files_of(sealed):
        whole = victim.read_bytes()
        for at in (0, 9, 20, len(whole) // 2, len(whole) - 1):
            victim.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            found = sealed.verify("b", read_share=1.0)
            assert [flaw.problem.object for flaw in found.flaws] == [f"file://{victim}"], at
        victim.write_bytes(whole)
    assert sealed.verify("b", read_share=1.0).whole


def test_objects_that_changed_places_are_found(place: Vaulted) -> None:
    place.execute(
        "CREATE TABLE db.same (id UInt64 CODEC(NONE)) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
        "INSERT INTO db.same SELECT number FROM numbers(4000)",
    )
    place.create("b", "db.same")
    by_size: dict[int, list[Path]] = {}
    for path in files_of(place):
        by_size.setdefault(path.stat().st_size * (path.suffix != ".json"), []).append(path)
    first, second = by_size[max(by_size)]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    assert {flaw.problem.object for flaw in place.verify("b", read_share=1.0).flaws} == {
        f"file://{first}",
        f"file://{second}",
    }
    with place.app() as app:
        [failed] = place.finish(app, [place.submit_restore(app, "b", into="r").id])
    assert failed.error is not None and failed.error.code == "backup_damaged"


def test_a_manifest_is_of_one_name_and_one_use_of_it(place: Vaulted) -> None:
    place.create("a")
    place.create("b")
    folder = place.backups / "backups"
    kept = (folder / "b@1.json").read_bytes()
    (folder / "b@1.json").write_bytes((folder / "a@1.json").read_bytes())
    with pytest.raises(DamagedError, match=r"b@1.json is damaged: its content does not match its seal"):
        place.manifest("b")
    (folder / "b@1.json").write_bytes(kept[: len(kept) // 2])
    with pytest.raises(DamagedError, match="does not read as an encrypted manifest"):
        place.manifest("b")
    (folder / "b@1.json").write_bytes(kept)
    place.manifest("b")


def test_a_manifest_is_signed_inside_of_its_seal(tmp_path: Path) -> None:
    place = Vaulted(tmp_path, **ENCRYPTED, CALVE_BACKUP__SIGNING_KEY="k3y")
    place.execute(*TABLES)
    place.create("b")
    assert "hmac_sha256" not in (place.backups / "backups" / "b@1.json").read_text()
    place.restore("b", into="r")
    place.settings["CALVE_BACKUP__SIGNING_KEY"] = "another"
    with pytest.raises(RefusedError, match="signed with another key"):
        place.manifest("b")
    place.close()


def test_with_a_signing_key_a_plain_manifest_in_place_of_an_encrypted_one_is_refused(tmp_path: Path) -> None:
    place = Vaulted(tmp_path, **ENCRYPTED, CALVE_BACKUP__SIGNING_KEY="k3y")
    place.execute(*TABLES)
    made = place.create("b")
    (place.backups / "backups" / "b@1.json").write_text(made.to_json())
    with pytest.raises(RefusedError, match="not signed"):
        place.manifest("b")
    place.close()


# ---- the configuration


def test_hard_links_cannot_be_sealed(sealed: Vaulted) -> None:
    sealed.settings["CALVE_BACKUP__HARD_LINKS"] = "true"
    with sealed.app() as app, pytest.raises(UsageError, match="hard links keep files as they are"):
        sealed.submit_create(app, "b")


def test_people_give_the_key_in_a_file_and_never_see_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n{NEW}\n")
    (tmp_path / "calve.toml").open("a").write(
        '[backup]\nencryption_key_file = "keys"\ncompression = "zstd"\n'
    )
    shown = run("config").out
    assert KEY not in shown and NEW not in shown and "encryption_key" in shown
    run("backup", "create", "b", "--tables", "db.*")
    assert json.loads((tmp_path / "backups" / "backups" / "b@1.json").read_text())["calve_encrypted"] == 1
    assert run("backup", "verify", "b", "--read-data", "100%").code == 0
    (tmp_path / "keys").write_text(NEW)
    found = run("backup", "restore", "b", "--as", "r")
    assert found.code == 4 and "encrypted with key" in found.err and "encryption_key_file" in found.err
    listed = run("backup", "list")
    assert "encrypted with key" in listed.out and "no key" in listed.out and "damaged" not in listed.out
    (tmp_path / "keys").write_text("hunter2")
    found = run("backup", "list")
    assert found.code == 2 and "openssl rand -hex 32" in found.err and "hunter2" not in found.err
