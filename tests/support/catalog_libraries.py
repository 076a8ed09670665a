"""Clients of Hive's metastore and of Glue, and moto: packages that only the long tests need, in a folder of their own
(`scripts/setup long`), named by what `catalogs.lock` says."""

import hashlib
import os
import sys
from pathlib import Path

from support.programs import missing

_LOCK = Path(__file__).with_name("catalogs.lock")
_CACHE = Path(os.environ.get("CALVE_CACHE") or Path(__file__).parents[2] / ".cache")


def folder() -> Path:
    return _CACHE / f"catalogs-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]}"


def import_them() -> Path:
    """After this they can be imported; what this environment has itself comes first."""
    found = folder()
    if not found.is_dir():
        raise missing("Hive's and Glue's clients", "scripts/setup long")
    if str(found) not in sys.path:
        sys.path.append(str(found))
    return found
