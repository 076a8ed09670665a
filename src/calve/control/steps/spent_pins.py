"""Pins that the tasks which just ended were the last to need: released while other tasks go on (L29).

Part of the very change that ends those tasks, so that nothing can come between. A pin is spent
exactly once: in the change that ends its last task.
"""

from collections.abc import Sequence

from calve.control.steps.context import Context
from calve.model.change import PinChange, TaskChange
from calve.model.process import Process
from calve.model.states import PinState, TaskState

# Tasks start in order, so those that wait lie behind those that run, but for the few that back off.
# Of pins whose tasks lie beyond so many waiting ones it is not known; they are released later.
_LOOKED_AT = 100


def spent_pins(context: Context, process: Process, changes: Sequence[TaskChange]) -> tuple[PinChange, ...]:
    """Costs two reads of few rows, and only for a kind that has such pins. A kind that this worker does not
    know has none here: its pins go when the process ends."""
    done = {change.number for change in changes if change.after is TaskState.DONE}
    kind = context.kinds.get(process.kind)
    if not done or kind is None:
        return ()
    plan = context.plans.require(process.id)
    spans = [found for number in done if (found := kind.pin_tasks(process, plan, number)) is not None]
    if not spans:
        return ()
    running = context.store.tasks(process.id, frozenset({TaskState.RUNNING}))
    waiting = context.store.tasks(process.id, frozenset({TaskState.PENDING}), limit=_LOOKED_AT)
    live = {task.number for task in (*running, *waiting)} - done
    known_to = waiting[-1].number if len(waiting) == _LOOKED_AT else None
    names = {
        name
        for name, numbers in spans
        if not any(number in numbers for number in live) and (known_to is None or numbers[-1] <= known_to)
    }
    return tuple(PinChange(name=name, after=PinState.RELEASING) for name in sorted(names))
