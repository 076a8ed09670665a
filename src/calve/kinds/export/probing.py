"""Asking whether what was down answers again: the very services that an export uses.

A lane is named after its catalog, and stands for the storage of its tables too. So a probe asks
both, and asks the storage for what an export needs of it, a write: gateways answer reads before
they can take data.
"""

from pyiceberg.catalog import Catalog

from calve.kinds.export.lanes import CATALOG, SOURCE, STORAGE
from calve.kinds.export.ports import ExportPorts
from calve.kinds.export.request import ExportRequest
from calve.lake import tables
from calve.lake.errors import catalog_call
from calve.lake.objects.local import SCHEME as LOCAL
from calve.lake.parquet import places
from calve.lake.storage import Storage
from calve.model.errors import NotFoundError
from calve.model.ids import ProcessId


def probe(
    ports: ExportPorts, lane: str, process_id: ProcessId | None = None, request: ExportRequest | None = None
) -> None:
    """Return if it answers. With a process's request, also if what stands behind the lane does."""
    if lane.startswith(SOURCE):
        with ports.source(lane.removeprefix(SOURCE)).visit() as session:
            session.rows("SELECT 1", what="probing")
        return
    if lane.startswith(STORAGE):
        if process_id and request:
            write_probe(
                ports.storage(request.catalog), f"{places.receipts(request.catalog)}/{process_id}/probe"
            )
        return
    catalog = ports.catalog(lane.removeprefix(CATALOG))
    with catalog_call(catalog.name, "probing"):
        catalog.list_namespaces()
    location = _location(catalog, request) if request else ""
    if process_id and "://" in location and not location.startswith(LOCAL):
        write_probe(ports.storage(catalog.name), f"{location}/metadata/calve/{process_id}/probe")


def _location(catalog: Catalog, request: ExportRequest) -> str:
    """Where the export's files go; "" where only the catalog's server knows."""
    try:
        return tables.load(catalog, request.identifier).location().rstrip("/")
    except NotFoundError:
        return str(catalog.properties.get("warehouse", "")).rstrip("/")


def write_probe(storage: Storage, uri: str) -> None:
    """Put an object and take it away. A name that is taken was left by a probe that died here."""
    # If we die here, an empty object is left under the process's own name; its next probe deletes it.
    storage.put_if_absent(uri, b"")
    storage.delete([uri])
