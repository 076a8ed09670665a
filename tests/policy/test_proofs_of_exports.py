"""Proofs of a policy's exports over a real source, store and lake: what they say, when they are begun, and how many
questions to the store a look takes."""

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from calve.app import policies, policy_view
from calve.app.policy_look import PartitionLook, TableLook, last_look
from calve.app.wiring import App
from calve.model.access import Proof
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from calve.policy.policy import Policy, Verify
from calve.policy.stand import Action
from support.local_runner import LocalRunner
from support.place import Place, kept_place
from support.position_deletes import delete_rows

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("proofs"), runner) as place:
        yield place


@contextmanager
def _app(place: Place, name: str, **rules: str) -> Iterator[tuple[App, Policy]]:
    given = {"export_after": "1s", "quiet": "0s", "source": f"main:{name}.*", "to": f"lake.{name}.{{table}}"}
    settings = {
        f"CALVE_POLICY__{name.upper()}__{key.upper()}": value for key, value in (given | rules).items()
    }
    before, place.settings = place.settings, place.settings | settings
    try:
        with place.app() as app:
            yield app, app.config.policy(name)
    finally:
        place.settings = before


def _database(place: Place, columns: str, values: str, key: str = "toYYYYMM(day)") -> str:
    name = f"p{next(_NUMBERS)}"
    place.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.events ({columns}) ENGINE = MergeTree PARTITION BY {key} ORDER BY tuple()",
        f"INSERT INTO {name}.events {values}",
    )
    return name


def _finish(place: Place, app: App, processes: list[Process]) -> list[Process]:
    return place.finish(app, [one.id for one in processes])


def _exported(place: Place, app: App, policy: Policy) -> None:
    policy_view.policy_run(app, policy.name)
    begun = [app.store.process(ProcessId(one)) for one in _live(app, policy)]
    assert {one.state for one in _finish(place, app, begun)} == {ProcessState.COMPLETED}
    policy_view.policy_run(app, policy.name, dry_run=True)


def _live(app: App, policy: Policy) -> list[str]:
    return [one.facts.live for one in policies.standing_now(app, policy) if one.facts.live]


def _prove(place: Place, app: App, policy: Policy) -> dict[str, Any]:
    """What `explain` says of the first partition after its proof has ended."""
    _finish(place, app, policies.prove(app, policy, policies.standing_now(app, policy)))
    first = policies.standing_now(app, policy)[0]
    [said] = policy_view.policy_explain(app, f"{policy.name}.events", first.partition.id)
    return said


def test_a_proof_compares_every_row_and_explain_tells_of_it(kept: Place) -> None:
    name = _database(
        kept,
        "day Date, id UInt64, `n.a` Array(Int8), `n.b` Array(String), e Enum8('x' = 1), m MATERIALIZED id + 1,"
        " d DateTime DEFAULT day, a String ALIAS toString(id), z LowCardinality(Nullable(String))",
        "(day, id, `n.a`, `n.b`, e, z) SELECT '2024-01-10', number, [1, 2], ['a', toString(number)], 'x',"
        " if(number % 2, NULL, 'z') FROM numbers(1000)",
    )
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        begun = policies.prove(app, policy, policies.standing_now(app, policy))
        [one] = policies.standing_now(app, policy)
        assert (one.standing.state, one.standing.next) == ("EXPORTED", None)
        assert one.facts.export is not None
        assert one.facts.export.proving == begun[0].id
        [process] = _finish(kept, app, begun)
        assert (process.state, process.kind, process.rows) == (ProcessState.COMPLETED, "proof", 1000)
        said = _prove(kept, app, policy)
        assert said["state"] == "VERIFIED"
        proof = said["facts"]["proof"]
        assert (proof["ok"], proof["depth"], proof["detail"]) == (True, "rows", "")
        assert policies.prove(app, policy, policies.standing_now(app, policy)) == []


def test_a_row_that_the_lake_lost_blocks_the_partition(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        [file] = [task.file for task in kept.table(f"lake.{name}.events").scan().plan_files()]
        delete_rows(app.catalog("lake"), (name, "events"), file.file_path, [3])
        said = _prove(kept, app, policy)
        assert (said["state"], said["code"]) == ("BLOCKED", "proof_failed")
        assert "9 rows found, the source has 10" in said["facts"]["proof"]["detail"]
        assert policies.prove(app, policy, policies.standing_now(app, policy)) == []


def test_what_has_no_exact_form_in_the_lake_makes_a_proof_partial(kept: Place) -> None:
    name = _database(
        kept, "day Date, id UInt64, j JSON", """SELECT '2024-01-10', number, '{"a": 1}' FROM numbers(5)"""
    )
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "partial")
        assert "column j is compared after its cast to string" in said["facts"]["proof"]["detail"]


def test_a_sample_is_not_enough_for_a_policy_that_asks_for_all_rows(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name, verify="sample") as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "sample")
        full = replace(policy, verify=Verify.FULL)
        assert [one.standing.next for one in policies.standing_now(app, full)] == [Action.PROVE]


def test_a_partition_that_the_source_no_longer_has_is_proven_by_what_was_read(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        kept.execute(f"ALTER TABLE {name}.events DROP PARTITION 202401")
        policy_view.policy_run(app, name, dry_run=True)
        said = _prove(kept, app, policy)
        assert (said["state"], said["code"]) == ("VERIFIED", "gone_at_source")
        assert said["facts"]["proof"]["depth"] == "destination"


def test_a_proof_is_begun_once_and_one_that_ended_without_an_answer_waits(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy), kept.app() as other:
        _exported(kept, app, policy)
        stood = policies.standing_now(app, policy)
        [process] = policies.prove(app, policy, stood)
        assert policies.prove(other, policy, stood) == []  # it looked before; the lock refuses it
        app.store.request_cancel(process.id)
        _finish(kept, app, [process])
        [one] = policies.standing_now(app, policy)
        assert (one.standing.state, one.standing.code) == ("BLOCKED", "cancelled")
        later = replace(one.facts, now=one.standing.until, looked_at=one.standing.until)
        assert policies.stand(later).next is Action.PROVE


class _Counted:
    """A store whose calls are counted."""

    def __init__(self, store: Any, calls: Counter[str]) -> None:
        self._store = store
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._store, name)


def test_a_look_asks_the_store_as_often_for_many_partitions_as_for_one(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    asked: list[Counter[str]] = []
    with _app(kept, name) as (app, policy):
        policy_view.policy_run(app, name, dry_run=True)
        [look] = last_look(app, policy)
        for count in (1, 500):
            calls: Counter[str] = Counter()
            counted = App(app.config, around_store=lambda store, calls=calls: _Counted(store, calls))  # type: ignore[misc]
            found = policies.evaluate(counted, policy, [_of(look, count)])
            counted.close()
            assert [one.standing.code for one in found] == ["unknown_process"] * count
            asked.append(calls)
    assert asked[0] == asked[1]


def _of(look: TableLook, count: int) -> TableLook:
    """A table of partitions that another store exported."""
    partitions = tuple(
        PartitionLook(id=f"{number}", process=f"process{number}", unchanged=True) for number in range(count)
    )
    return replace(look, partitions=partitions)


def test_the_newest_proof_counts(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        [one] = policies.standing_now(app, policy)
        for ok, state in ((False, "BLOCKED"), (True, "VERIFIED")):
            proof = Proof(process_id=ProcessId(one.partition.process), ok=ok, depth="destination")
            app.registry.record_proof(proof)
            assert [each.standing.state for each in policies.standing_now(app, policy)] == [state]
