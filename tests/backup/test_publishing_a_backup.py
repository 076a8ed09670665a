"""Without its manifest there is no backup; with it, it is whole; a late one never appears."""

import itertools
import json
from pathlib import Path

import pytest
from archive_scene import ArchiveScene

from calve.archive import backups
from calve.archive.location import Key, Keys, Location
from calve.backup import publish
from calve.backup.kind import refuse_taken
from calve.backup.request import BackupRequest
from calve.control.kind import Fenced, Published
from calve.model.errors import PermanentError, RefusedError, TemporaryError
from calve.tasks.attempts import made_before


@pytest.fixture
def scene(tmp_path: Path) -> ArchiveScene:
    return ArchiveScene(tmp_path)


def test_before_the_manifest_there_is_no_backup(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    receipts = scene.run(plan)
    assert backups.listed(scene.location) == []
    scene.publish(plan, receipts)
    assert [one.key.name for one in backups.listed(scene.location)] == ["b"]
    assert not any(uri.startswith("under-way/") for uri in scene.objects)


def test_publishing_again_finds_it(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    receipts = scene.run(plan)
    first = scene.publish(plan, receipts)
    assert scene.publish(plan, []) == first


def test_D1_a_backup_is_known_as_its_own_by_the_process_that_made_it_and_is_planned_once_more(
    scene: ArchiveScene,
) -> None:
    plan = scene.plan("b", [scene.part("one")], process_id="mine")
    folders = scene.location.parts_of("mine"), scene.location.under_way("mine")
    assert made_before(scene.storage, *folders) == 0
    receipts = scene.run(plan, attempt=3)
    assert made_before(scene.storage, *folders) == 3
    scene.publish(plan, receipts)
    assert made_before(scene.storage, *folders) == 3, "its parts are there"
    request = BackupRequest(name="b", source="main", patterns=("db.t",), tables=(("db", "t"),))
    found = refuse_taken(scene.location, request, "mine")
    assert found is not None and set(found.places) == scene.stored
    with pytest.raises(RefusedError, match="there is a backup b"):
        refuse_taken(scene.location, request, "theirs")


def test_L23_missing_or_foreign_receipts_publish_nothing(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one"), scene.part("two", "all_2_2_0")])
    other = scene.plan("c", [scene.part("three")])
    receipts = scene.run(plan)
    for wrong in ([], scene.run(other), [*receipts, *receipts]):
        with pytest.raises(TemporaryError, match="were planned"):
            scene.publish(plan, wrong)
    assert backups.listed(scene.location) == []


def test_of_two_stores_that_use_one_name_at_once_one_wins(scene: ArchiveScene) -> None:
    mine = scene.plan("b", [scene.part("one")], process_id="mine")
    theirs = scene.plan("b", [scene.part("two")], process_id="theirs")
    ours, others = scene.run(mine), scene.run(theirs)
    scene.publish(theirs, others)
    with pytest.raises(RefusedError, match="made by process theirs"):
        scene.publish(mine, ours)
    assert isinstance(publish.fence(scene.location, mine), Fenced)
    publish.undo(scene.location, mine)
    assert scene.stored == set(backups.find(scene.location, "b").places)


def test_P15_a_worker_that_wakes_up_after_its_backup_was_given_up_publishes_nothing(
    scene: ArchiveScene,
) -> None:
    plan = scene.plan("b", [scene.part("one")])
    receipts = scene.run(plan)

    def given_up_meanwhile(note: str) -> None:
        assert isinstance(publish.fence(scene.location, plan), Fenced)
        publish.undo(scene.location, plan)

    with pytest.raises(RefusedError, match="was given up"):
        publish.publish(scene.location, plan, receipts, given_up_meanwhile)
    assert backups.listed(scene.location) == []
    assert scene.stored == set()


def test_P15_a_retry_of_a_publish_after_the_backup_was_deleted_brings_nothing_back(
    scene: ArchiveScene,
) -> None:
    from calve.backup import deletion

    plan = scene.plan("b", [scene.part("one")])
    receipts = scene.run(plan)
    scene.publish(plan, receipts)
    deletion.delete(scene.location, "b")
    assert scene.publish(plan, receipts).result.files == 1
    assert backups.listed(scene.location) == []


def test_deleting_a_backup_that_is_completed_in_this_very_moment(
    scene: ArchiveScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulator, as an IndexError: the listing was older than the look by name."""
    from calve.backup import deletion

    plan = scene.plan("b", [scene.part("one")])
    scene.publish(plan, scene.run(plan))
    listed = iter([Keys(decided=frozenset(), marked=frozenset())])
    keys = Location.keys
    monkeypatch.setattr(Location, "keys", lambda self: next(listed, None) or keys(self))
    assert deletion.delete(scene.location, "b").parts == 1
    assert scene.stored == set()


def test_a_listing_that_stays_behind_ends_a_delete_with_a_hint(
    scene: ArchiveScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calve.backup import deletion

    plan = scene.plan("b", [scene.part("one")])
    scene.publish(plan, scene.run(plan))
    behind = itertools.cycle([True, False])  # the delete's own look; the one by name, of another server
    keys = Location.keys
    nothing = Keys(decided=frozenset(), marked=frozenset())
    with monkeypatch.context() as patch, pytest.raises(TemporaryError) as refused:
        patch.setattr(Location, "keys", lambda self: nothing if next(behind) else keys(self))
        deletion.delete(scene.location, "b")
    assert (refused.value.code, refused.value.hint[-21:]) == ("listing_behind", "calve backup delete b")
    assert [one.key.name for one in backups.listed(scene.location)] == ["b"]


def test_fencing_after_the_publish_finds_it(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    scene.publish(plan, scene.run(plan))
    assert isinstance(publish.fence(scene.location, plan), Published)
    assert publish.undo(scene.location, plan) == ""
    assert len(scene.stored) == 1


def test_T13_what_attempts_that_lost_have_stored_goes_after_the_backup_is_complete(
    scene: ArchiveScene,
) -> None:
    """Found by the simulator: an attempt whose answer was lost left its parts for ever."""
    plan = scene.plan("b", [scene.part("one")])
    scene.run(plan, attempt=1)
    kept = scene.publish(plan, scene.run(plan, attempt=2))
    assert publish.undo(scene.location, plan) == ""
    assert scene.stored == set(backups.find(scene.location, "b").places)
    assert kept.result.files == 1


def test_what_a_backup_under_way_relies_on_outlives_the_undo_of_a_deleted_one(scene: ArchiveScene) -> None:
    from calve.backup import deletion
    from calve.backup.plan import declare_intent

    plan = scene.plan("b", [scene.part("one")])
    scene.publish(plan, scene.run(plan))
    [place] = scene.stored
    intent = scene.location.intent("other", 0, 1)
    declare_intent(scene.location, intent, Key(name="c", number=1), [place.rsplit("/", 1)[-1]])
    deletion.delete(scene.location, "b")
    publish.undo(scene.location, plan)
    assert scene.stored == {place}


def test_undoing_leaves_what_a_retry_has_published(scene: ArchiveScene) -> None:
    part, other = scene.part("one"), scene.part("two", "all_2_2_0")
    failed = scene.plan("b", [part, other], process_id="failed")
    [receipt] = scene.run(failed)
    from calve.backup.kind import reusable
    from calve.control.kind import AdoptedWork

    retry = scene.plan("b", [part], process_id="retry")
    adopted = AdoptedWork(plan=failed.to_json(), receipts=(receipt.to_json(),))
    reuse = reusable(scene.location, retry.location_id, retry.uploads, adopted)
    assert reuse
    from dataclasses import replace

    retry = replace(retry, reuse=reuse)
    [again] = scene.run(retry)
    assert again.moved_bytes == 0
    scene.publish(retry, [again])
    publish.undo(scene.location, failed)
    assert scene.stored == set(backups.find(scene.location, "b").places)


def test_P15_what_was_stored_elsewhere_is_not_relied_on(scene: ArchiveScene, tmp_path: Path) -> None:
    """The location was emptied and filled anew: resume state belongs to the destination's identity."""
    import shutil

    part = scene.part("one")
    plan = scene.plan("b", [part])
    [receipt] = scene.run(plan)
    shutil.rmtree(tmp_path / "backups")
    scene.location.made_identity()
    with pytest.raises(PermanentError, match="no longer the location"):
        scene.publish(plan, [receipt])
    with pytest.raises(PermanentError, match="no longer the location"):
        scene.run(plan, attempt=2)
    from calve.backup.kind import reusable
    from calve.control.kind import AdoptedWork

    fresh = scene.plan("b", [part], process_id="fresh")
    adopted = AdoptedWork(plan=plan.to_json(), receipts=(receipt.to_json(),))
    assert reusable(scene.location, fresh.location_id, fresh.uploads, adopted) == {}


@pytest.mark.parametrize("damage", ["index", "object", "short"])
def test_P15_a_stored_part_that_is_no_longer_whole_is_stored_again(scene: ArchiveScene, damage: str) -> None:
    part = scene.part("one")
    [place] = scene.backup("old", part).places
    root = scene.folder / "backups" / "parts"
    if damage == "index":
        (root / f"{place}.json").unlink()
    elif damage == "object":
        (root / place / "0").unlink()
    else:
        (root / place / "0").write_bytes(b"short")
    manifest = scene.backup("new", part)
    assert manifest.moved_bytes == manifest.bytes
    assert place not in manifest.places


def test_D4_attempts_share_no_object(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    [first], [second] = scene.run(plan, attempt=1), scene.run(plan, attempt=2)
    assert first.parts[0].place != second.parts[0].place
    assert first.parts[0].address == second.parts[0].address


def test_an_attempt_that_left_a_receipt_is_not_repeated(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    before = scene.run(plan)
    objects = scene.objects
    assert scene.run(plan) == before
    assert scene.objects == objects


def test_secrets_are_not_in_what_is_stored(scene: ArchiveScene) -> None:
    plan = scene.plan("b", [scene.part("one")])
    assert "storage" not in json.loads(plan.to_json())
