"""Parts are stored once, by their content, for as long as any backup needs them."""

import contextlib
from pathlib import Path

import pytest
from archive_scene import ArchiveScene, Interposed, make_part

from calve.archive import backups
from calve.archive.location import address_of
from calve.backup import deletion
from calve.model.errors import NotFoundError


@pytest.fixture
def scene(tmp_path: Path) -> ArchiveScene:
    return ArchiveScene(tmp_path)


def test_an_increment_stores_only_what_is_new(scene: ArchiveScene) -> None:
    old, new = scene.part("old"), scene.part("new", "all_2_2_0")
    first = scene.backup("monday", old)
    second = scene.backup("tuesday", old, new)
    assert first.moved_bytes == first.bytes
    assert second.moved_bytes == second.bytes - first.bytes
    assert len(scene.stored) == 2


def test_equal_parts_of_one_backup_are_stored_once(scene: ArchiveScene) -> None:
    manifest = scene.backup("monday", scene.part("same"), scene.part("same", "all_2_2_0"))
    assert manifest.parts == 2
    assert len(manifest.places) == len(scene.stored) == 1


def test_P17_the_same_part_name_with_other_content_is_another_part(scene: ArchiveScene) -> None:
    scene.backup("monday", scene.part("one"))
    second = scene.backup("tuesday", scene.part("two"))
    assert second.moved_bytes == second.bytes
    assert len(scene.stored) == 2


def test_P17_a_description_that_changes_alone_changes_the_address(tmp_path: Path) -> None:
    """A renamed column leaves data and checksums.txt as they were."""
    before = make_part(tmp_path / "a", "all_1_1_0", b"data", columns="old UInt64")
    after = make_part(tmp_path / "b", "all_1_1_0", b"data", columns="new UInt64")
    assert (before / "checksums.txt").read_bytes() == (after / "checksums.txt").read_bytes()
    assert address_of(before) != address_of(after)


def test_P16_deleting_a_full_backup_leaves_its_increments_whole(scene: ArchiveScene) -> None:
    shared, gone = scene.part("shared"), scene.part("gone", "all_2_2_0")
    full = scene.backup("full", shared, gone)
    increment = scene.backup("increment", shared)
    deleted = deletion.delete(scene.location, "full")
    assert (deleted.parts, deleted.shared) == (1, 1)
    assert scene.stored == set(increment.places)
    assert set(full.places) - set(increment.places)
    with pytest.raises(NotFoundError, match="no backup 'full'"):
        backups.find(scene.location, "full")


def test_P16_the_last_backup_takes_its_parts_along(scene: ArchiveScene) -> None:
    part = scene.part("one")
    for name in ("a", "b"):
        scene.backup(name, part)
    for name in ("a", "b"):
        deletion.delete(scene.location, name)
    assert not any(uri.startswith(("parts/", "under-way/")) for uri in scene.objects)


def test_a_name_that_was_deleted_can_be_used_again(scene: ArchiveScene) -> None:
    scene.backup("nightly", scene.part("one"), process_id="first")
    deletion.delete(scene.location, "nightly")
    manifest = scene.backup("nightly", scene.part("two"), process_id="second")
    assert (manifest.number, manifest.process_id) == (2, "second")


class TestD9:
    """A create that skips a part because another backup has it, while that other is deleted."""

    def test_D9_a_delete_after_the_intent_leaves_the_part(self, scene: ArchiveScene) -> None:
        part = scene.part("shared")
        scene.backup("old", part)
        plan = scene.plan("new", [part])
        receipts = scene.run(plan)  # its intent is out, its manifest is not
        deleted = deletion.delete(scene.location, "old")
        assert (deleted.parts, deleted.awaited) == (0, 1)
        scene.publish(plan, receipts)
        assert set(backups.find(scene.location, "new").places) <= scene.stored
        # What waited is settled by the next sweep, which finds the part named.
        for key in deletion.unfinished(scene.location):
            deletion.sweep(scene.location, key)
        assert deletion.unfinished(scene.location) == []
        assert set(backups.find(scene.location, "new").places) <= scene.stored

    def test_D9_a_delete_before_the_intent_makes_the_create_store_it_itself(
        self, scene: ArchiveScene
    ) -> None:
        part = scene.part("shared")
        old = scene.backup("old", part)
        plan = scene.plan("new", [part])  # it knows of the stored part
        assert plan.reuse
        deletion.delete(scene.location, "old")
        scene.publish(plan, scene.run(plan))
        new = backups.find(scene.location, "new")
        assert set(new.places) == scene.stored
        assert not set(new.places) & set(old.places)

    @pytest.mark.parametrize("at", range(1, 12))
    def test_D9_a_delete_at_any_moment_of_a_create_leaves_it_whole(
        self, scene: ArchiveScene, at: int
    ) -> None:
        part = scene.part("shared")
        scene.backup("old", part)
        plan = scene.plan("new", [part])
        calls = 0

        def meanwhile(name: str, uri: str) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                deletion.delete(scene.location, "old")

        scene.publish(plan, scene.run(plan, Interposed(scene.storage, meanwhile)))
        if calls < at:
            deletion.delete(scene.location, "old")
        assert set(backups.find(scene.location, "new").places) <= scene.stored

    def test_D9_an_intent_of_a_backup_that_was_given_up_holds_nothing(self, scene: ArchiveScene) -> None:
        from calve.backup import publish

        part = scene.part("shared")
        scene.backup("old", part)
        plan = scene.plan("new", [part])
        scene.run(plan)
        publish.fence(scene.location, plan)
        assert deletion.delete(scene.location, "old").parts == 1
        assert scene.stored == set()


class _Died(BaseException):
    pass


def test_a_delete_that_dies_anywhere_is_taken_up_and_never_hurts_another(tmp_path: Path) -> None:
    calls = 1
    at = 0
    while at < calls:
        at += 1
        scene = ArchiveScene(tmp_path / str(at))
        shared = scene.part("shared")
        scene.backup("doomed", shared, scene.part("own", "all_2_2_0"))
        kept = scene.backup("kept", shared)
        calls = 0

        def die(name: str, uri: str, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise _Died

        broken = type(scene.location)(scene.location.url, Interposed(scene.storage, die))  # type: ignore[arg-type]
        try:
            deletion.delete(broken, "doomed")
        except _Died:
            calls = at + 1
        assert set(kept.places) <= scene.stored
        with contextlib.suppress(NotFoundError):  # it had ended before it died
            deletion.delete(scene.location, "doomed")
        assert deletion.unfinished(scene.location) == []
        assert scene.stored == set(kept.places)
    assert at > 8, "the delete is too short to say anything"
