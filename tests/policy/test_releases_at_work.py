"""A policy that releases, over a real source, store and lake: rows leave once everything allows it, and come back."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from calve.app.backups import requests
from calve.app.notices import wants
from calve.app.pages.attention import attention
from calve.app.partitions import Exported, list_partitions
from calve.app.policies import consent, documents, evaluation
from calve.app.policies.consent import Json
from calve.app.policies.look import look
from calve.app.policies.proofs import prove
from calve.app.policies.tier import view_create
from calve.app.wiring import App
from calve.backup.deletion import Keep
from calve.iceberg.released import read_marks
from calve.model.access import Asked
from calve.model.errors import RefusedError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.policy.policy import Policy
from support.local_runner import LocalRunner
from support.place import Place, kept_place
from support.position_deletes import delete_rows

_NUMBERS = itertools.count(1)
_ASKED = Asked(who="anne", verb="policy_approve")
RULES = {"export_after": "1s", "quiet": "0s", "release": "quarantine", "release_after": "0s"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    """One source, store and lake for all tests of this file; each has a database and a policy of its own."""
    with kept_place(tmp_path_factory.mktemp("releases"), runner) as place:
        yield place


_TABLE = (
    "CREATE TABLE {name}.events (id UInt64, day Date, word LowCardinality(String), at DateTime('Asia/Tokyo')) "
    "ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id"
)


@pytest.fixture
def name(kept: Place) -> str:
    """Of the test's database, policy and namespace. Its table has two months that are over, and a newer one."""
    made = f"r{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {made}",
        _TABLE.format(name=made),
        f"INSERT INTO {made}.events SELECT number, '2024-01-10', toString(number % 7), number FROM numbers(100)",
        f"INSERT INTO {made}.events SELECT number, '2024-02-10', toString(number % 7), number FROM numbers(50)",
        f"INSERT INTO {made}.events SELECT number, '2024-03-10', toString(number % 7), number FROM numbers(10)",
    )
    return made


@contextmanager
def _app(place: Place, name: str, **rules: str) -> Iterator[tuple[App, Policy]]:
    given = RULES | {"source": f"main:{name}.events", "to": f"lake.{name}.events"} | rules
    settings = {f"CALVE_POLICY__{name.upper()}__{key.upper()}": value for key, value in given.items()}
    before, place.settings = place.settings, place.settings | settings
    try:
        with place.app() as app:
            yield app, app.config.policy(name)
    finally:
        place.settings = before


def _run(place: Place, app: App, name: str) -> list[Process]:
    begun = [one["id"] for one in documents.policy_run(app, name)["started"]]
    return place.finish(app, [app.store.process(id).id for id in begun])


def _prove(place: Place, app: App, policy: Policy) -> None:
    documents.policy_run(app, policy.name, dry_run=True)
    proofs = prove(app, policy, evaluation.standing_now(app, policy))
    for one in place.finish(app, [one.id for one in proofs]):
        assert one.state is ProcessState.COMPLETED, one.error


def _states(app: App, policy: Policy) -> dict[str, tuple[str, str]]:
    documents.policy_run(app, policy.name, dry_run=True)
    found = evaluation.standing_now(app, policy)
    return {one.partition.id: (one.standing.state.value, one.standing.code) for one in found}


def _count(place: Place, table: str) -> int:
    [row] = place.select(f"SELECT count() AS n FROM {table}")
    return int(row["n"])


def test_a_partition_leaves_once_it_is_approved_and_what_differs_goes_back(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        waiting = {"202401": ("HELD", "not_approved"), "202402": ("HELD", "not_approved")}
        assert _states(app, policy) == waiting | {"202403": ("VERIFIED", "newest_partition")}
        assert f"calve policy approve {name}" in documents.policy_show(app, name)["aside"][0]["hint"]
        asked = consent.policy_approve(app, name, _ASKED, dry_run=True)
        assert [one["partition"] for one in asked["leave"]] == ["202401", "202402"]
        assert _run(kept, app, name) == []  # the first run is dry, and asks
        [said] = [one for one in wants(app) if one.source == f"main:{name}.events"]
        assert (said.code, said.hint) == ("approval", f"calve policy approve --dry-run {name}")
        assert "2 partitions" in said.message
        consent.policy_approve(app, name, _ASKED)
        assert [one for one in wants(app) if one.source == f"main:{name}.events"] == []
        _delete_in_the_lake(kept, name)
        left, differed = _run(kept, app, name)
        assert (left.kind, left.state, left.rows) == ("release", ProcessState.COMPLETED, 100), left.error
        assert differed.error is not None
        assert (differed.state, differed.error.code) == (ProcessState.FAILED, "quarantine_differs")
        assert _count(kept, f"{name}.events") == 60
        places = {one.partition: one.place for one in app.registry.releases(_identity(app, name))}
        assert _count(kept, places["202401"]) == 100
        assert _states(app, policy) == {
            "202401": ("QUARANTINED", ""),
            "202402": ("HELD", "came_back"),
            "202403": ("VERIFIED", "newest_partition"),
        }
        assert len(read_marks(kept.table(f"lake.{name}.events").metadata)) == 1
        listed = list_partitions(app, f"{name}.events", f"lake.{name}.events")
        assert {one.partition.id: one.exported for one in listed}.get(
            "202401", Exported.GONE
        ) is Exported.GONE
        assert _run(kept, app, name) == []
        every = replace(policy, name="every", tables="*.*", to=f"lake.{name}.{{database}}_{{table}}")
        assert "calve_released" not in {one.database for one in look(app, every, again=timedelta()) or ()}


def test_a_release_that_was_refused_once_is_tried_again_after_an_hour(kept: Place, name: str) -> None:
    """Its export, of the same rows, counts for nothing."""
    with _app(kept, name, partitions_per_run="1") as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        consent.policy_approve(app, name, _ASKED)
        begun = [one["id"] for one in documents.policy_run(app, name)["started"]]
        documents.policy_pause(app, name, "a test", _ASKED)
        failed = kept.finish(app, [app.store.process(id).id for id in begun])[0]
        assert failed.error is not None
        assert (failed.error.code, failed.finished_at is None) == ("paused", False)
        documents.policy_resume(app, name, _ASKED)
        assert _states(app, policy)["202401"] == ("BLOCKED", "paused")
        [one] = [one for one in evaluation.standing_now(app, policy) if one.partition.id == "202401"]
        assert one.standing.until == failed.finished_at + timedelta(hours=1)  # type: ignore[operator]


def test_a_view_turns_with_what_leaves_and_with_what_comes_back(kept: Place, name: str) -> None:
    shown = f"SELECT toYYYYMM(day) AS month, count() AS n, sum(id) AS ids FROM {name}.all GROUP BY month ORDER BY month"
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        view_create(app, f"{name}.events", f"lake.{name}.events", f"{name}.all")
        before = kept.select(shown)
        consent.policy_approve(app, name, _ASKED)
        for one in _run(kept, app, name):
            assert one.state is ProcessState.COMPLETED, one.error
        assert _count(kept, f"{name}.events") == 10
        assert kept.select(shown) == before
        kept.execute(f"INSERT INTO {name}.events (id, day) VALUES (7, '2024-01-31')")
        [refused] = _undo(kept, app, name)
        assert refused.error is not None
        assert refused.error.code == "not_empty"
        [back] = _undo(kept, app, name, force=True)
        assert back.state is ProcessState.COMPLETED, back.error
        assert [row["n"] for row in kept.select(shown)] == [101, 50, 10]
        assert len(read_marks(kept.table(f"lake.{name}.events").metadata)) == 1


def test_rows_come_back_whatever_happened_to_others_in_the_lake_and_to_columns(
    kept: Place, name: str
) -> None:
    """A view is made anew only of a lake that is whole; what is in the table again needs none."""
    shown = f"SELECT toYYYYMM(day) AS month, count() AS n FROM {name}.all GROUP BY month ORDER BY month"
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        view_create(app, f"{name}.events", f"lake.{name}.events", f"{name}.all")
        consent.policy_approve(app, name, _ASKED)
        assert {one.state for one in _run(kept, app, name)} == {ProcessState.COMPLETED}
        _delete_in_the_lake(kept, name)
        kept.execute(f"ALTER TABLE {name}.events ADD COLUMN more String DEFAULT 'x' AFTER id")
        [back] = _undo(kept, app, name)
        assert back.state is ProcessState.COMPLETED, back.error
        assert [row["n"] for row in kept.select(shown)] == [100, 50, 10]
        assert _states(app, policy)["202401"] == ("HELD", "undone")
        with pytest.raises(RefusedError, match="is back in the table"):
            _undo(kept, app, name)


def test_what_somebody_put_into_quarantine_is_found_before_anything_moves(kept: Place, name: str) -> None:
    with _app(kept, name, partitions_per_run="1") as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        consent.policy_approve(app, name, _ASKED)
        _run(kept, app, name)
        place = {one.partition: one.place for one in app.registry.releases(_identity(app, name))}["202401"]
        kept.execute(f"INSERT INTO {place} (id, day) VALUES (7, '2024-01-31')")
        [part] = kept.select(
            f"SELECT _part AS name FROM {place} GROUP BY name HAVING count() = 1 AND any(id) = 7"
        )
        [refused] = _undo(kept, app, name, force=True)
        assert refused.error is not None
        assert (refused.error.code, part["name"] in refused.error.hint) == ("quarantine_changed", True)
        assert (_count(kept, f"{name}.events"), _count(kept, place)) == (60, 101)
        kept.execute(f"ALTER TABLE {place} DROP PART '{part['name']}'")
        [back] = _undo(kept, app, name)
        assert back.state is ProcessState.COMPLETED, back.error
        assert _count(kept, f"{name}.events") == 160


def test_rows_come_back_to_their_table_under_another_name_and_never_to_another_table(
    kept: Place, name: str
) -> None:
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        consent.policy_approve(app, name, _ASKED)
        _run(kept, app, name)
        places = {one.partition: one.place for one in app.registry.releases(_identity(app, name))}
        kept.execute(f"RENAME TABLE {name}.events TO {name}.renamed")
        made = consent.policy_undo(app, app.store, f"{name}.renamed", "202401")
        [back] = kept.finish(app, [made.process.id])
        assert back.state is ProcessState.COMPLETED, back.error
        assert _count(kept, f"{name}.renamed") == 110
        made = consent.policy_undo(app, app.store, f"{name}.renamed", "202402")
        kept.execute(f"DROP TABLE {name}.renamed SYNC", _TABLE.format(name=name))
        [refused] = kept.finish(app, [made.process.id])
        assert refused.error is not None
        assert (refused.state, refused.error.code) == (ProcessState.FAILED, "source_changed")
        assert (_count(kept, f"{name}.events"), _count(kept, places["202402"])) == (0, 50)


def test_a_person_drops_what_is_in_quarantine_with_a_backup_that_is_kept(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        _prove(kept, app, policy)
        consent.policy_approve(app, name, _ASKED)
        _run(kept, app, name)
        places = {one.partition: one.place for one in app.registry.releases(_identity(app, name))}
        [card] = [
            one for one in attention(app, app.overview)["cards"] if one["source"] == f"main:{name}.events"
        ]
        assert (card["kind"], card["command"]) == (
            "drops",
            f"calve policy drop main:{name}.events 202401 202402",
        )
        assert card["href"] == ["policy", {"name": name}]
        with pytest.raises(RefusedError) as refused:
            _drop(app, name)
        pattern = places["202401"].replace("`", "")
        assert (refused.value.code, f"--tables '{pattern}'" in refused.value.hint) == ("no_backup", True)
        _back_up(kept, app, f"{name}-backup", pattern)
        plan = _drop(app, name)
        assert [(one["partition"], one["rows"], one["backup"]) for one in plan["plan"]] == [
            ("202401", 100, f"{name}-backup")
        ]
        assert _count(kept, places["202401"]) == 100
        with pytest.raises(RefusedError) as other:
            _drop(app, name, approve="another")
        assert other.value.code == "plan_differs"
        begun = _drop(app, name, approve=plan["hash"])
        [done] = kept.finish(app, [app.store.process(one["id"]).id for one in begun["processes"]])
        assert done.state is ProcessState.COMPLETED, done.error
        gone = f"SELECT count() AS n FROM system.tables WHERE startsWith(concat(database, '.', name), '{pattern}')"
        [left] = kept.select(gone)
        assert left["n"] == 0
        assert _states(app, policy) == {
            "202401": ("DROPPED", ""),
            "202402": ("QUARANTINED", ""),
            "202403": ("VERIFIED", "newest_partition"),
        }
        assert kept.read(f"lake.{name}.events").num_rows == 160
        with pytest.raises(RefusedError) as pinned:
            requests.delete_backup(app, f"{name}-backup")
        assert pinned.value.code == "backup_pinned"
        _back_up(kept, app, f"{name}-later", f"{name}.events")
        assert f"{name}-backup" in requests.prune(app, Keep(last=1), dry_run=False).kept
        with pytest.raises(RefusedError) as late:
            consent.policy_undo(app, app.store, f"{name}.events", "202401")
        assert (late.value.code, "calve untier" in late.value.hint) == ("not_in_quarantine", True)
    with _app(kept, name, only_copy="accepted") as (app, _):
        assert _drop(app, name, "202402")["plan"][0]["backup"] is None
    with _app(kept, name, release_after="1d") as (app, _), pytest.raises(RefusedError) as early:
        _drop(app, name, "202402")
    assert early.value.code == "grace"


def _back_up(place: Place, app: App, name: str, pattern: str) -> None:
    [done] = place.finish(app, [requests.create(app, app.store, name, [pattern]).process.id])
    assert done.state is ProcessState.COMPLETED, done.error


def _drop(app: App, name: str, partition: str = "202401", *, approve: str = "") -> Json:
    return consent.policy_drop(app, app.store, f"{name}.events", [partition], _ASKED, approve=approve)


def _delete_in_the_lake(place: Place, name: str) -> None:
    table = place.table(f"lake.{name}.events")
    file = next(one.file.file_path for one in table.scan().plan_files() if "2024-02" in one.file.file_path)
    delete_rows(table.catalog, (name, "events"), file, [2])


def _undo(place: Place, app: App, name: str, *, force: bool = False) -> list[Process]:
    made = consent.policy_undo(app, app.store, f"{name}.events", "202401", force=force)
    return place.finish(app, [made.process.id])


def _identity(app: App, name: str) -> str:
    with app.source("main").visit() as session:
        return session.describe(name, "events").identity
