"""An outage of the storage, measured: a real S3 server is killed in mid-upload and started again.

    python bench/outage.py [--rows 20000] [--to iceberg] [--to parquet]

Five partitions of ten parts are under way when it dies; while it is dead, ten parts are submitted,
each as an export of its own, and five partitions. For an Iceberg table and for plain Parquet. Prints the seconds from its death to all slots free (bound: 15), from its return to the last export
done, from a cancel inside a hanging upload to the freed slot (bound: 5), with the exports tried and
the rows lost or doubled (0). The limits are the defaults. Ends with 1 if a bound is broken.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from calve.model.states import ProcessState
from support.child_runner import ChildRunner
from support.network_proxy import Fault, Mode, NetworkProxy
from support.outage_place import BUCKET, PARTITIONS, PARTS, OutagePlace, behind, make_table, until
from support.s3 import S3Server, s3_server

FREE_SECONDS, CANCEL_SECONDS = 15.0, 5.0
DESTINATIONS = {"iceberg": "far.ns.{}", "parquet": f"s3://{BUCKET}/plain/{{}}/"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a part")
    parser.add_argument("--to", choices=DESTINATIONS, action="append", help="default: one after another")
    given = parser.parse_args()
    return max(_measured(to, given.rows) for to in given.to or DESTINATIONS)


def _measured(to: str, rows: int) -> int:
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as server:
        server.create_bucket(BUCKET)
        with NetworkProxy(server.port) as network:
            print(f"-- to {to}")
            return _measure(Path(folder) / "place", server, network, DESTINATIONS[to], rows)


def _measure(folder: Path, server: S3Server, network: NetworkProxy, to: str, rows: int) -> int:
    runner = ChildRunner(slots=2)
    place = OutagePlace(folder, runner, behind(server, network.port), defaults=True, keep_source=False)
    try:
        place.place.execute(*make_table("events", rows=rows), *make_table("later", rows=rows))
        runner.warm()
        with place.worker():
            cancelled = _cancel(place, network, to)
            free, done, exports = _outage(place, server, network, to)
        found = Counter(row for name in ("events", "whole", "parts") for row in place.ids_in(to.format(name)))
    finally:
        place.close()
        runner.close()
    wrong = sum(abs(found[number] - 3) for number in range(PARTS * rows))
    print(f"exports tried                     {exports}")
    print(f"death to all slots free           {free:6.1f} s  (bound {FREE_SECONDS:.0f})")
    print(f"return to the last export done    {done:6.1f} s")
    print(f"cancel in a hanging upload to free {cancelled:5.1f} s  (bound {CANCEL_SECONDS:.0f})")
    print(f"rows lost or doubled              {wrong}")
    return int(wrong > 0 or free > FREE_SECONDS or cancelled > CANCEL_SECONDS)


def _cancel(place: OutagePlace, network: NetworkProxy, to: str) -> float:
    """Seconds from a cancel inside an upload that hangs to slot and pin free."""
    with place.runner.holding():
        [hanging] = place.submit("events", to.format("hung"), "1")
        until(lambda: place.planned([hanging]), "the plan")
        network.set(Fault(bytes_per_second=200_000))
        sent = network.counts.request_bytes
    until(lambda: network.counts.request_bytes > sent + 50_000, "the upload to be half done")
    network.set(Fault(mode=Mode.BLACK_HOLE))
    place.app.store.request_cancel(hanging)
    asked = time.monotonic()
    until(
        lambda: place.ended([hanging]) and not place.runner.busy and not place.held_pins([hanging]),
        "the cancel",
    )
    network.heal()
    return time.monotonic() - asked


def _outage(place: OutagePlace, server: S3Server, network: NetworkProxy, to: str) -> tuple[float, float, int]:
    parts = place.place.select("SELECT name FROM system.parts WHERE active AND table = 'later'")
    with place.runner.holding():
        ids = place.submit("events", to.format("events"))
        until(lambda: place.planned(ids), "the plans")
        network.set(Fault(bytes_per_second=300_000))
        sent = network.counts.request_bytes
    until(lambda: network.counts.request_bytes > sent + 100_000, "the uploads to be half done")
    server.kill()
    killed = time.monotonic()
    network.heal()
    until(lambda: bool(place.breakers()) and not place.runner.busy, "the slots to be free")
    free = time.monotonic() - killed
    ids += place.submit("later", to.format("whole"))
    for part in parts:
        ids += place.submit("later", to.format("parts"), parts=[part["name"]])
    assert len(ids) == 2 * PARTITIONS + PARTS
    server.start()
    back = time.monotonic()
    ended = place.finish(ids, seconds=600)
    done = time.monotonic() - back
    for process in ended:
        if process.state is not ProcessState.COMPLETED:
            raise SystemExit(f"error: process {process.id} is {process.state}:\n{place.told(process.id)}")
    return free, done, len(ids)


if __name__ == "__main__":
    sys.exit(main())
