"""Calve as people install it: the distributions of a release, and an environment with the wheel and what it needs."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What `scripts/dist` made, and the environment that it left."""

    distributions: Path
    environment: Path

    @property
    def bin(self) -> Path:
        return self.environment / "bin"

    @property
    def wheel(self) -> Path:
        return next(self.distributions.glob("*.whl"))

    def run(self, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        """A program of that environment, away from the repository."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=folder,
            env=outside(),
            capture_output=True,
            text=True,
        )


def install(folder: Path) -> Installed:
    made = Installed(distributions=folder / "dist", environment=folder / "environment")
    subprocess.run(
        [ROOT / "scripts" / "dist", made.distributions, made.environment],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=280,
    )
    return made


def outside() -> dict[str, str]:
    """The environment of somebody who has no clone."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
