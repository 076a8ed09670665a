"""From events to pings: one start and one end for each unit of work, which is a batch or a single process.

Processes of a batch end one by one. A success after the failure of another would hide it, so a batch is a
success only when all of it is, and a failure once.
"""

from collections.abc import Callable, Iterable, Sequence

from calve.model.access import Notice
from calve.model.change import CANCELLED, FAILED, SUBMITTED
from calve.model.process import Event, Process
from calve.model.states import ProcessState
from calve.notify.notices import DONE_EVENTS, News, ProcessOf
from calve.notify.targets import Ping

BatchOf = Callable[[Process], Sequence[Process]]  # all processes of its batch; itself if it has none


def pings(
    target: Ping, store_id: str, events: Iterable[Event], process_of: ProcessOf, batch_of: BatchOf
) -> News:
    found: dict[str, Notice] = {}
    for event in events:
        if event.name not in DONE_EVENTS | {SUBMITTED, FAILED, CANCELLED}:
            continue
        process = process_of(event.process_id)
        if not target.wants(process):
            continue
        name = _name(event, process, batch_of)
        if name and target.url(name):
            made = f"{store_id}-{process.batch or process.id}-{target.key}-{name}"
            found.setdefault(
                made, Notice(id=made, target=target.key, name=name, process_id=process.id, body="{}")
            )
    return News(notices=tuple(found.values()))


def _name(event: Event, process: Process, batch_of: BatchOf) -> str:
    if event.name == SUBMITTED:
        return "start"
    if event.name not in DONE_EVENTS:
        return "fail"
    done = all(one.state is ProcessState.COMPLETED for one in batch_of(process))
    return "success" if done else ""
