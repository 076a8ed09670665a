"""`make sim`: one seed told step by step, or many, each failing one made small and told how to replay."""

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack

from support.simulator import table
from support.simulator.bugs import BUGS, planted
from support.simulator.run import Verdict, run
from support.simulator.shrink import shrunk
from support.simulator.storm import storm_of_seed
from support.simulator.world import Case


def main() -> int:
    asked = _arguments()
    with ExitStack() as stack:
        if asked.bug:
            stack.enter_context(planted(asked.bug))
        if asked.every_bug:
            return table.write(asked.seeds)
        if asked.seed is not None:
            return _one(asked)
        return _many(asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seed", type=int, help="one history, told step by step")
    parser.add_argument("--seeds", type=int, default=200, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--actions", help="only these, by name, with commas; - for none")
    parser.add_argument("--faults", help="only these, by name, with commas; - for none")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this mistake planted")
    parser.add_argument("--every-bug", action="store_true", help="look for every planted mistake")
    return parser.parse_args()


def _one(asked: argparse.Namespace) -> int:
    verdict = run(
        Case(seed=asked.seed, actions=_names(asked.actions), faults=_names(asked.faults), log=print)
    )
    for problem in verdict.problems:
        print(f"problem: {problem}", file=sys.stderr)
    print(f"trace {verdict.trace}", file=sys.stderr)
    return 0 if verdict.ok else 1


def _many(asked: argparse.Namespace) -> int:
    began = time.process_time()
    processes = faults = 0
    storms: Counter[str] = Counter()
    for number, seed in enumerate(range(asked.first, asked.first + asked.seeds), start=1):
        verdict = run(Case(seed=seed))
        storms[storm_of_seed(seed).name] += 1
        processes += verdict.processes
        faults += len(verdict.faults)
        if not verdict.ok:
            _tell_failed(verdict, asked.bug, number)
            return 1
    seconds = time.process_time() - began
    kinds = ", ".join(f"{count} {name}" for name, count in storms.most_common())
    print(
        f"{asked.seeds} histories ({kinds}), {processes} processes, {faults} faults, {seconds:.0f} CPU-seconds: all held"
    )
    return 0


def _tell_failed(verdict: Verdict, bug: str | None, number: int) -> None:
    print(f"seed {verdict.case.seed} failed, the {number}. history", file=sys.stderr)
    small = shrunk(verdict, tell=lambda text: print(f"  shrinking: {text}", file=sys.stderr))
    for problem in small.problems:
        print(f"problem: {problem}", file=sys.stderr)
    print(f"replay: {command(small, bug)}", file=sys.stderr)


def command(verdict: Verdict, bug: str | None = None) -> str:
    """What shows this very history once more."""
    case = verdict.case
    more = [f"--bug {bug}"] if bug else []
    if case.actions is not None:
        more.append(f"--actions {','.join(sorted(case.actions)) or '-'}")
    if case.faults is not None:
        more.append(f"--faults {','.join(sorted(case.faults)) or '-'}")
    tail = f' MORE="{" ".join(more)}"' if more else ""
    return f"make sim SEED={case.seed}{tail}"


def _names(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    return frozenset() if text == "-" else frozenset(text.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
