"""`make soak HOURS=3`: a soak, its picture, and exit code 1 if something leaks, fails or is left."""

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from support.chaos.chronicle import Chronicle
from support.chaos.clients import Clients
from support.chaos.diary import Diary
from support.chaos.fleet import Fleet
from support.chaos.ledger import Ledger
from support.chaos.run import until_ready
from support.chaos.world import disk, world
from support.chaos.writer import Writer
from support.soak.picture import picture
from support.soak.samples import KEEP_HISTORY_DAYS, Samples
from support.soak.work import Rounds

# A lease as it is by default; history is forgotten within the run, or its rows would never be level.
_LIMITS = {
    "lease_seconds": 30.0,
    "keep_history_days": KEEP_HISTORY_DAYS,
    "keep_requests_hours": 0.1,
    "call_seconds": 15.0,
}
_SAMPLE_SECONDS = 10.0
_MOST_SAMPLES = 1_000  # the slopes compare each with each


def main() -> int:
    asked = _arguments()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="calve-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    problems, rounds, samples = _soak(folder, asked.hours * 3600, asked.workers)
    lines = samples.lines()
    problems += [fault for one in lines if (fault := one.fault())]
    document = {
        "hours": asked.hours,
        "rounds": rounds.done,
        "processes": rounds.processes,
        "problems": problems,
        "lines": [asdict(one) | {"slope_an_hour": round(one.slope(), 2)} for one in lines],
    }
    (folder / "soak.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "soak.svg").write_text(picture(lines), encoding="utf-8")
    print(f"{rounds.done} rounds, {rounds.processes} processes in {asked.hours:g} hours")
    for one in lines:
        print(f"{one.subject}: {one.measure} {one.values[-1]:.0f}, {one.slope():+.1f} an hour")
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    print(f"picture: {folder / 'soak.svg'}")
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where everything is written, and kept")
    return parser.parse_args()


def _soak(folder: Path, seconds: float, workers: int) -> tuple[list[str], Rounds, Samples]:
    diary, ledger = Diary(), Ledger()
    problems: list[str] = []
    with ExitStack() as stack:
        place = stack.enter_context(world(folder, diary, _LIMITS))
        writer = Writer(place, ledger, rows=(20, 60))
        writer.create(2)
        disks = [stack.enter_context(disk(folder / f"disk-{number}", diary)) for number in range(workers)]
        command = (sys.executable, "-m", "calve.cli", "--config", str(place.config))
        fleet = stack.enter_context(Fleet(place, disks, command, "soak", jumping_clock=False))
        until_ready(fleet)
        clients = Clients(fleet=fleet, ledger=ledger, diary=diary)
        client = stack.enter_context(clients.client())
        chronicle = Chronicle(catalog=place.catalog())
        rounds = Rounds(world=place, writer=writer, ledger=ledger, chronicle=chronicle, client=client)
        samples = Samples(world=place, fleet=fleet)
        began, sampled = time.monotonic(), 0.0
        every = max(_SAMPLE_SECONDS, seconds / _MOST_SAMPLES)
        while (now := time.monotonic() - began) < seconds:
            problems += rounds.next()
            if now - sampled >= every or not sampled:
                sampled = now
                samples.take(now)
        problems += fleet.stop(120.0)
        problems += [f"a process outlived its program: {one}" for one in fleet.left()]
        problems += [f"{one.name} ended by itself with {one.codes}" for one in fleet.all if one.codes]
    return problems, rounds, samples


if __name__ == "__main__":
    sys.exit(main())
