"""A process of more tasks than a server tells at once, held by a worker that is busy elsewhere."""

from calve.control.ports import Store
from calve.model.change import Change, MoveTo, WritePlan
from calve.model.process import NewTask
from calve.model.states import ProcessState
from calve.testing.contracts.contract import ANNE, REACH, lease_of, new


def begin_a_long_one(store: Store, *, tasks: int) -> None:
    [row] = store.submit([new(source="main:db.long", destination="lake.ns.long")])
    [row] = store.claim(ANNE, REACH, lease_seconds=3600, limit=1, only=frozenset({row.id}))
    planned = [NewTask(number=number, spec="{}") for number in range(tasks)]
    begun = Change(MoveTo(ProcessState.RUNNING), WritePlan("{}"), *planned, expect_version=row.version)
    store.apply(lease_of(row), begun)
