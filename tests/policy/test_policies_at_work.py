"""Policies over a real source, store and lake: what is due is exported once and proven; what is not, says why."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from calve.app import rules, work
from calve.app.calve import Calve
from calve.app.policies import documents, evaluation, starts
from calve.app.policies.proofs import prove
from calve.app.wiring import App
from calve.model.access import Asked
from calve.model.errors import CalveError, NotFoundError, RefusedError, UsageError
from calve.model.process import Process, ProcessQuery
from calve.model.states import ProcessState
from calve.model.tier import Hold
from calve.policy.calendar import Window
from calve.policy.policy import Policy
from calve.policy.stand import NextAction
from calve.testing.faults import Break, Crash, Faults, crashing_store
from support.local_runner import LocalRunner
from support.place import Place, kept_place

_NUMBERS = itertools.count(1)
RULES = {"export_after": "1s", "quiet": "0s"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    """One source, store and lake for all tests of this file; each has a database and policies of its own."""
    with kept_place(tmp_path_factory.mktemp("policies"), runner) as place:
        yield place


@pytest.fixture
def name(kept: Place) -> str:
    """Of the test's database, policy and namespace. It has a table with two months that are over and one to come."""
    made = f"d{next(_NUMBERS)}"
    kept.execute(
        f"CREATE DATABASE {made}",
        f"CREATE TABLE {made}.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO {made}.events SELECT number, '2024-01-10' FROM numbers(100)",
        f"INSERT INTO {made}.events SELECT number, '2024-02-10' FROM numbers(50)",
        f"INSERT INTO {made}.events SELECT number, '2099-12-10' FROM numbers(10)",
    )
    return made


@contextmanager
def _app(place: Place, name: str, *others: dict[str, str], **rules: str) -> Iterator[tuple[App, Policy]]:
    given = RULES | {"source": f"main:{name}.*", "to": f"lake.{name}.{{table}}"} | rules
    settings = {f"CALVE_POLICY__{name.upper()}__{key.upper()}": value for key, value in given.items()}
    for number, other in enumerate(others):
        merged = given | other
        settings |= {f"CALVE_POLICY__{name.upper()}X{number}__{key.upper()}": merged[key] for key in merged}
    before, place.settings = place.settings, place.settings | settings
    try:
        with place.app() as app:
            yield app, app.config.policy(name)
    finally:
        place.settings = before


def _run(app: App, name: str) -> list[str]:
    return [one["id"] for one in documents.policy_run(app, name)["started"]]


def _finish(place: Place, app: App, ids: Sequence[str]) -> list[Process]:
    return place.finish(app, [app.store.process(id).id for id in ids])  # type: ignore[arg-type]


def _states(app: App, policy: Policy) -> dict[str, tuple[str, str]]:
    found = evaluation.standing_now(app, policy)
    return {one.partition.id: (one.standing.state.value, one.standing.code) for one in found}


def _rows(place: Place, name: str) -> int:
    return place.read(f"lake.{name}.events").num_rows


def test_partitions_that_are_over_are_exported_once_and_proven(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        assert _states(app, policy) == {}
        begun = _run(app, name)
        assert [app.store.process(one).partitions for one in begun] == [("202401",), ("202402",)]  # type: ignore[arg-type]
        assert _states(app, policy)["202401"] == ("EXPORTING", "")
        assert _run(app, name) == []  # a run takes no more once it has begun
        assert {one.state for one in _finish(kept, app, begun)} == {ProcessState.COMPLETED}
        assert _run(app, name) == []
        exported = {"202401": ("EXPORTED", ""), "202402": ("EXPORTED", ""), "209912": ("HOT", "")}
        assert _states(app, policy) == exported
        proofs = prove(app, policy, evaluation.standing_now(app, policy))
        assert [one.partitions for one in proofs] == [("202401",), ("202402",)]
        assert prove(app, policy, evaluation.standing_now(app, policy)) == []
        assert _states(app, policy) == exported
        _finish(kept, app, [one.id for one in proofs])
        assert set(_states(app, policy).values()) == {("VERIFIED", ""), ("HOT", "")}
    assert _rows(kept, name) == 150


def test_a_table_that_cannot_be_looked_at_is_shown_and_stops_no_other(kept: Place, name: str) -> None:
    """As one whose name is no part of a destination, or two whose names make the same one."""
    for table in ("`a/b`", "`weiß \"ü's`", "a__b"):
        kept.execute(f"CREATE TABLE {name}.{table} AS {name}.events")
    kept.execute(f"INSERT INTO {name}.a__b VALUES (1, '2024-01-10')", f"CREATE DATABASE {name}__a")
    kept.execute(f"CREATE TABLE {name}__a.b AS {name}.events")
    rules = {
        "source": f"main:{name}*.*",
        "to": f"lake.{name}.{{database}}__{{table}}",
        "view": "{database}.{table}_all",
    }
    with _app(kept, name, **rules) as (app, _):
        due = documents.policy_run(app, name, dry_run=True)
        assert {one["source"] for one in due["due"]} == {f"main:{name}.events"}
        assert {(one["source"], one["code"]) for one in due["aside"]} == {
            (f"main:{name}.a__b", "shared_destination")
        }
        found = documents.policy_show(app, name)
        errors = {one["source"]: one["error"] for one in found["of_tables"]}
        assert errors.pop(f"main:{name}.a/b").startswith("destination_name: ")
        assert errors == dict.fromkeys(
            [f"main:{name}.events", f"main:{name}.a__b", f"main:{name}__a.b", f"main:{name}.weiß \"ü's"], ""
        )
        assert (found["tables"], found["tables_failed"]) == (5, 1)


def test_a_look_is_taken_once_by_one_of_several_workers(kept: Place, name: str) -> None:
    with _app(kept, name, look_every="1h") as (app, policy), kept.app() as other:
        begun = starts.tick(app, policy)
        assert len(begun) == 2
        assert starts.tick(other, policy) == []
        stood = evaluation.standing_now(app, policy)
        again = [replace(one, standing=replace(one.standing, next=NextAction.EXPORT)) for one in stood]
        for one in begun:
            app.store.request_cancel(one.id)
        # Another that evaluated before: the locks, and then the starts, refuse it.
        assert [starts.begin(other, policy, replace(one, attempt=1), "2026-01-01") for one in again[:2]] == [
            None,
            None,
        ]


def test_a_window_that_is_closed_starts_nothing_and_a_person_may_run_it(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        now = app.store.now()
        hours = [f"{(now + timedelta(hours=2 + more)):%H}:00" for more in (0, 1)]
        closed = replace(policy, window=Window.parse(f"{hours[0]}-{hours[1]} UTC"))
        assert starts.tick(app, closed) == []
        assert _states(app, policy)["202401"] == ("DUE", "")
        assert len(_run(app, name)) == 2


def test_limits_hold_the_oldest_partition_comes_first(kept: Place, name: str) -> None:
    with _app(kept, name, partitions_per_run="1") as (app, _):
        [first] = _run(app, name)
        assert app.store.process(first).partitions == ("202401",)  # type: ignore[arg-type]
        _finish(kept, app, [first])
        [second] = _run(app, name)
        assert app.store.process(second).partitions == ("202402",)  # type: ignore[arg-type]
    with _app(kept, name, bytes_per_day="1B") as (app, _):
        kept.execute(f"INSERT INTO {name}.events SELECT number, '2023-12-10' FROM numbers(10)")
        assert _run(app, name) == []
        shown = documents.policy_show(app, name)
        assert [(one["partition"], one["code"]) for one in shown["aside"]] == [("202312", "over_limit")]


def test_a_paused_policy_starts_nothing_until_it_is_resumed(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, _), Calve(app.config) as calve:
        calve.policy_pause(name, reason="a migration")
        assert [one["paused"] for one in calve.policy_list()] == [True]
        assert calve.policy_show(name)["halt"]["reason"] == "a migration"
        assert calve.system()["halts"] == []  # whose buttons start processes again
        assert starts.tick(app, app.config.policy(name)) == []
        with pytest.raises(RefusedError, match="is paused"):
            documents.policy_run(app, name)
        assert documents.policy_run(app, name, dry_run=True)["started"] == []
        assert calve.policy_resume(name) == {"name": name, "resumed": True}
        assert calve.policy_resume(name)["resumed"] is False
        assert len(_run(app, name)) == 2


def test_late_rows_wait_for_a_person_or_replace_what_only_grew(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        _finish(kept, app, _run(app, name))
        kept.execute(f"INSERT INTO {name}.events SELECT number + 900, '2024-01-20' FROM numbers(5)")
        assert _run(app, name) == []
        assert _states(app, policy)["202401"] == ("HELD", "late_rows")
    with _app(kept, name, on_late_rows="replace") as (app, policy):
        [again] = _run(app, name)
        [row] = _finish(kept, app, [again])
        assert row.state is ProcessState.COMPLETED, row.error
        assert _rows(kept, name) == 155
        kept.execute(
            f"ALTER TABLE {name}.events DELETE WHERE id = 901 AND day >= '2024-01-01' AND day < '2024-02-01'"
            " SETTINGS mutations_sync = 2",
            f"INSERT INTO {name}.events SELECT number + 990, '2024-01-20' FROM numbers(9)",
        )
        assert _run(app, name) == []  # more rows than before, and one of those that were exported is gone
        assert _states(app, policy)["202401"] == ("HELD", "rows_gone")
    assert _rows(kept, name) == 155


def test_late_rows_are_appended_and_proven_or_held_with_the_reason(kept: Place, name: str) -> None:
    kept.execute(f"SYSTEM STOP MERGES {name}.events")
    with _app(kept, name, on_late_rows="append") as (app, policy):
        _finish(kept, app, _run(app, name))
        kept.execute(f"INSERT INTO {name}.events SELECT number + 900, '2024-01-20' FROM numbers(5)")
        held = Hold(id=f"hold-{name}", name=f"main:{name}.events", who="anne", reason="an audit")
        app.registry.add_hold(held, Asked(who="anne", verb="hold_add"))  # an append takes nothing away
        [again] = _run(app, name)
        [row] = _finish(kept, app, [again])
        assert (row.state, row.rows) == (ProcessState.COMPLETED, 5), row.error
        assert _rows(kept, name) == 155
        assert _run(app, name) == []
        assert _states(app, policy)["202401"] == ("EXPORTED", "")
        proofs = prove(app, policy, evaluation.standing_now(app, policy))
        assert {one.state for one in _finish(kept, app, [one.id for one in proofs])} == {
            ProcessState.COMPLETED
        }
        assert _states(app, policy)["202401"] == ("VERIFIED", "")
        kept.execute(
            f"INSERT INTO {name}.events SELECT number + 990, '2024-01-20' FROM numbers(9)",
            f"SYSTEM START MERGES {name}.events",
            f"OPTIMIZE TABLE {name}.events PARTITION ID '202401' FINAL",
        )
        _finish(kept, app, _run(app, name))
        assert _run(app, name) == []
        assert _states(app, policy)["202401"] == ("HELD", "mixed_merge")
    assert _rows(kept, name) == 155


def test_what_cannot_be_exported_says_why_waits_and_stops_no_other(kept: Place, name: str) -> None:
    kept.execute(
        f"CREATE TABLE {name}.bad (id UInt64, day Date, wide Int256) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO {name}.bad VALUES (1, '2023-01-10', 1)",
    )
    with _app(kept, name) as (app, policy):
        begun = _run(app, name)
        ended = {one.source.split(".")[-1]: one.state for one in _finish(kept, app, begun)}
        assert ended == {"bad": ProcessState.FAILED, "events": ProcessState.COMPLETED}
        assert _run(app, name) == []
        assert _states(app, policy)["202301"][0] == "BLOCKED"
        [said] = documents.policy_explain(app, f"{name}.bad", "202301")
        assert said["state"] == "BLOCKED"
        assert said["code"] == said["facts"]["failed"]["code"]
        assert (said["facts"]["attempts"], said["until"] is not None) == (1, True)
        failed = next(
            one.facts for one in evaluation.standing_now(app, policy) if one.partition.id == "202301"
        )
        later = app.store.now() + timedelta(hours=2)
        assert evaluation.stand(replace(failed, now=later, looked_at=later)).next is NextAction.EXPORT
    with _app(kept, name, export_after="2s") as (app, policy):  # other rules are tried at once
        [again] = _run(app, name)
        [start, _] = app.store.starts(
            evaluation.last_look(app, policy)[0].identity, f"lake.{name}.bad", ["202301"]
        )
        assert (start.attempt, start.process_id) == (2, again)
        app.store.request_cancel(start.process_id)


def test_dying_at_any_call_of_a_tick_starts_each_partition_once(kept: Place) -> None:
    """Before, after, reported failed and failed, at every call that changes the store; then a worker that lives."""
    broken = 0
    for at, how in itertools.product(range(1, 5), Break):
        name = f"dying{at}{how.value.replace('_', '')}"
        kept.execute(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
            f"INSERT INTO {name}.events SELECT number, if(number % 2, '2024-01-10', '2024-02-10') FROM numbers(10)",
        )
        with _app(kept, name, look_every="1h") as (app, policy):
            faults = Faults(at=at, how=how)
            dying = App(app.config, around_store=partial(crashing_store, faults=faults))
            dying.source = app.source  # type: ignore[method-assign]
            try:
                starts.tick(dying, policy)
            except (Crash, CalveError):
                broken += 1
            dying.close()
            if evaluation.last_look(app, policy) == []:
                continue  # its claim must pass first; nothing can have started
            starts.start(app, policy, evaluation.standing_now(app, policy))
            [table] = evaluation.last_look(app, policy)
            made = app.store.starts(table.identity, f"lake.{name}.events", ["202401", "202402"])
            live = app.store.processes(ProcessQuery(source=f"main:{name}.events"))
            assert len(made) == len(live) <= 2, (at, how)
            assert {one.process_id for one in made} == {one.id for one in live}, (at, how)
            for one in live:
                app.store.request_cancel(one.id)
    assert broken == 4 * len(Break), "a tick has a claim, a sighting and two submissions"


def test_two_policies_for_one_destination_block_each_other(kept: Place, name: str) -> None:
    with _app(kept, name, {"quiet": "1s"}) as (app, policy):
        assert _run(app, name) == []
        assert set(_states(app, policy).values()) == {("BLOCKED", "two_policies")}


def test_a_look_that_fails_keeps_what_was_seen_and_says_so(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):
        documents.policy_run(app, name, dry_run=True)
        really = app.source

        def down(_: str) -> Any:
            raise CalveError("no answer", code="source_down")

        app.source = down  # type: ignore[method-assign]
        with pytest.raises(CalveError, match="no answer"):
            starts.tick(app, replace(policy, look_every=timedelta()))
        app.source = really  # type: ignore[method-assign]
        assert _states(app, policy)["202401"] == ("DUE", "")
        [listed] = [one for one in documents.policy_list(app) if one["name"] == name]
        assert listed["error"] == "no answer"


def test_when_content_was_first_seen_is_carried_from_look_to_look(kept: Place, name: str) -> None:
    with _app(kept, name) as (app, policy):

        def seen() -> dict[str, Any]:
            documents.policy_run(app, name, dry_run=True)
            [table] = evaluation.last_look(app, policy)
            return {one.id: one.changed_at for one in table.partitions}

        first = seen()
        kept.execute(f"OPTIMIZE TABLE {name}.events FINAL")  # new parts, and no change
        assert seen() == first
        before = app.store.now()
        kept.execute(f"INSERT INTO {name}.events VALUES (1, '2024-01-05')")
        then = seen()
        assert then["202402"] == first["202402"]
        assert then["202401"] >= before


def test_documents_say_what_comes_and_why(kept: Place, name: str) -> None:
    with _app(kept, name, window="00:00-23:59 UTC") as (app, _):
        documents.policy_run(app, name, dry_run=True)
        shown = documents.policy_show(app, name)
        assert [one["partition"] for one in shown["forecast"]] == ["202401", "202402"]
        assert shown["states"] == {"DUE": 2, "HOT": 1}
        assert shown["of_tables"][0]["destination"] == f"lake.{name}.events"
        [said] = documents.policy_explain(app, f"{name}.events", "202401")
        assert (said["policy"], said["state"], said["next"]) == (name, "DUE", "export")
        assert said["facts"]["closed_at"] == "2024-02-01T12:00:00Z"
        with pytest.raises(NotFoundError):
            documents.policy_explain(app, f"{name}.events", "205001")
        with pytest.raises(UsageError):
            documents.policy_show(app, "nobody")


def test_the_thread_of_a_worker_goes_on_after_errors_and_ends_with_it(
    kept: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked: list[str] = []
    enough = threading.Event()

    def tick(_: App, policy: Policy) -> list[Process]:
        ticked.append(policy.name)
        if len(ticked) >= 6:
            enough.set()
        raise (CalveError("down", code="down") if len(ticked) % 2 else ValueError("a defect"))

    monkeypatch.setattr(starts, "tick", tick)
    monkeypatch.setattr(rules, "_TICK_SECONDS", 0.0)
    with _app(kept, name, {"to": f"lake.{name}x.{{table}}"}) as (app, _):
        with work._rules(app):
            assert enough.wait(timeout=60)
        assert set(ticked) == {name, f"{name}x0"}
        assert not any(one.name == "calve-rules" for one in threading.enumerate())


def test_a_worker_without_policies_has_no_thread_for_them(kept: Place) -> None:
    with kept.app() as app, work._rules(app):
        assert not any(one.name == "calve-rules" for one in threading.enumerate())
