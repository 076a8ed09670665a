"""An executor for tests: a child process with the worker's engine, as Spark's Python worker has one.

Run as a program it answers one line for each line (JSON in, a pickle out); imported it is the parent's side of that. pytest's own
process never imports the engine: other tests fork in it.
"""

import base64
import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Executor:
    child: "subprocess.Popen[str]"

    @classmethod
    def start(cls, **environment: str) -> "Executor":
        return cls(
            subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | environment,
            )
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self.child.stdin.flush()
        answer = pickle.loads(base64.b64decode(self.child.stdout.readline()))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read(
        self,
        create: str,
        paths: Sequence[str],
        sql: str,
        slices: Sequence[tuple[str, int, int]] | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of `sql`, with {table} and {where} filled in, over the attached parts."""
        return list(self.ask("read", create=create, paths=list(paths), sql=sql, slices=slices))

    def stop(self) -> None:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        self.child.wait(30)
        self.child.stdout.close()


def _read(create: str, paths: list[str], sql: str, slices: list[list[Any]] | None) -> list[dict[str, Any]]:
    from calve.clickhouse.engine.engine import worker_engine
    from calve.clickhouse.engine.scratch import attached

    engine = worker_engine()
    with attached(engine, create, paths) as relation:
        where = "1" if slices is None else relation.relation_where([(p, s, e) for p, s, e in slices])
        return engine.rows(sql.replace("{table}", str(relation)).replace("{where}", where))


def _rows(sql: str, settings: dict[str, str], stall_seconds: float = 300.0) -> list[dict[str, Any]]:
    from calve.clickhouse.engine.engine import worker_engine

    return worker_engine(stall_seconds).rows(sql, settings)


def _scratch() -> str:
    from calve.clickhouse.engine.engine import worker_engine

    return str(worker_engine().scratch)


def _usage() -> dict[str, int]:
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "resident_mb": resident // 1024,
    }


def _tables() -> int:
    """Scratch tables that are there now."""
    return int(_rows("SELECT count() AS n FROM system.tables WHERE database = 'calve_scratch'", {})[0]["n"])


def _forbid(hard_links: bool, symbolic_links: bool) -> None:
    """Play a file system, or an owner, that allows no links."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "not permitted")

    if hard_links:
        os.link = refuse
    if symbolic_links:
        Path.symlink_to = refuse  # type: ignore[method-assign,assignment]


def _main() -> None:
    from calve.model.errors import CalveError

    commands = {"read": _read, "rows": _rows, "scratch": _scratch, "usage": _usage}
    commands |= {"tables": _tables, "forbid": _forbid}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: Any = commands[request.pop("command")](**request)
        except CalveError as error:
            answer = error
        print(base64.b64encode(pickle.dumps(answer)).decode(), flush=True)


if __name__ == "__main__":
    _main()
