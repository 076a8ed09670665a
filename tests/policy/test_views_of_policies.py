"""A policy that names a view makes it over its table and the lake, keeps it whole, and lets nothing leave without it."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from calve.app.destination import parse_table
from calve.app.policies import consent, documents, evaluation, look, starts, tier, views
from calve.app.policies.lake import lake_as_it_is
from calve.app.policies.proofs import prove
from calve.app.wiring import App
from calve.model.access import Asked
from calve.model.errors import TemporaryError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.policy.policy import Policy
from support.local_runner import LocalRunner
from support.place import Place, kept_place

_NUMBERS = itertools.count(1)
_ASKED = Asked(who="anne", verb="policy_approve")
RULES = {"export_after": "1s", "quiet": "0s", "look_every": "1s"}
RELEASES = {"release": "quarantine", "release_after": "0s"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("views"), runner) as place:
        yield place


@pytest.fixture
def name(kept: Place) -> str:
    made = f"v{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {made}",
        f"CREATE TABLE {made}.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO {made}.events SELECT number, '2024-01-10' FROM numbers(100)",
        f"INSERT INTO {made}.events SELECT number, '2024-02-10' FROM numbers(50)",
        f"INSERT INTO {made}.events SELECT number, '2024-03-10' FROM numbers(10)",
    )
    return made


@contextmanager
def _app(place: Place, name: str, **rules: str) -> Iterator[tuple[App, Policy]]:
    given = RULES | {
        "source": f"main:{name}.*", "to": f"lake.{name}.{{table}}", "view": "{database}.all_{table}"
    } | rules  # fmt: skip
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


def _view(app: App, name: str) -> documents.Json:
    [table] = documents.policy_show(app, name)["of_tables"]
    assert isinstance(table["view"], dict)
    return table["view"]


def _count(place: Place, name: str) -> int:
    [row] = place.select(f"SELECT count() AS n FROM {name}.all_events")
    return int(row["n"])


def _tick(app: App, policy: Policy) -> None:
    """As a worker does once the last look is old enough."""
    starts.tick(app, replace(policy, look_every=timedelta()))


def test_a_view_is_made_with_the_first_export_and_follows_the_table(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        first = _run(kept, app, name)
        assert _view(app, name) == {"name": f"{name}.all_events", "made_at": None, "cold": 0, "error": ""}
        assert [one.state for one in first] == [ProcessState.COMPLETED] * 3
        _tick(app, policy)
        assert (_count(kept, name), _view(app, name)["cold"]) == (160, 0)
        made = _view(app, name)["made_at"]
        _tick(app, policy)
        assert _view(app, name)["made_at"] == made, "nothing has changed"
        kept.execute(f"ALTER TABLE {name}.events DROP PARTITION 202401")
        _tick(app, policy)
        assert (_count(kept, name), _view(app, name)["cold"]) == (160, 1)
        kept.execute(f"DROP VIEW {name}.all_events")
        _tick(app, policy)
        assert _count(kept, name) == 160
        kept.execute(f"ALTER TABLE {name}.events ADD COLUMN word String DEFAULT 'none'")
        _tick(app, policy)
        assert "view_columns" in _view(app, name)["error"], "the lake does not have it yet"
        assert documents.policy_show(app, name)["of_tables"][0]["error"] == ""


def test_a_paused_policy_makes_no_view(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        documents.policy_pause(app, name, "wait", _ASKED)
        _tick(app, policy)
        assert _view(app, name)["made_at"] is None
        documents.policy_resume(app, name, _ASKED)
        documents.policy_run(app, name, dry_run=True)
        assert _view(app, name)["made_at"] is None, "a dry run makes nothing"


def test_nothing_leaves_while_the_view_cannot_be_made(kept: Place, name: str) -> None:
    with _app(kept, name, source=f"main:{name}.events", **RELEASES) as (app, policy):
        kept.execute(f"CREATE TABLE {name}.all_events (id UInt64) ENGINE = Memory")
        _run(kept, app, name)
        documents.policy_run(app, name, dry_run=True)
        proofs = prove(app, policy, evaluation.standing_now(app, policy))
        kept.finish(app, [one.id for one in proofs])
        consent.policy_approve(app, name, _ASKED)
        refused = _run(kept, app, name)
        assert [one.error.code for one in refused if one.error] == ["no_view", "no_view"]
        assert "view_name_taken" in _view(app, name)["error"]
        kept.execute(f"DROP TABLE {name}.all_events")
        with pytest.MonkeyPatch.context() as patch:  # as an hour later
            patch.setattr(views, "_RETRIED", timedelta())
            _tick(app, policy)
        assert _count(kept, name) == 160
    changed = RELEASES | {"on_late_rows": "replace"}  # another policy: it is tried at once
    with _app(kept, name, source=f"main:{name}.events", **changed) as (app, _):
        consent.policy_approve(app, name, _ASKED)
        left = _run(kept, app, name)
        assert [one.state for one in left] == [ProcessState.COMPLETED] * 2, [one.error for one in left]
        [row] = kept.select(f"SELECT count() AS n FROM {name}.events")
        assert (row["n"], _count(kept, name)) == (10, 160)


def test_a_view_made_while_a_release_marks_its_partition_is_not_put_in_place(
    kept: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake was read before the mark, and the set was looked for before it was there."""
    with _app(kept, name, view="", source=f"main:{name}.events", **RELEASES) as (app, policy):
        _run(kept, app, name)
        documents.policy_run(app, name, dry_run=True)
        kept.finish(app, [one.id for one in prove(app, policy, evaluation.standing_now(app, policy))])
        before = lake_as_it_is(app, parse_table(f"lake.{name}.events", app.config), "main")
        consent.policy_approve(app, name, _ASKED)
        _run(kept, app, name)
        monkeypatch.setattr(tier, "lake_as_it_is", lambda *_: before)
        monkeypatch.setattr(tier, "keep_lake", lambda app, lake, table: lake)
        with pytest.raises(TemporaryError, match="released in the meantime"):
            tier.view_create(app, f"{name}.events", f"lake.{name}.events", f"{name}.all_events")
        assert (
            kept.select(f"SELECT name FROM system.tables WHERE name = 'all_events' AND database = '{name}'")
            == []
        )
        monkeypatch.undo()
        tier.view_create(app, f"{name}.events", f"lake.{name}.events", f"{name}.all_events")
        assert _count(kept, name) == 160


def test_two_looks_make_a_view_once(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        _run(kept, app, name)
        looks = look.look(app, policy, again=timedelta())
        assert looks is not None
        assert app.registry.claim_look(name, views.WHAT, again_seconds=0.0, lease_seconds=600.0)
        views.keep_views(app, policy, looks)
        assert views.kept_views(app, policy) == {}, "another worker does it"
