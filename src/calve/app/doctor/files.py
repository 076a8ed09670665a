"""Files that hold, or may come to hold, a secret: nobody else should be able to read them."""

import re
from collections.abc import Iterator
from pathlib import Path

from calve.app.doctor.finding import Finding
from calve.app.wiring import App

_OTHERS = 0o077
_SECRET_FILE = re.compile(r"file (/.+) \(.*\)")  # the origin of a value that was read from `…_file`


def readable_by_others(app: App) -> Iterator[Finding]:
    for file in _files(app):
        if file.is_file() and file.stat().st_mode & _OTHERS:
            yield Finding(
                part="files",
                ok=True,
                warning=True,
                words=f"{file} may hold secrets, and others can read it (mode {file.stat().st_mode & 0o777:o})",
                remedy=f"chmod 600 {file}",
            )


def _files(app: App) -> Iterator[Path]:
    config = app.config
    if config.file:
        yield config.file
    scheme, parted, path = config.store_url.partition(":///")
    if parted and scheme.startswith("sqlite"):
        yield Path(path.partition("?")[0])
    named = (_SECRET_FILE.fullmatch(setting.origin) for setting in config.settings)
    yield from dict.fromkeys(Path(found[1]) for found in named if found)
