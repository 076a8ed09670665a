"""Unpacks an installation that an older release left, anywhere.

Iceberg's metadata, plans and receipts name files by absolute paths. The archive was made under a root
of a known length, so that the bytes of the new root, padded to that length, take its place in every
file: no offset and no length changes, in manifests, in SQLite's pages or elsewhere.
"""

import tarfile
from pathlib import Path

ROOT_FILE = "root.txt"  # holds the root that the archive was made under


def unpack(archive: Path, folder: Path) -> Path:
    """The root of the unpacked installation, somewhere below `folder`."""
    with tarfile.open(archive) as files:
        old = files.extractfile(ROOT_FILE).read()  # type: ignore[union-attr]
        padding = len(old) - len(str(folder)) - 1
        assert padding > 0, f"{folder} is too long a path"
        root = folder / ("x" * padding)
        files.extractall(root, filter="data")
    new = str(root).encode()
    for path in root.rglob("*"):
        if path.is_file() and old in (content := path.read_bytes()):
            path.write_bytes(content.replace(old, new))
    return root
