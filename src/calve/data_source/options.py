"""The options of `spark.read.format("mergetree")`, checked. With `config`, a `calve.toml` gives what they omit."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from calve.app.config import Config, load_config
from calve.app.destination import backup_properties
from calve.archive import vault
from calve.clickhouse.server.client import SCHEMES
from calve.clickhouse.sql.tokens import TableName, parse
from calve.model.errors import UsageError

_HINT = "see docs/spark-data-source.md"
_STORAGE = "storage."
_OF_SERVERS = ("user", "password", "password_file", "ca_file")
_KNOWN = (
    "path",
    "config",
    "source",
    *_OF_SERVERS,
    "frozen",
    "backup",
    "backups",
    "signing_key",
    "signing_key_file",
    "encryption_key",
    "encryption_key_file",
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
    signing_key: str = field(default="", repr=False)  # of backups: others are refused
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
        for name in lowered:
            if name not in _KNOWN and not name.startswith(_STORAGE):
                raise _unknown(name)
        if "path" not in lowered:
            raise _wrong("no table given: .load('db.table')")
        if "config" in lowered:
            table, lowered = _completed(lowered)
        else:
            table = parse(lowered["path"])
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
            table=table,
            source=lowered.get("source", ""),
            user=lowered.get("user", "default"),
            password=_secret(lowered, "password"),
            ca_file=lowered.get("ca_file", ""),
            frozen=lowered.get("frozen", ""),
            backup=lowered.get("backup", ""),
            backups=lowered.get("backups", ""),
            signing_key=_secret(lowered, "signing_key"),
            storage={
                name.removeprefix(_STORAGE): value
                for name, value in lowered.items()
                if name.startswith(_STORAGE)
            }
            | vault.properties(keys=_secret(lowered, "encryption_key")),
            partitions=_listed(lowered.get("partitions", "")),
            columns=_listed(lowered.get("columns", "")),
            split_mb=_number(lowered.get("split_mb", "256")),
            pushdown=_yes(lowered.get("pushdown", "false")),
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


def _completed(given: Mapping[str, str]) -> tuple[TableName, dict[str, str]]:
    """The table, and the options with what the configuration adds to them."""
    config = load_config(given["config"])
    table = parse(given["path"], lambda name: config.source(name or config.default_source).database)
    if given.get("backup"):
        found = _of_backups(config)
    elif given.get("source"):
        found = {}
    else:
        found = _of_source(config, table.source or config.default_source)
    return table, found | dict(given)


def _of_backups(config: Config) -> dict[str, str]:
    url = config.backup_url
    keys = {f"{_STORAGE}{name}": value for name, value in backup_properties(config).items()}
    return {"backups": url, "signing_key": config.backup_signing_key} | keys


def _of_source(config: Config, name: str) -> dict[str, str]:
    source = config.source(name)
    if source.embedded:
        return {"source": source.url}
    of_server = {"user": source.user, "password": source.password, "ca_file": source.ca_file}
    return {"source": source.url} | {option: value for option, value in of_server.items() if value}


def _secret(given: Mapping[str, str], name: str) -> str:
    """As it is given, or as the file that `…_file` names holds it."""
    file = given.get(f"{name}_file")
    if not file:
        return given.get(name, "")
    if given.get(name):
        raise _wrong(f"give {name} or {name}_file, not both")
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"cannot read {name}_file: {error}") from None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise _wrong(f"invalid split_mb {text!r}: not a number of megabytes")
    return int(text)


def _yes(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _wrong(f"invalid pushdown {text!r}: true or false")
    return text.lower() == "true"


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    instead = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(_KNOWN)} and {_STORAGE}*"
    return _wrong(f"unknown option {name!r}; {instead}")


def _wrong(what: str) -> UsageError:
    return UsageError(f'format("mergetree"): {what}', code="data_source", hint=_HINT)
