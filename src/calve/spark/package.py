"""An archive of what tasks import, for executors that have a Python and nothing else: `spark.archives` ships it.

Not the whole environment: Spark brings its own PySpark, and half a gigabyte of jars with it, and what only the command
line, servers and tests use stays here. Not the interpreter either: `bin/python` is a script that finds one of the same
minor version on the machine, where an environment would link to this machine's (docs/decisions/0037).
"""

import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from io import BytesIO
from pathlib import Path

import calve
from calve.model.errors import PermanentError, UsageError

FOLDER = "calve"  # what the archive is unpacked as
_LEFT_OUT = frozenset({"pyspark", "py4j"})  # Spark puts its own first on the path
_NOT_OF_TASKS = frozenset({"serve", "postgres"})  # extras
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRAS = re.compile(r"\[([^\]]*)\]")
_OF_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_TESTS = re.compile(r"(^|/)(tests|__pycache__)/")
_LEVEL = 3  # of gzip: a third of the time of 6, a twentieth larger


def python() -> str:
    """For `spark.pyspark.python`: executors run it in the folder where archives are unpacked."""
    return f"./{FOLDER}/bin/python"


def pack(target: Path) -> list[str]:
    """Write the archive, whole or not at all; the distributions that are in it, with their versions."""
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(
            f"Spark cannot unpack {target.name}", code="package_name", hint="name a file that ends in .tar.gz"
        )
    found = sorted(needed().values(), key=lambda one: one.name.lower())
    try:
        handle, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", code="package_file") from None
    try:
        with (
            os.fdopen(handle, "wb") as raw,
            tarfile.open(fileobj=raw, mode="w:gz", compresslevel=_LEVEL) as archive,
        ):
            _add(archive, "bin/python", SCRIPT.encode(), executable=True)
            for one in found:
                for file, path in _files(one):
                    archive.add(path, f"lib/{file}", recursive=False)
        Path(written).chmod(0o644)
        # If we die before here, a hidden file is left beside the one that was there before.
        Path(written).replace(target)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return [f"{one.name} {one.version}" for one in found]


def needed() -> dict[str, metadata.Distribution]:
    """Calve and all that it requires, as it is installed here; of extras those that are installed."""
    ours = metadata.distribution("calve")
    extras = frozenset(ours.metadata.get_all("Provides-Extra") or ()) - _NOT_OF_TASKS
    found: dict[str, metadata.Distribution] = {}
    asked: set[tuple[str, frozenset[str]]] = set()
    waiting = [("calve", extras)]
    while waiting:
        name, extras = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in _LEFT_OUT or (key, extras) in asked:
            continue
        asked.add((key, extras))
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra, or of another platform: it is not needed here
        found[key] = one
        waiting += list(_required(one, extras))
    return found


def _required(one: metadata.Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in one.requires or ():
        wanted, _, marker = line.partition(";")
        of = _OF_EXTRA.search(marker)
        named = _NAME.match(wanted)
        if named and (of is None or of[1] in extras):
            listed = _EXTRAS.search(wanted)
            theirs = listed[1].replace(" ", "").split(",") if listed else ()
            yield named[0], frozenset(theirs)


def _files(one: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Each file by its path below the folder of packages. Those of Calve itself from where it is imported: an
    installation for development names none."""
    if one.name == "calve":
        package = Path(calve.__file__).parent
        listed = [(f"calve/{path.relative_to(package)}", path) for path in sorted(package.rglob("*"))]
    elif one.files is None:
        raise PermanentError(
            f"{one.name} does not list its files",
            code="package_unlisted",
            hint=f"install {one.name} with pip or uv",
        )
    else:
        listed = [
            (str(file), Path(str(one.locate_file(file)))) for file in one.files if ".." not in file.parts
        ]
    yield from ((name, path) for name, path in listed if not _TESTS.search(name) and path.is_file())


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, executable: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755 if executable else 0o644
    archive.addfile(entry, BytesIO(data))


_MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SCRIPT = f"""#!/bin/sh
# The packages beside this file, with this machine's Python {_MINOR}. CALVE_PYTHON names another one.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in "$CALVE_PYTHON" python{_MINOR} "{Path(sys.base_prefix) / "bin" / f"python{_MINOR}"}"; do
  "$python" -c "" 2>/dev/null && exec "$python" "$@"
done
echo "calve: this machine has no python{_MINOR}; install it, or set spark.executorEnv.CALVE_PYTHON" >&2
exit 127
"""
