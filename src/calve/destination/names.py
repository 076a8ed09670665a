"""Names: how a destination is written down, which implementation serves it, and the files that Calve leaves
there, each with its format and its parse. Pure; imports no client. File names are defined here only; what it leaves inside a table is in `calve.iceberg.publish.marks`.

Every one holds the id of its process: nothing without it is ever touched, and orphan removal tells
from it whose a file is (D15). An attempt is in every data file's name and in every receipt's, so no two
attempts write one object (D4), and no receipt has the name of a data file (L9).

| what               | name                                            | where                              |
| ------------------ | ----------------------------------------------- | ---------------------------------- |
| data file          | `calve-<process>-<task>-<attempt>-<n>.parquet`  | where the destination's placement says |
| receipt            | `<process>/<task>-<attempt>.json`               | under the receipts' location       |
| manifest           | `calve-<process>-<snapshot>-m<n>.avro`          | the table's metadata               |
| manifest list      | `snap-<snapshot>-0-calve-<process>.avro`        | the table's metadata               |
| manifest list of a fence | `snap-<snapshot>-0-calve-fence-<process>.avro` | the table's metadata             |
| commit of a key    | `<key hash>.<generation>.json`                  | `_calve/commits` of a plain folder |

The only module that tells the forms of destinations apart, by `is_folder`: a catalog's name never has a `/`, a folder's URI
always does. Stored requests and plans keep `catalog` and `identifier` as they are here. A new form is a folder
with a `destination` module that has `configuration`, `open_destination` and `placement`, a line here, and the
spelling of its address.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self

from calve.model import reach
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.model.reach import Service, is_folder

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from calve.destination.plan import DestinationPlan
    from calve.destination.port import Destination, Placement


FENCE = "fence-"  # before the process's id in the metadata files of its fence
RECEIPTS = "metadata/calve"  # under a table's location
_DATA_FILE = re.compile(r"(?:^|[-/])calve-([a-z0-9]+)-(\d+)-(\d+)-(\d+)\.parquet$")
_COMMIT = re.compile(r"(?:^|/)([0-9a-f]+)\.(\d+)\.json$")
_MARKED = re.compile(rf"(?:^|-)calve-(?:{FENCE})?([a-z0-9]+)(?=[-.])")
_RECEIPT = re.compile(rf"/{RECEIPTS}/([^/]+)/[^/]+$")


@dataclass(frozen=True, kw_only=True)
class DataFileName:
    process_id: str
    task: int
    attempt: int
    number: int

    def __str__(self) -> str:
        return f"calve-{self.process_id}-{self.task}-{self.attempt}-{self.number}.parquet"

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        """None for a file of someone else. A location provider may put a prefix and a `-` before it."""
        found = _DATA_FILE.search(uri)
        if found is None:
            return None
        process_id, *numbers = found.groups()
        task, attempt, number = map(int, numbers)
        return cls(process_id=process_id, task=task, attempt=attempt, number=number)


@dataclass(frozen=True, kw_only=True)
class CommitName:
    """Of plain Parquet."""

    key: str
    generation: int

    def __str__(self) -> str:
        return f"{self.key}.{self.generation}.json"

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        found = _COMMIT.search(uri)
        return None if found is None else cls(key=found[1], generation=int(found[2]))


def receipts_of(receipts_location: str, process_id: str) -> str:
    """The folder of a process's receipts."""
    return f"{receipts_location.rstrip('/')}/{process_id}"


def receipt_uri(receipts_location: str, process_id: str, task: int, attempt: int) -> str:
    return f"{receipts_of(receipts_location, process_id)}/{task}-{attempt}.json"


def manifest_name(process_id: str, snapshot_id: int | str, number: int) -> str:
    return f"calve-{process_id}-{snapshot_id}-m{number}.avro"


def manifest_list_name(process_id: str, snapshot_id: int | str) -> str:
    return f"snap-{snapshot_id}-0-calve-{process_id}.avro"


def is_metadata_of(process_id: str, uri: str) -> bool:
    """Whether a metadata file is a manifest or a manifest list of some attempt of that process."""
    name = uri.rsplit("/", 1)[-1]
    return name.startswith(f"calve-{process_id}-") or name.endswith(f"-calve-{process_id}.avro")


def is_receipt(uri: str) -> bool:
    """Of an Iceberg table, in its own folder."""
    return _RECEIPT.search(uri) is not None


def process_of(uri: str) -> str | None:
    """The process that any of these files is named after."""
    if receipt := _RECEIPT.search(uri):
        return receipt[1]
    marked = _MARKED.search(uri.rsplit("/", 1)[-1])
    return marked[1] if marked else None


ICEBERG = "iceberg"
PARQUET = "parquet"
_FOLDER_IDENTIFIER = ("files",)  # stored where an Iceberg table has its namespace and name
_BUCKET = re.compile(r"s3[an]?://[^/]+")


@dataclass(frozen=True, kw_only=True)
class DestinationAddress:
    """A table of a configured catalog, or a folder: `catalog` is then the folder's full URI."""

    catalog: str
    identifier: tuple[str, ...]  # namespace (one name or more) and table
    storage: str = ""  # a folder's: the [storage] section that a worker must have

    @classmethod
    def folder(cls, uri: str, storage: str = "") -> Self:
        return cls(catalog=uri.rstrip("/"), identifier=_FOLDER_IDENTIFIER, storage=storage)

    @property
    def form(self) -> str:
        """Which implementation serves it."""
        return PARQUET if is_folder(self.catalog) else ICEBERG

    @property
    def lane(self) -> Service:
        """What is down together waits together: a catalog, or the bucket that a folder is in."""
        if self.form == ICEBERG:
            return reach.catalog(self.catalog)
        bucket = _BUCKET.match(self.catalog)
        return reach.storage(bucket[0] if bucket else self.catalog)

    @property
    def needs(self) -> tuple[Service, ...]:
        """What a worker's configuration must have. A local folder, and a bucket whose keys come from
        the environment, are in no configuration: any worker that reaches the source may try."""
        if self.form == ICEBERG:
            return (reach.catalog(self.catalog),)
        return (reach.storage(self.storage),) if self.storage else ()

    def __str__(self) -> str:
        return f"{self.catalog}/" if self.form == PARQUET else ".".join((self.catalog, *self.identifier))


def parse_table_name(text: str) -> DestinationAddress:
    """`catalog.namespace.table`. UsageError for anything else."""
    catalog, *identifier = text.split(".")
    if len(identifier) < 2 or not catalog or not all(identifier):
        raise UsageError(
            f"invalid destination {text!r}",
            code="destination_name",
            hint="use catalog.namespace.table, for example lake.ns.events,"
            " or a path with a / for plain Parquet",
        )
    return DestinationAddress(catalog=catalog, identifier=tuple(identifier))


_MODULES = {ICEBERG: "calve.iceberg.destination", PARQUET: "calve.parquet.destination"}


class DestinationContext(Protocol):
    """What an implementation may ask of the application."""

    @property
    def limits(self) -> Limits: ...

    def catalog(self, name: str) -> "Catalog": ...

    def catalog_properties(self, name: str) -> dict[str, Any]:
        """A catalog's configuration with the keys of its storage. Never stored."""

    def location_properties(self, uri: str) -> dict[str, str]:
        """Endpoint and keys for a folder. Never stored."""


def configuration(address: DestinationAddress, reach: DestinationContext) -> dict[str, Any]:
    """What a destination is opened with. A change of it, such as of keys, means to open it again."""
    found: dict[str, Any] = _module(address.form).configuration(address, reach)
    return found


def open_destination(address: DestinationAddress, reach: DestinationContext) -> "Destination":
    opened: Destination = _module(address.form).open_destination(address, reach)
    return opened


def placement(plan: "DestinationPlan", spec: "PartitionSpec", schema: "Schema") -> "Placement":
    placed: Placement = _module(plan.form).placement(plan, spec, schema)
    return placed


def _module(form: str) -> ModuleType:
    return import_module(_MODULES[form])


RECEIPTS_PROPERTY = "calve.receipts"  # where receipts go, for buckets that take nothing but tables


def receipts_hint(catalog: str) -> str:
    """For who may not write where receipts would go."""
    return (
        "check that the keys may write there; a table bucket, which takes nothing but tables, needs another place"
        f' for receipts: "{RECEIPTS_PROPERTY}" = "s3://bucket/prefix" under [catalog.{catalog}]'
    )


SORT_ORDER_IDS = "calve.sort-order-ids"  # whether sorted files say so; see `tables.tells_sort_orders`
_TYPES_BY_SCHEME = {
    "http": "rest", "https": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql", "postgres": "sql",
}  # fmt: skip


def catalog_type(entry: Mapping[str, Any]) -> str:
    """`sql`, `rest`, `hive`, `glue`, …; where no type is given, by the URI as PyIceberg does. "" if unknown."""
    scheme = str(entry.get("uri", "")).partition(":")[0].partition("+")[0]
    return str(entry.get("type", "")).lower() or _TYPES_BY_SCHEME.get(scheme, "")


def property_text(value: Any) -> str:
    """Properties are text; TOML's booleans and numbers are not."""
    return str(value).lower() if isinstance(value, bool) else str(value)
