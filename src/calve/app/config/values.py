"""The configuration as the rest of the program sees it: frozen, absolute, checked.

Relative paths, made absolute: they are relative to the configuration file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from calve.export.choices import Choices
from calve.model import reach
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.policy.policy import Policy
from calve.policy.schedule import Schedule

CONFIG_NAME = "calve.toml"
DEFAULT_ORIGIN = "default"


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One ClickHouse source. Paths are absolute; `url` is `chdb:///folder` or `http(s)://…`."""

    name: str
    url: str = field(repr=False)  # may carry a password
    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = "default"
    ca_file: str = ""
    id: str = ""
    disks: Mapping[str, str] = field(default_factory=dict)
    disks_at: str = "executors"
    lake: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # catalog -> engine, which may hold keys
    engine_config: str = ""

    @property
    def embedded(self) -> bool:
        return self.url.startswith("chdb://")

    @property
    def folder(self) -> Path:
        """The data folder of an embedded source."""
        return Path(self.url.removeprefix("chdb://"))


@dataclass(frozen=True, kw_only=True)
class SparkConfig:
    master: str
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What a server listens to, and under which names."""

    host: str = "127.0.0.1"
    port: int = 8180
    root_path: str = ""
    hosts: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: bool = False
    login_in_urls: bool = False


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """Where a worker is scraped."""

    host: str = "127.0.0.1"
    port: int = 0  # none


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Work that must happen."""

    name: str
    kind: str
    table: str  # a pattern of sources
    to: str = ""  # a pattern of destinations; "" for any
    within: timedelta
    proven_within: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    level: str = "info"
    format: str = "auto"


@dataclass(frozen=True, kw_only=True)
class OptimizeConfig:
    """Which tables workers optimize by themselves, how often they look, and with how many slots."""

    tables: tuple[str, ...] = ()
    interval_seconds: float = 300.0
    share: float = 0.25


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value and where it came from, as `calve config` shows it. A secret is never in `shown`."""

    key: str
    shown: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """All of `calve.toml`. Catalog properties are PyIceberg's own; storages are by URL prefix."""

    file: Path | None
    folder: Path  # what relative paths were relative to
    sources: Mapping[str, SourceConfig]
    catalogs: Mapping[str, Mapping[str, Any]] = field(repr=False)
    storages: Mapping[str, Mapping[str, str]] = field(repr=False)
    store_url: str = field(repr=False)
    backup_url: str
    backup_hard_links: bool
    backup_signing_key: str = field(repr=False)
    backup_encryption_key: str = field(repr=False)
    backup_compression: str
    backup_compression_level: int
    spark: SparkConfig
    choices: Choices  # about types
    limits: Limits
    optimize: OptimizeConfig = OptimizeConfig()
    serve: ServeConfig = ServeConfig()
    metrics: MetricsConfig = MetricsConfig()
    expect: tuple[Expectation, ...] = ()
    policies: tuple[Policy, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    log: LogConfig = LogConfig()
    secrets: tuple[str, ...] = field(default=(), repr=False)  # never to be shown, wherever they turn up
    # Fields of `notify.targets`, by name; only `app.notices` reads them.
    notify: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    pings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    settings: tuple[Setting, ...] = ()

    @property
    def reach(self) -> frozenset[str]:
        """What a worker with this configuration can serve."""
        return (
            frozenset(reach.source(name) for name in self.sources)
            | frozenset(reach.catalog(name) for name in self.catalogs)
            | frozenset(reach.storage(prefix) for prefix in self.storages)
            | {reach.backup(self.backup_url)}
        )

    @property
    def default_source(self) -> str:
        """The first source of the file."""
        if not self.sources:
            raise UsageError(
                "no source is configured",
                code="no_source",
                hint=f"add a [source.main] with its url to {self.file or CONFIG_NAME}",
            )
        return next(iter(self.sources))

    def policy(self, name: str) -> Policy:
        for one in self.policies:
            if one.name == name:
                return one
        raise _not_configured("policy", name, {one.name: one for one in self.policies}, self.file)

    def schedule(self, name: str) -> Schedule:
        for one in self.schedules:
            if one.name == name:
                return one
        raise _not_configured(
            "schedule", name, {one.name: one for one in self.schedules}, self.file, "backup."
        )

    def source(self, name: str) -> SourceConfig:
        if name not in self.sources:
            raise _not_configured("source", name, self.sources, self.file)
        return self.sources[name]

    def catalog(self, name: str) -> Mapping[str, Any]:
        if name not in self.catalogs:
            raise _not_configured("catalog", name, self.catalogs, self.file)
        return self.catalogs[name]


def _not_configured(
    section: str, name: str, known: Mapping[str, object], file: Path | None, above: str = ""
) -> UsageError:
    listed = ", ".join(known) or "none"
    return UsageError(
        f"{section} {name!r} is not configured (configured: {listed})",
        code=f"{section}_not_configured",
        hint=f"add [{above}{section}.{name}] to {file or CONFIG_NAME}, or use one that is configured",
    )


_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


def absolute(text: str, folder: Path) -> Path:
    """Without resolving links: a person should recognise the path in a message."""
    path = folder / Path(text).expanduser()
    return Path(*_without_dots(path.parts))


def _without_dots(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == ".." and len(kept) > 1:
            kept.pop()
        elif part != "..":
            kept.append(part)
    return kept


def source_url(url: str, folder: Path) -> str:
    """`chdb://folder` is relative to the file, `chdb:///folder` is not."""
    if not url.startswith("chdb://"):
        return url
    return f"chdb://{absolute(url.removeprefix('chdb://'), folder)}"


def database_url(url: str, folder: Path) -> str:
    """`sqlite:///file` is relative to the file, `sqlite:////file` is not."""
    scheme, parted, rest = url.partition(":///")
    if not parted or not scheme.startswith("sqlite") or not rest or rest.startswith(":memory:"):
        return url
    path, question, query = rest.partition("?")
    return f"{scheme}:///{absolute(path, folder)}{question}{query}"


def location(text: str, folder: Path) -> str:
    """A folder becomes `file:///…`; a URI stays."""
    if text.startswith("file:"):
        text = text.removeprefix("file:")
        if text.startswith("//"):
            text = text.removeprefix("//")
        return f"file://{absolute(text, folder)}"
    if _SCHEME.match(text):
        return text
    return f"file://{absolute(text, folder)}"
