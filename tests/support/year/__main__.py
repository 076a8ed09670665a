"""`make year`: one seed told step by step, or many; `make year-bugs`: every rule removed once."""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

from support.year import mistakes_elsewhere, table
from support.year.mistakes import MISTAKES, planted
from support.year.run import run
from support.year.world import YearCase

assert mistakes_elsewhere


def main() -> int:
    parser = argparse.ArgumentParser(prog="make year")
    parser.add_argument("--seed", type=int, help="one year, told step by step")
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--actions", help="only these, by name, with commas; - for none")
    parser.add_argument("--faults", help="only these, by name, with commas; - for none")
    parser.add_argument("--bug", help="with this rule removed; several with commas, with --every-bug")
    parser.add_argument(
        "--every-bug", action="store_true", help="remove every rule once; writes docs/year.md"
    )
    asked = parser.parse_args()
    if asked.every_bug:
        return table.write(asked.seeds, tuple(asked.bug.split(",")) if asked.bug else ())
    with ExitStack() as stack:
        if asked.bug:
            stack.enter_context(planted(asked.bug))
        seeds = range(asked.first, asked.first + asked.seeds) if asked.seed is None else [asked.seed]
        return max(_one(asked, seed) for seed in seeds)


def _one(asked: argparse.Namespace, seed: int) -> int:
    case = MISTAKES[asked.bug].case(seed) if asked.bug else YearCase(seed=seed)
    began = time.process_time()
    verdict = run(
        replace(
            case,
            actions=_names(asked.actions),
            faults=_names(asked.faults),
            log=print if asked.seed is not None else None,
        )
    )
    for problem in verdict.problems:
        print(f"problem: {problem}", file=sys.stderr)
    did = ", ".join(f"{count} {kind}s" for kind, count in sorted(verdict.processes.items()))
    seconds = time.process_time() - began
    print(
        f"seed {seed}: {'held' if verdict.ok else 'FAILED'}; {did}; {verdict.checks} looks; {seconds:.1f} CPU-seconds"
    )
    return 0 if verdict.ok else 1


def _names(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    return frozenset() if text == "-" else frozenset(text.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
