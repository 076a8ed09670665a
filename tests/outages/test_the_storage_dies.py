"""The scene of L1 to L6: the S3 server is killed in mid-upload, exports are submitted meanwhile, another
destination is alive, the server comes back. Everything is real: SeaweedFS, its death, the engine."""

import time
from collections.abc import Iterator

import pytest
from storage_scene import EVERY_ROW, LANE, SLOW, ten_parts_go_through_the_death_of_their_storage

from calve.model.errors import UnavailableError
from calve.model.states import ProcessState
from support.network_proxy import Fault, Mode, NetworkProxy
from support.outage_place import ROWS_OF_A_PART, Executors, OutagePlace, make_table, until
from support.s3 import S3Server
from support.sparks import on_a_cluster_too

pytestmark = pytest.mark.services


@pytest.fixture
def running(s3: S3Server) -> Iterator[S3Server]:
    """The server, running again afterwards whatever the test did to it."""
    yield s3
    if not s3.program.running:
        s3.start()


@on_a_cluster_too
def test_L1_to_L6_ten_parts_go_through_the_death_of_their_storage_exactly_once(
    place: OutagePlace, running: S3Server, network: NetworkProxy, runner: Executors
) -> None:
    ten_parts_go_through_the_death_of_their_storage(place, running, network, runner)


@on_a_cluster_too
def test_L1_a_cancel_reaches_inside_a_hanging_upload(
    place: OutagePlace, network: NetworkProxy, runner: Executors
) -> None:
    place.place.execute(*make_table("hung"))
    with place.worker():
        [first] = place.submit("hung", "far.ns.hung", "0")
        place.finish([first])
        with runner.holding():
            [hanging] = place.submit("hung", "far.ns.hung", "1")
            until(lambda: place.planned([hanging]), "the plan")
            network.set(Fault(bytes_per_second=SLOW))
            sent = network.counts.request_bytes
        until(lambda: runner.busy == 1, "the upload to begin")
        until(lambda: network.counts.request_bytes > sent + 50_000, "the upload to be half done")
        network.set(Fault(mode=Mode.BLACK_HOLE))
        place.app.store.request_cancel(hanging)
        asked = time.monotonic()
        until(lambda: place.ended([hanging]), "the cancel")
        until(lambda: runner.busy == 0 and not place.held_pins([hanging]), "slot and pin to be free")
        print(f"slot and pin free {time.monotonic() - asked:.1f} s after the cancel")
        # It did not take the storage's own timeout to end it: nothing was found to be down.
        assert place.breakers() == []
        [process] = place.rows([hanging])
        assert process.state is ProcessState.CANCELLED
        network.heal()
        # The slot is as good as new, and what was cancelled published nothing.
        [again] = place.submit("hung", "far.ns.hung", "2")
        [done] = place.finish([again])
        assert done.state is ProcessState.COMPLETED, place.told(again)
    months = place.place.read("far.ns.hung").column("month").to_pylist()
    assert sorted(set(months)) == [0, 2]
    assert len(months) == 4 * ROWS_OF_A_PART


def test_L2_a_storage_that_never_answers_is_known_within_one_call_s_bound(
    place: OutagePlace, network: NetworkProxy
) -> None:
    """Also for the metadata files that the catalog's client reads: it tries three times."""
    place.place.execute(*make_table("silent"))
    with place.worker():
        place.finish(place.submit("silent", "far.ns.silent", "0"))
    network.set(Fault(mode=Mode.BLACK_HOLE))
    limits = place.app.limits
    properties = place.app.catalog("far").properties
    assert 3 * float(properties["s3.request-timeout"]) <= limits.call_seconds
    assert 3 * float(properties["s3.connect-timeout"]) <= limits.call_seconds
    with pytest.raises(UnavailableError) as told:
        place.app.storage("far").read("s3://far/warehouse/ns/silent/metadata/calve/none")
    assert told.value.service == "storage:s3://far"


def test_L5_a_catalog_that_answers_does_not_close_the_breaker_of_a_dead_storage(
    place: OutagePlace, running: S3Server, network: NetworkProxy, runner: Executors
) -> None:
    """The lane is the catalog's, and what is dead stands behind it. Were the probe to ask the catalog
    alone, the breaker would close at once and every slot would run into the dead storage again."""
    place.place.execute(*make_table("flap"))
    with place.worker():
        with runner.holding():
            ids = place.submit("flap", "far.ns.flap")
            until(lambda: place.planned(ids), "the plans")
            network.set(Fault(bytes_per_second=SLOW))
        until(lambda: runner.busy == runner.slots, "every slot to hold an upload")
        network.set(Fault(mode=Mode.REFUSE))
        until(lambda: place.breakers() == [LANE] and runner.busy == 0, "the breaker to open")
        [opened] = place.app.store.breakers()
        # A tick that looked before it opened may still start one attempt.
        until(lambda: _probes(place) > opened.probes and runner.busy == 0, "a probe")
        attempts = [task.attempt for one in ids for task in place.app.store.tasks(one)]
        until(lambda: _probes(place) >= opened.probes + 4, "three more probes")
        [still] = place.app.store.breakers()
        assert still.opened_at == opened.opened_at
        assert [task.attempt for one in ids for task in place.app.store.tasks(one)] == attempts
        network.heal()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}
    assert place.ids_in("far.ns.flap") == EVERY_ROW


def _probes(place: OutagePlace) -> int:
    return sum(breaker.probes for breaker in place.app.store.breakers())
