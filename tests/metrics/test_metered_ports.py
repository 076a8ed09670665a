"""Meters around the ports: what they count, and that they change nothing."""

from dataclasses import replace
from typing import Any

import pytest

from calve.control.background import inline
from calve.control.ports import TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.metrics.meters import CODES, Meters
from calve.metrics.names import Told
from calve.metrics.wrappers import KindsOf, MeteredRunner, MeteredStore, WorkersStore, logged, metered
from calve.model.errors import ConflictError, ErrorInfo, NotFoundError, StoreError, StoreUnknownError
from calve.model.limits import Limits
from calve.model.process import ProcessId, WorkerId
from calve.model.states import ProcessState
from calve.testing.clock import FakeClock
from calve.testing.fake_runner import Ends
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import REACH, Scene

BUSY = ErrorInfo(code="storage_busy", message="again", retryable=True)


class Metered(Scene):
    """A scene whose workers are metered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.meters = Meters(Told.WORKER)

    def metered_worker(self, name: str = "metered") -> WorkerLoop:
        known = KindsOf()
        return WorkerLoop(
            store=WorkersStore(self.store, self.meters),
            kinds=logged(metered({"fake": self.kind}, self.meters, known)),
            runner=MeteredRunner(self.runner, self.meters, known),
            limits=self.limits,
            reach=REACH,
            worker_id=WorkerId(name),
            spawn=inline,
            monotonic=self.clock.offset_seconds,
        )

    def value(self, name: str, **labels: str) -> float:
        return self.meters.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def scene() -> Metered:
    clock = FakeClock()
    return Metered(store=MemoryStore(clock), clock=clock, limits=Limits(slots=0))


def test_a_whole_process_is_metered_and_ends_as_it_would(scene: Metered) -> None:
    process_id = scene.submit(tasks=3)
    scene.runner.script[process_id, 1] = [BUSY]
    scene.runner.script[process_id, 2] = [Ends.TWICE]
    scene.run(scene.metered_worker())
    row = scene.row(process_id)
    assert row.state is ProcessState.COMPLETED
    assert scene.value("calve_task_seconds_count", kind="fake", outcome="done") == 3
    assert scene.value("calve_task_seconds_count", kind="fake", outcome="failed") == 1
    assert scene.value("calve_retries_total", kind="fake", code="storage_busy") == 1
    assert scene.value("calve_publish_seconds_count", kind="fake", outcome="done") == 1
    assert scene.value("calve_rows_total", kind="fake") == row.rows > 0
    assert scene.value("calve_bytes_total", kind="fake") == row.bytes
    assert scene.value("calve_slots", state="used") == 0
    assert scene.value("calve_slots", state="free") == scene.runner.slots
    assert scene.value("calve_store_call_seconds_count", call="submit", outcome="ok") == 0  # the scene's own
    assert scene.value("calve_store_call_seconds_count", call="apply", outcome="ok") > 3
    assert scene.value("calve_leases_lost_total") == 0


def test_an_attempt_that_is_lost_is_counted_and_frees_its_slot(scene: Metered) -> None:
    process_id = scene.submit(tasks=1)
    scene.runner.script[process_id, 0] = [Ends.LOST]
    scene.run(scene.metered_worker())
    assert scene.value("calve_task_seconds_count", kind="fake", outcome="lost") == 1
    assert scene.value("calve_retries_total", kind="fake", code="attempt_lost") == 1
    assert scene.value("calve_slots", state="used") == 0


def test_a_lease_that_another_took_is_counted_once_and_one_given_up_is_not(scene: Metered) -> None:
    process_id = scene.submit(tasks=1, hang=True)
    store = WorkersStore(scene.store, scene.meters)
    (row,) = claimed(store, "first")
    scene.clock.advance(31)
    (taken,) = claimed(scene.store, "second")
    assert taken.id == row.id and taken.fence > row.fence
    assert claimed(store, "first") == []
    assert scene.value("calve_leases_lost_total") == 1
    assert claimed(store, "first") == []
    assert scene.value("calve_leases_lost_total") == 1
    scene.clock.advance(31)
    (again,) = claimed(store, "first")
    store.yield_(lease_of(again))
    assert [one.id for one in claimed(scene.store, "third")] == [process_id]
    claimed(store, "first")
    assert scene.value("calve_leases_lost_total") == 1


def claimed(store: Any, worker: str) -> list[Any]:
    rows: list[Any] = store.claim(WorkerId(worker), REACH | {"kind:fake"}, lease_seconds=30.0, limit=5)
    return rows


def lease_of(row: Any) -> Any:
    from calve.model.process import Lease

    return Lease(process_id=row.id, worker=row.owner, fence=row.fence)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        (NotFoundError("x", code="not_found"), "ok"),
        (ConflictError("x", code="conflict"), "ok"),
        (StoreError("x", code="store_unavailable"), "error"),
        (StoreUnknownError("x", code="store_unknown"), "unknown"),
        (ZeroDivisionError("x"), "error"),
    ],
)
def test_a_call_of_the_store_is_timed_by_how_it_ended(error: Exception | None, outcome: str) -> None:
    class Inner:
        def process(self, given: str, *, more: int) -> tuple[str, int]:
            if error:
                raise error
            return given, more

    meters = Meters()
    store = MeteredStore(Inner(), meters)
    if error:
        with pytest.raises(type(error)):
            store.process("a", more=1)
    else:
        assert store.process("a", more=1) == ("a", 1)
    labels = {"call": "process", "outcome": outcome}
    assert meters.registry.get_sample_value("calve_store_call_seconds_count", labels) == 1


def test_slots_are_used_while_attempts_run() -> None:
    meters, seen = Meters(Told.WORKER), []

    class Looking:
        slots = 3

        def run(self, group: str, orders: Any, on_result: Any) -> None:
            for order in orders:
                seen.append(used())
                on_result(TaskResult(number=order.number, attempt=order.attempt, rows=1))
                on_result(TaskResult(number=order.number, attempt=order.attempt, rows=1))

        def cancel(self, group: str) -> None: ...
        def close(self) -> None: ...

    def used() -> tuple[float | None, float | None]:
        value = meters.registry.get_sample_value
        return value("calve_slots", {"state": "used"}), value("calve_slots", {"state": "free"})

    runner = MeteredRunner(Looking(), meters, KindsOf(), slots=3)
    order = TaskOrder(process_id=ProcessId("p"), number=0, attempt=1, function="m:f", payload="")
    told: list[TaskResult] = []
    runner.run("g", [order, replace(order, number=1)], told.append)
    assert seen == [(2, 1), (1, 2)] and used() == (0, 3)
    assert len(told) == 4, "a result that comes twice is passed on twice"
    assert meters.registry.get_sample_value("calve_rows_total", {"kind": "other"}) == 2


def test_codes_of_errors_are_bounded() -> None:
    meters = Meters(Told.WORKER)
    assert [meters.code(f"code_{n}") for n in range(CODES)][-1] == f"code_{CODES - 1}"
    assert meters.code("one_more") == "other"
    assert meters.code("code_0") == "code_0"
