"""Lists the modules of calve that one export goes through, from the command line to the commit: `scripts/walk.py`.

A module counts if a function of it runs, on the driver or on an executor (both are this program here); importing
it is not enough. What starts the JVM, and the child that holds the embedded source, are counted by name.
"""

import contextlib
import inspect
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent / "src"
OURS = str(ROOT / "calve")
BY_NAME = ("calve.spark.runner", "calve.spark.java", "calve.clickhouse.embedded.host")


class Walk:
    """Collects the files of the functions that run, in every thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in self.files or not code.co_filename.startswith(OURS):
            return
        if code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):
            self.files.add(code.co_filename)

    @property
    def modules(self) -> set[str]:
        return {module_of(file) for file in self.files}

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether this runs because a module is being imported: class bodies, decorators, constants."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


def module_of(file: str) -> str:
    parts = Path(file).relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def walk() -> list[str]:
    """The modules that an export of one partition of an embedded source to Iceberg goes through."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _prepare(Path(folder))
        found = Walk()
        with found.under_way():
            _export()
        return sorted({*found.modules, *BY_NAME})


def _prepare(folder: Path) -> None:
    from calve.app.config.template import render
    from calve.clickhouse.embedded.source import EmbeddedSource

    (folder / "calve.toml").write_text(render(), encoding="utf-8")
    with EmbeddedSource("main", folder / "clickhouse", create=True).visit() as session:
        for statement in (
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
            "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 28 FROM numbers(100)",
        ):
            session.execute(statement)


def _export() -> None:
    from calve.app.wiring import App
    from calve.cli.main import run
    from calve.control.background import Pool, inline

    # One step after another: no two writes to the store race, so that every run takes the same way.
    Pool.__call__ = lambda _pool, work: inline(work)  # type: ignore[method-assign]
    App.runner = cached_property(lambda _app: _Here())  # type: ignore[assignment]
    App.runner.__set_name__(App, "runner")
    code = run(["export", "db.events", "--all", "--to", "lake.ns.events", "--json"])
    if code:
        raise SystemExit(f"the export ended with {code}")


class _Here:
    """A runner whose executors are this program."""

    slots = 2

    def run(self, group: str, orders: Sequence[Any], on_result: Callable[[Any], None]) -> None:
        from calve.spark.executor import execute, result

        for order in orders:
            on_result(result(execute(order)))

    def cancel(self, group: str) -> None: ...

    def warm(self) -> None: ...

    def close(self) -> None: ...


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        modules = walk()
    total = len(list((ROOT / "calve").rglob("*.py")))
    sys.stdout.write("\n".join([*modules, ""]))
    sys.stderr.write(f"{len(modules)} of {total} files\n")


if __name__ == "__main__":
    main()
