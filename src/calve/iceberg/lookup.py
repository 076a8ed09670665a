"""Finding a table by its uuid, whatever its name is now.

"No such table" says that the name is free, not that the table is gone: it may have been renamed
after a commit was sent to it, and the commit is then under the other name (T12).
"""

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.model.errors import CalveError, NotFoundError, UnavailableError, UnknownOutcomeError

MOST_TABLES = 2_000  # each is loaded: a catalog's listing has names only


def find_by_uuid(catalog: Catalog, identifier: tuple[str, ...], uuid: str) -> Table | None:
    """The table, under its own name or another one; None if the catalog lists no table with the uuid.

    UnavailableError while the catalog does not answer; UnknownOutcomeError where it cannot be
    listed, so that nobody can tell a table that was renamed from one that was dropped.
    """
    try:
        table = tables.load(catalog, identifier)
        if str(table.metadata.table_uuid) == uuid:
            return table
    except NotFoundError:
        pass
    name = ".".join(identifier)
    try:
        with catalog_call(catalog.name, f"looking for table {name} under another name"):
            return _listed(catalog, identifier[:-1], uuid)
    except UnavailableError:
        raise
    except CalveError as cause:
        raise UnknownOutcomeError(
            f"table {name} is gone from its name, and whether it was renamed is not known: {cause.message}",
            code="table_unknown",
            hint="nothing is deleted; give the table its name back, or allow the catalog to be listed",
            service=cause.service,
        ) from cause


def _listed(catalog: Catalog, first: tuple[str, ...], uuid: str) -> Table | None:
    for number, identifier in enumerate(_identifiers(catalog, first)):
        if number >= MOST_TABLES:
            raise UnknownOutcomeError(f"the catalog has more than {MOST_TABLES} tables", code="too_many")
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError:
            continue  # dropped or renamed since it was listed
        if str(table.metadata.table_uuid) == uuid:
            return table
    return None


def _identifiers(catalog: Catalog, first: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every table; those of the namespace it was in before all others. Twice: a table that is renamed
    while the namespaces are listed is in a name that was passed already."""
    for _ in range(2):
        yield from _tables_in(catalog, first)
        for namespace in _namespaces(catalog, ()):
            if namespace != first:
                yield from _tables_in(catalog, namespace)


def _namespaces(catalog: Catalog, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        below = catalog.list_namespaces(above)
    except NoSuchNamespaceError:
        return  # dropped since it was listed
    for namespace in below:
        if len(namespace) > len(above):
            yield tuple(namespace)
            yield from _namespaces(catalog, tuple(namespace))


def _tables_in(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return [tuple(name) for name in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []
