"""One façade shared by threads: what they see and do together is what one would see and do alone."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.values import Selection
from calve.app.view import detail_json, event_json, process_json, reason_json
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState

THREADS = 6
TABLES = tuple(f"t{number}" for number in range(THREADS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shared")
    (made / "calve.toml").write_text(render())
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        for table in TABLES:
            session.execute(
                f"CREATE TABLE db.{table} (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
            )
            session.execute(f"INSERT INTO db.{table} SELECT number, number % 3 FROM numbers(300)")
    return made


@contextmanager
def opened(folder: Path) -> Iterator[Calve]:
    with Calve(load_config(folder / "calve.toml", environ={})) as calve:
        yield calve


def together(calls: Sequence[Any]) -> list[Any]:
    """All at once: each waits for the others before it begins, so that nothing is built yet."""
    barrier = Barrier(len(calls))

    def start(call: Any) -> Any:
        barrier.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(start, call) for call in calls]]


def test_submits_and_reads_of_one_facade_equal_those_of_one_thread(folder: Path) -> None:
    with opened(folder) as calve:
        answers = together(
            [lambda t=t: calve.export(f"db.{t}", f"lake.ns.{t}", Selection(all=True)) for t in TABLES]
        )
        ids = [process.id for answer in answers for process in answer.processes]
        assert len(set(ids)) == 3 * THREADS
        for table, answer in zip(TABLES, answers, strict=True):
            assert {process.source for process in answer.processes} == {f"main:db.{table}"}
            assert sorted(process.partitions for process in answer.processes) == [("0",), ("1",), ("2",)]
            assert len({process.batch for process in answer.processes}) == 1

        def read() -> dict[str, Any]:
            return {
                "processes": [process_json(one) for one in calve.processes(ProcessQuery())],
                "show": [detail_json(one) for one in calve.show(ids)],
                "events": [event_json(one) for one in calve.events(ids)],
                "why": [reason_json(one) for one in calve.why(ids)],
                "partitions": calve.partitions("db.t0", "lake.ns.t0"),
                "workers": calve.workers(),
            }

        alone = read()
        assert together([read] * THREADS) == [alone] * THREADS


def test_T16_one_request_from_many_threads_is_queued_by_one_and_joined_by_the_others(folder: Path) -> None:
    with opened(folder) as calve:
        answers = together(
            [lambda: calve.export("db.t0", "lake.ns.once", Selection(partitions=("1",)))] * THREADS
        )
        [process] = calve.processes(ProcessQuery(destination="lake.ns.once"))
        assert {one.id for answer in answers for one in answer.processes} == {process.id}
        assert sorted(len(answer.joined) for answer in answers) == [0] + [1] * (THREADS - 1)
        cancelled = together([lambda: calve.cancel([process.id])[0]] * THREADS)
        assert all(answer.accepted for answer in cancelled)
        for standing in calve.stop([process]):
            last = standing
        assert [one.state for one in last.processes] == [ProcessState.CANCELLED]
