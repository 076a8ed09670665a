"""A wall clock of a program that can be set while the program runs: a small library, preloaded, where there is a C compiler.

(libfaketime was tried: it changes sleeping too, and Python's own sleep then fails with EINVAL.)
"""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("jumping_clock.c")
_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class JumpingClock:
    library: Path
    file: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self.library), "CALVE_CHAOS_CLOCK": str(self.file)}

    def set(self, seconds: int) -> None:
        """How far it is off from now on."""
        with self.file.open("r+b") as file:  # in place: the program has it mapped
            file.write(seconds.to_bytes(_BYTES, "little", signed=True))


def jumping_clock(folder: Path) -> JumpingClock | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    clock = JumpingClock(library=folder / "jumping_clock.so", file=folder / "jumping_clock")
    clock.file.write_bytes(bytes(_BYTES))
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(clock.library), str(_SOURCE)], check=True)
    return clock
