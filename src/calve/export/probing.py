"""Asking whether what was down answers again: the very services that an export uses.

A lane is named after its catalog, and stands for the storage of its tables too. So a probe asks
both, and asks the storage for what an export needs of it, a write: gateways answer reads before
they can take data.
"""

from pyiceberg.catalog import Catalog

from calve.export.lanes import CATALOG, SOURCE, STORAGE
from calve.export.ports import ExportPorts
from calve.export.request import ExportRequest
from calve.iceberg import tables
from calve.iceberg.catalogs.entry import RECEIPTS
from calve.iceberg.errors import catalog_call
from calve.model.errors import NotFoundError, PermanentError
from calve.model.ids import ProcessId
from calve.model.plan import ExportPlan
from calve.objects.local import SCHEME as LOCAL
from calve.objects.storage import Storage
from calve.parquet import places


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
    if process_id and request:
        receipts = _receipts(catalog, request)
        if "://" in receipts and not receipts.startswith(LOCAL):
            write_probe(ports.storage(catalog.name, request.identifier), f"{receipts}/{process_id}/probe")


def _receipts(catalog: Catalog, request: ExportRequest) -> str:
    """Where the export's receipts go; "" where only the catalog's server knows."""
    try:
        return tables.receipts_location(catalog, tables.load(catalog, request.identifier))
    except NotFoundError:
        warehouse = str(catalog.properties.get("warehouse", "")).rstrip("/")
        return f"{warehouse}/metadata/calve" if warehouse else ""


def refuse_without_receipts(storage: Storage, plan: ExportPlan) -> None:
    """PermanentError, before anything is read, where the storage takes no receipts."""
    destination = plan.destination
    if destination.receipts_location.startswith(LOCAL):
        return
    try:
        write_probe(storage, f"{destination.receipts_location}/{plan.process_id}/probe")
    except PermanentError as error:
        if error.code != "storage_denied":
            raise
        raise PermanentError(
            f"receipts cannot be put at {destination.receipts_location}: {error.message}",
            code="receipts_refused",
            hint="check the keys' right to write there; a table bucket, which takes nothing but tables,"
            f' needs another place for them: "{RECEIPTS}" = "s3://bucket/prefix"'
            f" under [catalog.{destination.catalog}]",
        ) from error


def write_probe(storage: Storage, uri: str) -> None:
    """Put an object and take it away. A name that is taken was left by a probe that died here."""
    # If we die here, an empty object is left under the process's own name; its next probe deletes it.
    storage.put_if_absent(uri, b"")
    storage.delete([uri])
