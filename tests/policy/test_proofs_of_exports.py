"""Proofs of a policy's exports over a real source, store and lake: what they say, when they are begun, and how many
questions to the store a look takes."""

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from calve.app.policies import documents, evaluation
from calve.app.policies.look import PartitionLook, TableLook, last_look
from calve.app.policies.proofs import begin_proof, prove
from calve.app.wiring import App
from calve.model.access import Proof
from calve.model.process import Process, ProcessId
from calve.model.record import fields_of
from calve.model.states import ProcessState
from calve.policy.policy import Policy, Verify
from calve.policy.stand import NextAction
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
    documents.policy_run(app, policy.name)
    begun = [app.store.process(ProcessId(one)) for one in _live(app, policy)]
    assert {one.state for one in _finish(place, app, begun)} == {ProcessState.COMPLETED}
    documents.policy_run(app, policy.name, dry_run=True)


def _live(app: App, policy: Policy) -> list[str]:
    return [one.facts.live for one in evaluation.standing_now(app, policy) if one.facts.live]


def _prove(place: Place, app: App, policy: Policy) -> dict[str, Any]:
    """What `explain` says of the first partition after its proof has ended."""
    _finish(place, app, prove(app, policy, evaluation.standing_now(app, policy)))
    first = evaluation.standing_now(app, policy)[0]
    [said] = documents.policy_explain(app, f"{policy.name}.events", first.partition.id)
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
        begun = prove(app, policy, evaluation.standing_now(app, policy))
        [one] = evaluation.standing_now(app, policy)
        assert (one.standing.state, one.standing.next) == ("EXPORTED", None)
        assert one.facts.export is not None
        assert one.facts.export.proving == begun[0].id
        [process] = _finish(kept, app, begun)
        assert (process.state, process.kind, process.rows) == (ProcessState.COMPLETED, "proof", 1000)
        said = _prove(kept, app, policy)
        assert said["state"] == "VERIFIED"
        proof = said["facts"]["proof"]
        assert (proof["ok"], proof["depth"], proof["detail"]) == (True, "rows", "")
        assert prove(app, policy, evaluation.standing_now(app, policy)) == []


def test_a_row_that_the_lake_lost_blocks_the_partition(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        [file] = [task.file for task in kept.table(f"lake.{name}.events").scan().plan_files()]
        delete_rows(app.catalog("lake"), (name, "events"), file.file_path, [3])
        said = _prove(kept, app, policy)
        assert (said["state"], said["code"]) == ("BLOCKED", "proof_failed")
        assert "9 rows found, the source has 10" in said["facts"]["proof"]["detail"]
        assert prove(app, policy, evaluation.standing_now(app, policy)) == []


def test_what_has_no_exact_form_in_the_lake_makes_a_proof_partial(kept: Place) -> None:
    name = _database(
        kept, "day Date, id UInt64, j JSON", """SELECT '2024-01-10', number, '{"a": 1}' FROM numbers(5)"""
    )
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "partial")
        assert "column j is compared after its cast to string" in said["facts"]["proof"]["detail"]


def test_rows_outside_of_the_time_of_their_partition_are_told(kept: Place) -> None:
    """The column takes the zone of the session: the same instants, filed under another month."""
    name = _database(
        kept,
        "ts DateTime('UTC'), id UInt64",
        "SELECT toDateTime('2024-01-31 23:30:00', 'UTC') + number * 3600, number FROM numbers(1)",
        key="toYYYYMM(ts)",
    )
    kept.execute(f"ALTER TABLE {name}.events MODIFY COLUMN ts DateTime('Asia/Tokyo')")  # changes no part
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "partial")
        assert "outside of the time" in said["facts"]["proof"]["detail"]


def test_a_sample_is_not_enough_for_a_policy_that_asks_for_all_rows(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name, verify="sample") as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "sample")
        full = replace(policy, verify=Verify.FULL)
        assert [one.standing.next for one in evaluation.standing_now(app, full)] == [NextAction.PROVE]


def _unpartitioned(place: Place, name: str) -> Table:
    """From now on; PyIceberg alone writes no partitions by month."""
    table = place.table(f"lake.{name}.events")
    with table.update_spec() as spec:
        for field in table.spec().fields:
            spec.remove_field(field.name)
    return place.table(f"lake.{name}.events")


def _append(place: Place, name: str, days: list[str]) -> None:
    """Rows that another program writes into the same table."""
    table = _unpartitioned(place, name)
    rows = [{"day": date.fromisoformat(day), "id": Decimal(77)} for day in days]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def test_rows_of_others_in_the_time_of_a_partition_are_told_and_change_nothing(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        _append(kept, name, ["2023-12-31", "2024-01-01", "2024-01-31", "2024-02-01"])
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "files")
        assert said["facts"]["proof"]["detail"].startswith("2 rows of others")


def test_a_key_without_a_time_is_proven_by_the_files_of_the_export(kept: Place) -> None:
    name = _database(
        kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)", key="id % 2"
    )
    with _app(kept, name, export_after="0s") as (app, policy):
        _exported(kept, app, policy)
        said = _prove(kept, app, policy)
        assert (said["state"], said["facts"]["proof"]["depth"]) == ("VERIFIED", "files")


def _proofs_now(place: Place, app: App, policy: Policy, stood: list[evaluation.Stood]) -> list[Process]:
    """Whatever their state."""
    begun = [begin_proof(app, policy, one, [one]) for one in stood]
    return _finish(place, app, [one for one in begun if one is not None])


def test_files_that_were_rewritten_are_proven_by_time_and_key(kept: Place) -> None:
    """Rows at the edges of months in a zone with summer time, of two tenants, in one file."""
    name = _database(
        kept,
        "ts DateTime('Europe/Berlin'), tenant String, id UInt32",
        "SELECT arrayJoin([toDateTime('2024-03-01 00:00:00', 'Europe/Berlin'), '2024-03-31 23:59:59', "
        "'2024-04-01 00:00:00', '2024-04-30 23:59:59']), arrayJoin(['a', 'it\\'s']), number FROM numbers(3)",
        key="(toYYYYMM(ts), tenant)",
    )
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        stood = evaluation.standing_now(app, policy)
        assert len(stood) == 4
        whole = kept.read(f"lake.{name}.events")
        _unpartitioned(kept, name).overwrite(whole)
        assert len(list(kept.table(f"lake.{name}.events").scan().plan_files())) == 1
        rows = _proofs_now(kept, app, policy, stood)
        assert [(row.state, fields_of(row.result)["depth"]) for row in rows] == [("COMPLETED", "rows")] * 4
        kept.table(f"lake.{name}.events").overwrite(whole.slice(1))
        ended = _proofs_now(kept, app, policy, stood)
        assert [one.error.code for one in ended if one.error] == ["proof_failed"]
        kept.table(f"lake.{name}.events").overwrite(pa.concat_tables([whole, whole.slice(0, 1)]))
        ended = _proofs_now(kept, app, policy, stood)
        assert [one.error.code for one in ended if one.error] == ["not_verifiable"]


def test_a_partition_that_the_source_no_longer_has_is_proven_by_what_was_read(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy):
        _exported(kept, app, policy)
        kept.execute(f"ALTER TABLE {name}.events DROP PARTITION 202401")
        documents.policy_run(app, name, dry_run=True)
        said = _prove(kept, app, policy)
        assert (said["state"], said["code"]) == ("VERIFIED", "gone_at_source")
        assert said["facts"]["proof"]["depth"] == "destination"


def test_a_proof_is_begun_once_and_one_that_ended_without_an_answer_waits(kept: Place) -> None:
    name = _database(kept, "day Date, id UInt64", "SELECT '2024-01-10', number FROM numbers(10)")
    with _app(kept, name) as (app, policy), kept.app() as other:
        _exported(kept, app, policy)
        stood = evaluation.standing_now(app, policy)
        [process] = prove(app, policy, stood)
        assert prove(other, policy, stood) == []  # it looked before; the lock refuses it
        app.store.request_cancel(process.id)
        _finish(kept, app, [process])
        [one] = evaluation.standing_now(app, policy)
        assert (one.standing.state, one.standing.code) == ("BLOCKED", "cancelled")
        later = replace(one.facts, now=one.standing.until, looked_at=one.standing.until)
        assert evaluation.stand(later).next is NextAction.PROVE


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
        documents.policy_run(app, name, dry_run=True)
        [look] = last_look(app, policy)
        for count in (1, 500):
            calls: Counter[str] = Counter()
            counted = App(app.config, around_store=lambda store, calls=calls: _Counted(store, calls))  # type: ignore[misc]
            found = evaluation.evaluate(counted, policy, [_of(look, count)])
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
        [one] = evaluation.standing_now(app, policy)
        for ok, state in ((False, "BLOCKED"), (True, "VERIFIED")):
            proof = Proof(process_id=ProcessId(one.partition.process), ok=ok, depth="destination")
            app.registry.record_proof(proof)
            assert [each.standing.state for each in evaluation.standing_now(app, policy)] == [state]
