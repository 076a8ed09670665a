"""The options of `spark.read.format("mergetree")`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from calve.model.errors import UsageError
from calve.source.names import TableName, parse

_HINT = "see docs/spark-data-source.md"
_STORAGE = "storage."
_KNOWN = ("path", "source", "frozen", "backup", "backups", "partitions", "columns", "split_mb", "pushdown")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to read: a table of an embedded source, as it is or as a freeze holds it, or of a backup."""

    table: TableName
    source: str = ""  # chdb://folder
    frozen: str = ""  # the name of a FREEZE in that folder
    backup: str = ""  # the name of a backup
    backups: str = ""  # where backups are
    storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # keys of that place, in PyIceberg's words
    partitions: tuple[str, ...] = ()  # ids or values; none for all
    columns: tuple[str, ...] = ()  # none for all
    split_mb: int = 256
    pushdown: bool = False  # filters; Spark refuses a reader that takes them unless its own switch is on

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """UsageError for what is missing, unknown or contradicts itself."""
        lowered = {name.lower(): value for name, value in given.items()}
        unknown = [name for name in lowered if name not in _KNOWN and not name.startswith(_STORAGE)]
        if unknown:
            raise _wrong(f"unknown option {unknown[0]!r}; there are {', '.join(_KNOWN)} and {_STORAGE}*")
        if "path" not in lowered:
            raise _wrong("no table is named: .load('db.table')")
        if bool(lowered.get("source")) == bool(lowered.get("backup")):
            raise _wrong("give either the option source (chdb://folder) or the options backup and backups")
        if bool(lowered.get("backup")) != bool(lowered.get("backups")):
            raise _wrong("the options backup (a name) and backups (a folder or s3://…) go together")
        if lowered.get("frozen") and not lowered.get("source"):
            raise _wrong("the option frozen names a freeze of a source, and no source is given")
        return cls(
            table=parse(lowered["path"]),
            source=lowered.get("source", ""),
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


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise _wrong(f"split_mb is {text!r}, which is no number of megabytes")
    return int(text)


def _wrong(what: str) -> UsageError:
    return UsageError(f'format("mergetree"): {what}', code="data_source", hint=_HINT)
