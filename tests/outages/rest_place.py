"""A place whose destination `rest` is a real REST catalog, behind what fails as catalogs do."""

from collections.abc import Mapping
from pathlib import Path

from support.catalog_proxy import CatalogProxy
from support.kept_source import KeptSource
from support.network_proxy import NetworkProxy
from support.outage_place import Executors, OutagePlace

ROWS = 50  # of a part
QUICK_CALLS = {"CALVE_LIMITS__CONNECT_SECONDS": "1", "CALVE_LIMITS__CALL_SECONDS": "1.5"}


def rest_place(
    folder: Path,
    runner: Executors,
    uri: str,
    properties: Mapping[str, str] | None = None,
    source: KeptSource | None = None,
    **settings: str,
) -> OutagePlace:
    place = OutagePlace(folder, runner, {}, source=source, **QUICK_CALLS | settings)  # type: ignore[arg-type]
    file = place.place.folder / "calve.toml"
    lines = "\n".join(f'"{name}" = "{value}"' for name, value in (properties or {}).items())
    file.write_text(file.read_text() + f'\n[catalog.rest]\ntype = "rest"\nuri = "{uri}"\n{lines}\n')
    place.reopen()
    return place


def heal(network: NetworkProxy, catalog: CatalogProxy) -> None:
    catalog.ails = None
    network.heal()
