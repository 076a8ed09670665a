"""What a bug report needs, as documents by file name: no secret, no row, no condition of an export, no names of people.

Each part is asked for by itself: a part that fails is named in the bundle, and the rest is there.
"""

import io
import json
import platform
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve import __version__
from calve.app import view
from calve.app.front import Json
from calve.model.errors import CalveError
from calve.model.process import ProcessQuery

if TYPE_CHECKING:
    from calve.app.calve import Calve

_PACKAGES = ("chdb-core", "clickhouse-connect", "obstore", "psycopg", "pyarrow", "pydantic", "pyiceberg", "pyspark", "sqlalchemy")  # fmt: skip
_PROCESSES = 500
_EVENTS = 1000


def bundle(calve: "Calve", *, with_names: bool = False) -> dict[str, Any]:
    """`with_names`: the audit says who asked; otherwise it says `caller-1`, and so on."""
    parts: dict[str, Callable[[], Any]] = {
        "versions.json": versions,
        "config.json": calve.settings,
        "processes.json": lambda: _processes(calve),
        "events.json": lambda: _events(calve),
        "workers.json": lambda: [view.worker_json(one) for one in calve.workers()],
        "servers.json": calve.servers,
        "breakers.json": calve.breakers,
        "halts.json": calve.halts,
        "audit.json": lambda: _audit(calve, with_names=with_names),
        "doctor.json": lambda: list(calve.doctor(spark=False)),
    }
    found: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except CalveError as error:
            found[name] = {"error": view.error_json(error.info)}
    return found


def zipped(found: Mapping[str, Any]) -> bytes:
    """The file that is attached to a report."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, document in found.items():
            file.writestr(
                name, json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
            )
    return written.getvalue()


def versions() -> Json:
    """Of this program, of the libraries that it stands on (None for one that is not installed), and of what it
    writes for other versions to read."""
    from calve.archive.manifest import MANIFEST_VERSION
    from calve.destination.plan import PLAN_VERSION
    from calve.destination.receipt import RECEIPT_VERSION
    from calve.iceberg.tables import READABLE_FORMATS, WRITABLE_FORMATS
    from calve.spark.java import ICEBERG_SPARK, java_version
    from calve.store.store import newest

    java = java_version()
    return {
        "calve": __version__,
        "python": platform.python_version(),
        "java": str(java) if java else None,
        "platform": platform.platform(),
        **{package: _version(package) for package in _PACKAGES},
        "iceberg-spark-runtime": ICEBERG_SPARK.version,
        # The engine's own version: parts of servers up to it are read as files, those of newer ones by HTTP.
        "clickhouse-engine": ".".join((_version("chdb-core") or "").split(".")[:2]) or None,
        "iceberg-formats-written": ", ".join(map(str, WRITABLE_FORMATS)),
        "iceberg-formats-read": ", ".join(map(str, READABLE_FORMATS)),
        "store-schema": str(newest()),
        "plan-format": str(PLAN_VERSION),
        "receipt-format": str(RECEIPT_VERSION),
        "backup-format": str(MANIFEST_VERSION),
    }


def executor_package(file: Path) -> Json:
    """Pack what executors import, and say what ships it to them."""
    from calve.spark import package

    packages = package.pack(file)
    conf = {"spark.archives": f"{file}#{package.FOLDER}", "spark.pyspark.python": package.python()}
    return {"file": str(file), "bytes": file.stat().st_size, "packages": packages, "conf": conf}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processes(calve: "Calve") -> list[Json]:
    return [view.served_json(one) for one in calve.processes(ProcessQuery(limit=_PROCESSES))]


def _events(calve: "Calve") -> list[Json]:
    """Of the newest processes, until there are enough."""
    found: list[Json] = []
    for process in calve.processes(ProcessQuery(limit=_PROCESSES)):
        found += [view.event_json(event) for event in calve.events([process.id])]
        if len(found) >= _EVENTS:
            break
    return found[:_EVENTS]


def _audit(calve: "Calve", *, with_names: bool) -> list[Json]:
    entries: list[Json] = calve.audit(limit=_EVENTS)["entries"]
    if with_names:
        return entries
    callers = {
        who: f"caller-{nth}" for nth, who in enumerate(sorted({one["who"] for one in entries}), start=1)
    }
    hidden = {"token_new", "token_revoke"}  # their subject is a caller's name
    return [
        one | {"who": callers[one["who"]], "subject": "" if one["verb"] in hidden else one["subject"]}
        for one in entries
    ]
