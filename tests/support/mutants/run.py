"""The part of pytest that, once all tests are collected, forks a child for each mutant.

First, in one child, each test runs under a tracer that notes which lines of the modules it runs, and for how long. A
mutant is then shown to the tests that run its line, those first that have noticed others in the same function.
"""

import ast
import importlib
import itertools
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.mutants import patch
from support.mutants.places import Mutant, mutants

KILLED, SURVIVED, UNSEEN, UNFIT = "killed", "survived", "no test runs it", "cannot be put in"
Tell = Callable[[str], None]
_MEMORY_BYTES = 6 * 2**30
_SLOW_START_SECONDS = 8.0  # what one test may take before a loop without end is assumed


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one test did in the unchanged program."""

    seconds: float
    passed: bool
    lines: dict[str, frozenset[int]]  # by file


@dataclass(kw_only=True)
class Verdict:
    mutant: Mutant
    what: str
    by: str = ""

    def to_json(self) -> dict[str, Any]:
        one = self.mutant
        return {
            "name": one.name, "line": one.line, "what": self.what, "by": self.by,
        }  # fmt: skip


@dataclass(kw_only=True, eq=False)
class Mutation:
    """The plugin. `wanted` answers whether a mutant is to be tried."""

    modules: Sequence[str]
    traced: Sequence[str]  # files
    map_file: Path
    seconds: float  # of tests for one mutant
    wanted: Callable[[Mutant], bool]
    done: Callable[[str, list[Verdict]], None]
    _failed: bool = field(default=False, init=False)
    _folders: Any = field(default=None, init=False)
    _kills: dict[tuple[str, str], Counter[str]] = field(default_factory=dict, init=False)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "xdist_group: of the plugin that is not used here")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._folders = session.config._tmp_path_factory  # type: ignore[attr-defined]
        items = {item.nodeid: item for item in session.items}
        modules = {name: importlib.import_module(name) for name in self.modules}
        seen = self._seen(items, self.traced)
        for name, module in modules.items():
            tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
            found = [one for one in mutants(name, tree) if self.wanted(one)]
            _say(f"{name}: {len(found)} mutants")
            verdicts = [self._tried(one, module, tree, items, seen) for one in found]
            self.done(name, verdicts)
        return True

    # ---- what runs which line

    def _seen(self, items: dict[str, pytest.Item], files: Sequence[str]) -> dict[str, Seen]:
        known = _read_map(self.map_file, items)
        missing = [item for name, item in items.items() if name not in known]
        if missing:
            self.map_file.parent.mkdir(parents=True, exist_ok=True)
            _say(f"{len(missing)} tests are traced")
            child = _Child(lambda _, folder: self._trace(missing, files, folder))
            for _ in child.lines(600.0):
                pass
            child.end()
        return _read_map(self.map_file, items)

    def _trace(self, items: Sequence[pytest.Item], files: Sequence[str], folder: Path) -> None:
        self._folders._basetemp = folder
        with self.map_file.open("a", encoding="utf-8") as out:
            for number, item in enumerate(items):
                self._failed = False
                began = time.monotonic()
                with _Tracer(files) as tracer:
                    _run(item, items[number + 1] if number + 1 < len(items) else None)
                out.write(
                    json.dumps(
                        {
                            "test": item.nodeid,
                            "of": item.path.stat().st_mtime,
                            "seconds": round(time.monotonic() - began, 4),
                            "passed": not self._failed,
                            "lines": {} if self._failed else tracer.lines(),
                        }
                    )
                    + "\n"
                )
                out.flush()

    # ---- one mutant

    def _tried(
        self,
        mutant: Mutant,
        module: types.ModuleType,
        tree: ast.Module,
        items: dict[str, pytest.Item],
        seen: dict[str, Seen],
    ) -> Verdict:
        tests = self._tests(mutant, str(module.__file__), seen)
        if not tests:
            return self._said(Verdict(mutant=mutant, what=UNSEEN))

        def work(tell: Tell, folder: Path) -> None:
            self._folders._basetemp = folder
            mutant.apply()
            try:
                patch.put(module, tree, mutant.place)
            except patch.CannotPatchError:
                tell("unfit")
                return
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                tell(test)
                _run(items[test], items[following] if following else None)
                if self._failed:
                    tell("failed")
                    return
            tell("passed")

        child = _Child(work)
        last, end = "", ""
        for line in child.lines(_SLOW_START_SECONDS):
            if line in ("failed", "passed", "unfit"):
                end = line
            else:
                last = line
        child.end()
        match end:
            case "passed":
                return self._said(Verdict(mutant=mutant, what=SURVIVED))
            case "unfit":
                return self._said(Verdict(mutant=mutant, what=UNFIT))
            case _:  # failed, or its program ended or hung
                self._kills.setdefault((mutant.module, mutant.place), Counter())[last] += 1
                return self._said(Verdict(mutant=mutant, what=KILLED, by=last))

    def _tests(self, mutant: Mutant, file: str, seen: dict[str, Seen]) -> list[str]:
        """Within the seconds that a mutant has."""
        kills = self._kills.get((mutant.module, mutant.place), Counter())
        # What is run when a module is imported is run by no test: all that use it, or only compare, may notice.
        of_file = {
            name: one
            for name, one in seen.items()
            if file in one.lines or (mutant.at_import and one.passed and not one.lines)
        }
        names = [name for name, one in of_file.items() if mutant.at_import or one.lines[file] & mutant.lines]
        names.sort(key=lambda name: (-kills[name], of_file[name].seconds))
        # The quickest first, for a part of the time; then one of each way through the module before a second one.
        quick = _within(names, seen, self.seconds / 3)
        ways: Counter[frozenset[int]] = Counter()
        turns = {}
        for name in names:
            way = of_file[name].lines.get(file, frozenset())
            turns[name] = ways[way]
            ways[way] += 1
        rest = sorted(names[len(quick) :], key=lambda name: turns[name])
        return _within([*quick, *rest], seen, self.seconds)

    def _said(self, verdict: Verdict) -> Verdict:
        if verdict.what != KILLED:
            _say(f"  {verdict.what}: {verdict.mutant.module}:{verdict.mutant.line} {verdict.mutant.name}")
        return verdict


def _within(names: Sequence[str], seen: dict[str, Seen], seconds: float) -> list[str]:
    """The first of them, one at least."""
    spent = list(itertools.accumulate(seen[name].seconds for name in names))
    return [name for name, so_far in zip(names, spent, strict=True) if so_far <= seconds] or list(names[:1])


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _read_map(file: Path, items: dict[str, pytest.Item]) -> dict[str, Seen]:
    """Of tests as they are now. One that did not pass has no lines, and so notices nothing."""
    found: dict[str, Seen] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        one = json.loads(line)
        item = items.get(one["test"])
        if item is not None and item.path.stat().st_mtime == one["of"]:
            lines = {name: frozenset(numbers) for name, numbers in one["lines"].items()}
            found[one["test"]] = Seen(seconds=one["seconds"], passed=one.get("passed", True), lines=lines)
    return found


class _Tracer:
    """Lines of some files that are run, in all threads."""

    def __init__(self, files: Sequence[str]) -> None:
        self._hit: dict[str, set[int]] = {file: set() for file in files}

    def lines(self) -> dict[str, list[int]]:
        return {file: sorted(numbers) for file, numbers in self._hit.items() if numbers}

    def __enter__(self) -> "_Tracer":
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: types.FrameType, event: str, argument: object) -> Any:
        hit = self._hit.get(frame.f_code.co_filename)
        if hit is None:
            return None

        def line(frame: types.FrameType, event: str, argument: object) -> Any:
            hit.add(frame.f_lineno)
            return line

        return line


class _Child:
    """A fork that does one thing, with a folder of its own, and says lines while it does."""

    def __init__(self, work: Callable[[Tell, Path], None]) -> None:
        self._folder = tempfile.mkdtemp(prefix="mutant-")
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reader)
            self._be(work, writer)
        os.close(writer)
        self._reader = reader

    def _be(self, work: Callable[[Tell, Path], None], writer: int) -> None:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            said = os.dup(2)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            os.environ["TMPDIR"] = tempfile.tempdir = self._folder
            work(lambda text: _tell(writer, text), Path(self._folder))
        except Exception:  # noqa: BLE001 - of this program, not of a test: pytest keeps those
            os.write(said, traceback.format_exc().encode())
        finally:
            os._exit(0)

    def lines(self, patience: float) -> Iterator[str]:
        """Until it ends, or says nothing for so long."""
        rest = b""
        while select.select([self._reader], [], [], patience)[0]:
            got = os.read(self._reader, 65536)
            if not got:
                return
            *whole, rest = (rest + got).split(b"\n")
            yield from (line.decode() for line in whole)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # with what it started
        os.waitpid(self._pid, 0)
        os.close(self._reader)
        shutil.rmtree(self._folder, ignore_errors=True)


def _tell(writer: int, text: str) -> None:
    os.write(writer, text.encode() + b"\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
