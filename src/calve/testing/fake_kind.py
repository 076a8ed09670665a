"""A whole kind over a `World`: everything a real kind promises, none of its products.

A request is JSON: `{"tasks": 3, "pins": 1, "early": false, "nothing": false}`; all keys have defaults.
With `early`, each pin is read by a run of tasks of its own, and released once those have ended.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.model.change import NewPin, PinChange, Result
from calve.model.errors import PermanentError, RefusedError, TemporaryError, UnavailableError
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service
from calve.model.states import PinState
from calve.testing.fake_world import Snapshot, World

ROWS_PER_TASK = 100


@dataclass
class FakeKind(Kind):
    world: World
    name: str = "fake"

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        source = process.source.split(":")[0]
        return tuple(
            NewPin(name=f"calve-{process.id}-{attempt}-{index}", source=source, detail="{}")
            for index in range(int(_request(process).get("pins", 1)))
        )

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        for pin in pins:
            self._enter("take", process)
            self.world.takes[pin.name] += 1
            if self.world.takes[pin.name] > 1:
                self.world.violations.append(f"pin {pin.name} was taken twice")
            self.world.pins.add(pin.name)
        return [PinChange(name=pin.name, after=PinState.TAKEN, detail='{"taken": true}') for pin in pins]

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        if not _request(process).get("early"):
            return None
        read = json.loads(plan)
        pins, tasks = read["pins"], int(read["tasks"])
        each = -(-tasks // len(pins))
        return pins[number // each], range(number // each * each, min((number // each + 1) * each, tasks))

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        self._enter("plan", process)
        for pin in pins:
            if pin.name not in self.world.pins:
                self.world.violations.append(f"planned from pin {pin.name}, which does not hold")
        request = _request(process)
        if request.get("nothing"):
            return NothingToDo(result=Result(rows=0, files=0, bytes=0), message="already exported")
        stands = _by_task(adopted)
        tasks = tuple(
            NewTask(
                number=number,
                spec="{}",
                adopted_receipt=stands.get(number, ""),
                rows=ROWS_PER_TASK if number in stands else 0,
            )
            for number in range(int(request.get("tasks", 3)))
        )
        plan = {"tasks": len(tasks), "pins": [pin.name for pin in pins]}
        return Planned(plan=json.dumps(plan), tasks=tasks)

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        self._enter("order", process)
        self.world.ordered.append(tuple(json.loads(plan)["pins"]))
        reads = self.pin_tasks(process, plan, task.number)
        if reads is not None and reads[0] not in self.world.pins:
            self.world.violations.append(f"pin {reads[0]} was released before task {task.number} read it")
        return TaskOrder(
            process_id=process.id,
            number=task.number,
            attempt=attempt,
            function="calve.testing.fake_world:write",
            payload=json.dumps({"rows": ROWS_PER_TASK, "lane": process.lane}),
        )

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        self._enter("find_receipt", process)
        receipt = self.world.receipts.get((process.id, task.number, task.attempt))
        if receipt is None:
            return None
        return TaskResult(
            number=task.number, attempt=task.attempt, receipt=receipt, rows=ROWS_PER_TASK, files=1, bytes=1000
        )

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        self._enter("publish", process)
        mine = self.world.published(process.id)
        if mine is not None:
            return _published(mine)
        if process.id in self.world.tombstones:
            raise PermanentError(f"{process.id} was fenced", code="fenced")
        other = self.world.published_key(_key(process))
        if other is not None:
            raise RefusedError(f"already exported by {other.process_id}", code="already_exported")
        if len(receipts) != json.loads(plan)["tasks"]:
            raise TemporaryError("receipts are missing", code="receipts_missing")
        files = tuple(sorted(str(json.loads(receipt)["file"]) for receipt in receipts))
        note(json.dumps({"snapshot": process.id}))
        self._enter("send", process)
        self.world.send(Snapshot(process_id=process.id, key=_key(process), files=files))
        found = self.world.published(process.id)
        if found is None:
            raise TemporaryError("the commit was accepted and is not there", code="vanished")
        return _published(found)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        self._enter("fence", process)
        with self.world.lock:
            mine = self.world.published(process.id)
            if mine is not None:
                return _published(mine)
            self.world.tombstones.add(process.id)
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        self._enter("undo", process)
        return ", ".join(self.world.delete(process.id))

    def release(self, pin: Pin) -> None:
        self.world.enter("release")
        self.world.pins.discard(pin.name)

    def probe(self, service: Service, process: Process) -> None:
        self.world.enter("probe")
        if service in self.world.down:
            raise _down(service)

    def _enter(self, call: str, process: Process) -> None:
        self.world.enter(call)
        asks_source = call in ("take", "plan")
        asks_lake = call in ("plan", "find_receipt", "publish", "send", "fence", "undo")
        for service in sorted(self.world.down):
            if (asks_lake and service == process.lane) or (asks_source and service in process.needs):
                raise _down(service)


def _down(service: str) -> UnavailableError:
    return UnavailableError(f"{service} does not answer", code="unreachable", service=service)


def _request(process: Process) -> dict[str, Any]:
    return dict(json.loads(process.request or "{}"))


def _key(process: Process) -> str:
    return process.locks[0].name if process.locks else str(process.id)


def _by_task(adopted: AdoptedWork | None) -> dict[int, str]:
    if adopted is None:
        return {}
    return {int(json.loads(receipt)["task"]): receipt for receipt in adopted.receipts}


def _published(snapshot: Snapshot) -> Published:
    files = len(snapshot.files)
    result = Result(rows=files * ROWS_PER_TASK, files=files, bytes=files * 1000, snapshot_id="1")
    return Published(result=result, message=f"{files} files published")
