"""`make mutants`: modules in, mutants that nobody notices out."""

import argparse
import hashlib
import importlib.util
import sys
import zlib
from pathlib import Path

import pytest

from support.mutants import report
from support.mutants.places import Mutant
from support.mutants.run import KILLED, Mutation, Verdict

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "mutants"
MODULES = (
    *(f"calve.model.{name}" for name in ("apply", "change", "states", "tier", "reach")),
    *(f"calve.control.{name}" for name in ("decide", "perform", "facts", "leases", "budget")),
    *(f"calve.control.steps.{name}" for name in ("context", "plan", "publish", "tasks")),
    *(
        f"calve.iceberg.publish.{name}"
        for name in (
            "build", "commit", "fence", "history", "manifests", "marks", "presence", "probe", "publish", "replace",
        )
    ),
    "calve.parquet.publish",
)  # fmt: skip
# Those that need no engine, service or program, and seconds at most.
TESTS = (
    *("model", "control", "crash", "exactly_once", "destinations", "lake"),
    "contract/test_memory_store.py",
    "docs/test_state_diagrams.py",
    *(f"policy/test_{name}.py" for name in ("holds", "intents_fail_closed")),
)
QUICK = "not long and not spark and not services and not programs"


def main() -> int:
    asked = _arguments()
    modules = [name for name in MODULES if not asked.modules or name in asked.modules]
    kept = report.Kept(CACHE)

    if asked.report:
        report.write(ROOT, kept, MODULES)
        return 0

    def wanted(mutant: Mutant) -> bool:
        if asked.place and asked.place not in mutant.name:
            return False
        if zlib.crc32(mutant.name.encode()) % asked.every:
            return False
        return not asked.again or kept.verdict(mutant) != KILLED

    def done(module: str, verdicts: list[Verdict]) -> None:
        kept.add(module, verdicts, whole=not (asked.again or asked.place or asked.every > 1))

    files = [_origin(name) for name in MODULES]
    mutation = Mutation(
        modules=modules,
        traced=files,
        map_file=_map_file(files),
        seconds=asked.seconds,
        wanted=wanted,
        done=done,
    )
    folders = [str(ROOT / "tests" / name) for name in asked.tests or TESTS]
    code = pytest.main(
        ["-q", "-s", "-m", QUICK, "-k", "not over_a_real_database", "-p", "no:xdist", "-p", "no:cacheprovider",
         f"--rootdir={ROOT}", *folders],
        plugins=[mutation],
    )  # fmt: skip
    report.write(ROOT, kept, MODULES)
    return int(code)


def _map_file(files: list[str]) -> Path:
    """Of these very lines."""
    text = "".join(Path(file).read_text(encoding="utf-8") for file in files)
    return CACHE / f"map-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, name
    return spec.origin


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("modules", nargs="*", help="only these, such as calve.control.decide")
    parser.add_argument("--place", help="only mutants whose name has these words")
    parser.add_argument("--seconds", type=float, default=6.0, help="of tests that a mutant is shown to")
    parser.add_argument("--every", type=int, default=1, help="a sample: one of so many, always the same")
    parser.add_argument("--again", action="store_true", help="only those that were not killed the last time")
    parser.add_argument("--tests", nargs="*", help="only these folders of tests")
    parser.add_argument("--report", action="store_true", help="try nothing; write what is known")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
