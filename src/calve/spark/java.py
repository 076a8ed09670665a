"""The Java runtime that Spark uses, and how to get one."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from calve.model.errors import UsageError

OLDEST = 17
INSTALL = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME to a Java runtime of 17 or newer"


def java_home() -> Path:
    """The first runtime of at least version 17: JAVA_HOME, then PATH, then the usual folders."""
    seen: list[str] = []
    for home in _candidates():
        version = _version(home)
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} ({'unusable' if version is None else version})")
    found = f"; found only {', '.join(seen)}" if seen else ""
    raise UsageError(f"no Java runtime {OLDEST} or newer{found}", code="java_missing", hint=INSTALL)


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not java.exists():
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match.group(1)) if match else None
