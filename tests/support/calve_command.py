"""Running the command as a person does: in a process of its own, or, quicker, in this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def is_error(self, code: int, words: str, hint: str = "") -> None:
        """One line that names the thing, a hint, the exit code, and no traceback."""
        assert self.code == code, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert words in lines[0]
        hints = [line for line in self.err.splitlines() if line.startswith("hint: ")]
        assert hints, self.err
        assert hint in hints[0]
        assert "Traceback" not in self.err


Run = Callable[..., Answer]


def call(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Answer:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CALVE_")}
    done = subprocess.run(
        [sys.executable, "-m", "calve.cli", *arguments],
        cwd=cwd, env=clean | (env or {}), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return Answer(code=done.returncode, out=done.stdout, err=done.stderr)


def in_this_process(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    from calve.cli.main import run

    def call_here(*arguments: str, cwd: Path = folder, env: dict[str, str] | None = None) -> Answer:
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            for name in os.environ:
                if name.startswith("CALVE_"):
                    patch.delenv(name)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = run(list(arguments))
        captured = capsys.readouterr()
        return Answer(code=code, out=captured.out, err=captured.err)

    return call_here


def through_a_server(run: Run, stack: ExitStack) -> Run:
    """The same command, asking a server over the same folder. The server starts with the first command."""
    from support.served import served_here

    urls: dict[Path, str] = {}

    def call_there(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Answer:
        if cwd not in urls:
            urls[cwd] = stack.enter_context(served_here(cwd))
        return run(*arguments, cwd=cwd, env={"CALVE_SERVER": urls[cwd]} | (env or {}))

    return call_there
