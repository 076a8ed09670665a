"""Running the command as a person does: a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
