"""The scene of L1 to L6, for every kind of executor: the S3 server is killed in mid-upload, exports are submitted
meanwhile, another destination is alive, the server comes back."""

import time

from calve.control.why import why
from calve.model.states import PROCESS_TERMINAL, ProcessState, TaskState
from support.network_proxy import Fault, NetworkProxy
from support.outage_place import (
    PARTITIONS,
    PARTS,
    ROWS_OF_A_PART,
    Executors,
    OutagePlace,
    make_table,
    until,
)
from support.s3 import S3Server

EVERY_ROW = list(range(PARTS * ROWS_OF_A_PART))
LANE = "catalog:far"
SLOW = 150_000  # bytes a second: an upload takes some two seconds, and its timeout more


def ten_parts_go_through_the_death_of_their_storage(
    place: OutagePlace, s3: S3Server, network: NetworkProxy, runner: Executors
) -> None:
    place.place.execute(*make_table("events"), *make_table("later"), *make_table("other", rows=100))
    with place.worker():
        with runner.holding():
            before = place.submit("events", "far.ns.events")
            until(lambda: place.planned(before), "all five exports to be planned")
            network.set(Fault(bytes_per_second=SLOW))
            sent = network.counts.request_bytes
        until(lambda: runner.busy == runner.slots, "every slot to hold an upload")
        until(lambda: network.counts.request_bytes > sent + 50_000, "an upload to be half done")
        s3.kill()
        killed = time.monotonic()
        assert ProcessState.RUNNING in place.states(before)
        network.heal()
        # L2: every slot is free, because the breaker opened.
        until(lambda: place.breakers() == [LANE] and runner.busy == 0, "the slots to be free")
        print(f"slots free {time.monotonic() - killed:.1f} s after the death")
        # L3: all accepted, by partition and by part, with the storage dead.
        meanwhile = place.submit("later", "far.ns.whole")
        for part in _parts(place, "later"):
            meanwhile += place.submit("later", "far.ns.parts", parts=[part])
        assert len(meanwhile) == PARTITIONS + PARTS
        # L6: another destination has the slots.
        alive = place.submit("other", "lake.ns.other")
        assert {process.state for process in place.finish(alive, seconds=300)} == {ProcessState.COMPLETED}
        assert place.breakers() == [LANE]
        waiting = [process for process in place.rows(before) if process.state not in PROCESS_TERMINAL]
        assert all("has been down since" in why(place.app.store, process) for process in waiting) and waiting
        # L4: the source is dropped at once, though ten of its parts wait to be read.
        place.place.execute("DROP TABLE db.events SYNC")
        assert not place.ended(before + meanwhile)
        # L5: nobody helps.
        s3.start()
        back = time.monotonic()
        ended = place.finish(before + meanwhile, seconds=300)
        print(f"last of {len(ended)} exports done {time.monotonic() - back:.1f} s after the return")
    failed = [process.id for process in ended if process.state is not ProcessState.COMPLETED]
    assert not failed, place.told(failed[0])
    assert place.ids_in("far.ns.events") == EVERY_ROW
    assert place.ids_in("far.ns.whole") == EVERY_ROW
    assert place.ids_in("far.ns.parts") == EVERY_ROW
    assert place.ids_in("lake.ns.other") == list(range(PARTS * 100))
    assert place.breakers() == []
    # The outage used nobody's budget.
    for process in ended:
        assert process.plan_attempts <= 2 and process.publish_attempts <= place.app.limits.publish_attempts
        for task in place.app.store.tasks(process.id):
            assert task.state is TaskState.DONE
            assert task.attempt - task.free_attempts <= 1, runner.errors


def _parts(place: OutagePlace, table: str) -> list[str]:
    found = place.place.select(
        f"SELECT name FROM system.parts WHERE active AND database = 'db' AND table = '{table}'"
    )
    assert len(found) == PARTS
    return [row["name"] for row in found]
