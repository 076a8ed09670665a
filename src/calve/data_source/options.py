"""The options of `spark.read.format("mergetree")`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from calve.clickhouse.server.client import SCHEMES
from calve.clickhouse.sql.tokens import TableName, parse
from calve.model.errors import UsageError

_HINT = "see docs/spark-data-source.md"
_STORAGE = "storage."
_OF_SERVERS = ("user", "password", "password_file", "ca_file")
_KNOWN = (
    "path",
    "source",
    *_OF_SERVERS,
    "frozen",
    "backup",
    "backups",
    "partitions",
    "columns",
    "split_mb",
    "pushdown",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to read: a table of an embedded source, as it is or as a freeze holds it, of a server, or of
    a backup."""

    table: TableName
    source: str = ""  # chdb://folder, http://host:8123 or https://host:8443
    user: str = "default"  # of a server
    password: str = field(default="", repr=False)
    ca_file: str = ""
    frozen: str = ""  # the name of a FREEZE in that folder
    backup: str = ""  # the name of a backup
    backups: str = ""  # where backups are
    storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # keys of that place, in PyIceberg's words
    partitions: tuple[str, ...] = ()  # ids or values; none for all
    columns: tuple[str, ...] = ()  # none for all
    split_mb: int = 256
    pushdown: bool = False  # of filters; Spark refuses a reader that takes them unless its own setting is on

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """UsageError for what is missing, unknown or contradicts itself."""
        lowered = {name.lower(): value for name, value in given.items()}
        unknown = [name for name in lowered if name not in _KNOWN and not name.startswith(_STORAGE)]
        if unknown:
            raise _wrong(f"unknown option {unknown[0]!r}; there are {', '.join(_KNOWN)} and {_STORAGE}*")
        if "path" not in lowered:
            raise _wrong("no table given: .load('db.table')")
        if bool(lowered.get("source")) == bool(lowered.get("backup")):
            raise _wrong(
                "give either the option source (chdb://folder or http://host:8123) or the options backup and backups"
            )
        if bool(lowered.get("backup")) != bool(lowered.get("backups")):
            raise _wrong("the options backup (a name) and backups (a folder or s3://…) go together")
        if lowered.get("frozen") and not lowered.get("source"):
            raise _wrong("the option frozen needs a source")
        _check_source(lowered)
        return cls(
            table=parse(lowered["path"]),
            source=lowered.get("source", ""),
            user=lowered.get("user", "default"),
            password=_password(lowered),
            ca_file=lowered.get("ca_file", ""),
            frozen=lowered.get("frozen", ""),
            backup=lowered.get("backup", ""),
            backups=lowered.get("backups", ""),
            storage={
                name.removeprefix(_STORAGE): value
                for name, value in lowered.items()
                if name.startswith(_STORAGE)
            },
            partitions=_listed(lowered.get("partitions", "")),
            columns=_listed(lowered.get("columns", "")),
            split_mb=_number(lowered.get("split_mb", "256")),
            pushdown=lowered.get("pushdown", "false").lower() == "true",
        )

    @property
    def served(self) -> bool:
        """Whether a server is asked."""
        return _is_server(self.source)


def _is_server(source: str) -> bool:
    return source.partition("://")[0] in SCHEMES


def _check_source(given: Mapping[str, str]) -> None:
    """Options that need a server, and those that a server cannot serve."""
    served = _is_server(given.get("source", ""))
    for_servers = [name for name in _OF_SERVERS if name in given]
    if for_servers and not served:
        raise _wrong(f"the option {for_servers[0]} needs a server as source (http://host:8123)")
    if served and given.get("frozen"):
        raise _wrong(
            "a freeze is read as files, but source is a server: give the folder that holds the freeze (chdb://folder)"
        )
    if given.get("password") and given.get("password_file"):
        raise _wrong("give password or password_file, not both")


def _password(given: Mapping[str, str]) -> str:
    file = given.get("password_file")
    if not file:
        return given.get("password", "")
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"cannot read password_file: {error}") from None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise _wrong(f"invalid split_mb {text!r}: not a number of megabytes")
    return int(text)


def _wrong(what: str) -> UsageError:
    return UsageError(f'format("mergetree"): {what}', code="data_source", hint=_HINT)
