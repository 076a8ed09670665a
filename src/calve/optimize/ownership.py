"""Which process a file or a snapshot belongs to, as far as this store knows (D15)."""

import json
from collections.abc import Callable

from calve.control.ports import StoreReader
from calve.iceberg.health.orphans import Owner
from calve.iceberg.publish.marks import tag_of
from calve.model.errors import NotFoundError, Outcome
from calve.model.ids import ProcessId
from calve.model.process import Process
from calve.model.states import PROCESS_LIVE, Leftovers

_MAY_STILL_BE_USED = frozenset({Leftovers.KEPT, Leftovers.ADOPTED, Leftovers.UNDOING})
_MOST_LIVE = 100_000


def owner_in(store: StoreReader, table: str) -> Callable[[str], Owner]:
    """What the store says about a process, seen from a table: a process that wrote elsewhere is another's."""

    def owner(process_id: str) -> Owner:
        try:
            process = store.process(ProcessId(process_id))
        except NotFoundError:
            return Owner.UNKNOWN
        if _may_need_files(process):
            return Owner.LIVE
        return Owner.ENDED if process.destination == table else Owner.OTHERS

    return owner


def _may_need_files(process: Process) -> bool:
    if process.state in PROCESS_LIVE or process.leftovers in _MAY_STILL_BE_USED:
        return True
    return process.error is not None and process.error.outcome is Outcome.UNKNOWN


def held_snapshots(
    store: StoreReader, table_uuid: str, besides: str = ""
) -> tuple[frozenset[int], frozenset[str]]:
    """The base snapshots of live processes that work on a table, and the tags that live processes may
    still look for. `besides` is the process that asks: once its tasks are done it needs its base no more."""
    bases: set[int] = set()
    tags: set[str] = set()
    for process in store.live(_MOST_LIVE):
        tags.add(tag_of(process.id))
        if (text := store.plan(process.id)) is None:
            continue
        plan = json.loads(text)
        destination = plan.get("destination") or plan
        base = destination.get("base_snapshot_id")
        if destination.get("uuid") == table_uuid and base is not None and process.id != besides:
            bases.add(int(base))
    return frozenset(bases), frozenset(tags)


def live_ids(store: StoreReader) -> frozenset[str]:
    return frozenset(process.id for process in store.live(_MOST_LIVE))
