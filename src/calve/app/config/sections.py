"""The sections of `calve.toml`: every key, its type, its default and one line that explains it.

The reference in the docs, the file that `calve init` writes, the check for unknown keys and
the suggestions are all made of these classes. Limits are `model.limits.Limits`, not repeated.
"""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator

from calve.app.arguments import share, size, span
from calve.destination.names import SORT_ORDER_IDS
from calve.export.choices import NanosecondsAs, StringAs, UInt64As, UuidAs, WideIntegersAs
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.objects.credentials import DEFAULT_REGION
from calve.policy.calendar import Window, zone_of
from calve.policy.policy import LateRows, Policy, ReleaseRule, Verify
from calve.policy.schedule import Schedule, TimeOfDay


class Section(BaseModel):
    """Unknown keys are errors; text from the environment is read as the key's type."""

    # A wrong value may be a secret in the wrong place: no error repeats it, a traceback neither.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class SourceSection(Section):
    """A ClickHouse source. The first one in the file is the default."""

    url: str = Field(
        description='"chdb://folder" for an embedded ClickHouse, or "http://host:8123" for a server'
    )
    user: str = Field(default="default", description="user of a server")
    password: str = Field(default="", description="password of a server; prefer password_file")
    database: str = Field(default="default", description="database of a table that is named without one")
    ca_file: str = Field(default="", description="CA certificates for an https server")
    id: str = Field(
        default="", description="identifies the source where ClickHouse has no lasting id of its own"
    )
    disks: dict[str, str] = Field(
        default={},
        description="where executors see the server's disks: {default = '/var/lib/clickhouse', cold = 's3://bucket'}",
    )
    disks_at: Literal["executors", "worker"] = Field(
        default="executors",
        description='who sees the disks: with "worker", on a Spark cluster, backups and restores run on the worker\'s'
        " machine, and exports read a server over HTTP",
    )
    lake: dict[str, str] = Field(
        default={},
        description="the table engine by which the server itself reads a catalog's tables, for `calve view`:"
        " {lake = \"IcebergS3(named_collection, filename = '{path}/')\"}",
    )
    engine_config: str = Field(
        default="",
        description="ClickHouse configuration file for an embedded source whose tables need disks or storage"
        " policies",
    )


class StorageSection(Section):
    """Object storage, by URL prefix, for plain Parquet and backups. Keys that name no cloud are for S3."""

    endpoint: str = Field(default="", description="address of the service, if it is not AWS")
    region: str = Field(
        default="",
        description=f"region of the bucket; where it is empty, the AWS variables', or {DEFAULT_REGION}",
    )
    access_key_id: str = Field(default="", description="key id; if empty, the usual AWS variables are used")
    secret_access_key: str = Field(default="", description="secret key; prefer secret_access_key_file")
    session_token: str = Field(default="", description="session token of temporary keys")
    profile: str = Field(default="", description="a profile of ~/.aws/credentials to take the keys from")
    ca_file: str = Field(default="", description="CA certificates for an https endpoint")
    virtual_addressing: bool = Field(
        default=False, description="put the bucket in the host name, not in the path"
    )
    account: str = Field(default="", description="Azure: the storage account, if the URL does not name it")
    account_key: str = Field(default="", description="Azure: a key of the account; prefer account_key_file")
    sas_token: str = Field(default="", description="Azure: a shared access signature; prefer sas_token_file")
    tenant_id: str = Field(default="", description="Azure: the tenant of a service principal")
    client_id: str = Field(
        default="", description="Azure: the service principal, or a managed identity of several"
    )
    client_secret: str = Field(
        default="", description="Azure: the service principal's secret; prefer client_secret_file"
    )
    service_account_key: str = Field(
        default="", description="Google: the key of a service account, JSON; prefer service_account_key_file"
    )
    token: str = Field(default="", description="Google: an OAuth token, which is not renewed")


class StoreSection(Section):
    """Where processes are kept."""

    url: str = Field(
        default="sqlite:///calve.db", description='"sqlite:///file" for one host, "postgresql://…" for many'
    )


class ScheduleSection(Section):
    """Backups that workers make on their own, and what proves them."""

    every: str = Field(default="1d", description="how often: 1d, 1w, or what divides a day, such as 6h")
    at: str = Field(
        default="02:00 UTC",
        description='time and zone, "02:00 Europe/Berlin"; for weeks with a day: "sun 02:00 Europe/Berlin"',
    )
    jitter: str = Field(default="5m", description="delay each backup by up to this long; 0m for none")
    tables: list[str] = Field(description='which tables: "db.*", or several patterns')
    source: str = Field(default="", description="a source of the configuration; empty for the first")
    keep_last: int = Field(
        default=0, ge=0, description="how many of the last backups of the schedule are kept"
    )
    keep_daily: int = Field(
        default=0,
        ge=0,
        description="of how many days the newest one is kept; if all are 0, nothing is deleted",
    )
    keep_weekly: int = Field(default=0, ge=0, description="of how many weeks the newest one is kept")
    keep_monthly: int = Field(default=0, ge=0, description="of how many months the newest one is kept")
    keep_yearly: int = Field(default=0, ge=0, description="of how many years the newest one is kept")
    rbac: bool = Field(default=False, description="also users, roles, grants, quotas and the like")
    ignore_row_policies: bool = Field(default=False, description="also rows that row policies hide")
    verify: str = Field(
        default="0%",
        description="how much of each backup is read back afterwards: 5%; 0% for none, and nothing is looked at",
    )
    drill: str = Field(
        default="", description="how often a sample is restored, compared and removed: 7d; empty for never"
    )
    drill_bytes: str = Field(default="1GB", description="how much a drill restores at most")

    @field_validator("tables", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _by_commas(value)

    @model_validator(mode="after")
    def _reads(self) -> Self:
        _refused(lambda: schedule_of("schedule", self))
        return self


def schedule_of(name: str, section: ScheduleSection, *, source: str = "", seed: str = "") -> Schedule:
    """UsageError for what does not read. `source` is the default one."""
    if not section.tables:
        raise UsageError("no tables are given", code="config_bad_value", hint='give tables = "db.*"')
    counts = {
        name: getattr(section, f"keep_{name}") for name in ("last", "daily", "weekly", "monthly", "yearly")
    }
    made = Schedule(
        name=name,
        source=section.source or source,
        tables=tuple(section.tables),
        every=span(section.every, what="every", units="mhdw"),
        clock=TimeOfDay.parse(section.at),
        jitter=span(section.jitter, what="jitter", units="smhdw"),
        seed=seed,
        keep=tuple((name, count) for name, count in counts.items() if count),
        rbac=section.rbac,
        ignore_row_policies=section.ignore_row_policies,
        verify=share(section.verify, what="verify"),
        drill_every=span(section.drill, what="drill", units="hdw") if section.drill else None,
        drill_bytes=size(section.drill_bytes, what="drill_bytes"),
    )
    made.check()
    return made


class BackupSection(Section):
    """Where backups are kept."""

    url: str = Field(default="backups", description='a folder, or "s3://bucket/prefix"')
    signing_key: str = Field(
        default="",
        description="signs manifests, and refuses others; better given as signing_key_file",
    )
    encryption_key: str = Field(
        default="",
        description="encrypts backups: 32 bytes in hex or base64; several, one a line, all decrypt and the first "
        "encrypts; better given as encryption_key_file",
    )
    compression: Literal["none", "zstd"] = Field(
        default="none",
        description='"zstd" compresses files; parts are compressed already, so it gains little',
    )
    compression_level: int = Field(default=3, ge=1, le=19, description="of zstd: 1 (fast) to 19 (small)")
    hard_links: bool = Field(
        default=False,
        description="hard-link files instead of copying them; the backup is then lost with the source's disk",
    )
    schedule: dict[str, ScheduleSection] = {}


class SparkSection(Section):
    """The Spark that moves the data."""

    master: str = Field(default="local[*]", description="any Spark master")
    conf: dict[str, str] = Field(default={}, description="passed to Spark unchanged")


class TypesSection(Section):
    """How ClickHouse types that Iceberg lacks are exported."""

    uint64: UInt64As = Field(
        default=UInt64As.DECIMAL, description='"decimal" (20 digits), or "long", which fails on overflow'
    )
    uuid: UuidAs = Field(default=UuidAs.UUID, description='"uuid" or "string"')
    strings: StringAs = Field(
        default=StringAs.STRING, description='"string", which fails on bytes that are not UTF-8, or "binary"'
    )
    nanoseconds: NanosecondsAs = Field(
        default=NanosecondsAs.REFUSE, description='DateTime64(7) to (9): "refuse" or "truncate"'
    )
    wide_integers: WideIntegersAs = Field(
        default=WideIntegersAs.REFUSE, description='Int128 to UInt256: "refuse", "decimal" or "string"'
    )


class OptimizeSection(Section):
    """Tables that workers optimize on their own."""

    tables: list[str] = Field(
        default=[], description='patterns such as ["lake.*"]; empty for none. `calve optimize` needs no entry'
    )
    interval_seconds: float = Field(default=300.0, gt=0, description="how often they are checked")
    share: float = Field(default=0.25, gt=0, le=1, description="share of a worker's slots that this may use")

    @field_validator("tables", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _by_commas(value)


class ServeSection(Section):
    """What `calve serve` listens to. Its options win."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(default=8180, ge=0, le=65535, description="the port; 0 takes a free one")
    root_path: str = Field(default="", description='the path below which a proxy shows it: "/calve"')
    hosts: list[str] = Field(default=[], description="names by which it is called, beside its address")
    tls_cert: str = Field(default="", description="certificate, with its chain, as PEM")
    tls_key: str = Field(default="", description="key of the certificate, as PEM")
    behind_proxy: bool = Field(
        default=False,
        description="a proxy that adds X-Forwarded-For is in front; then reading needs a token too",
    )
    login_in_urls: bool = Field(
        default=False,
        description="take ?user=&pass=TOKEN at /backup, /v1/tables and /v1/actions, for clients that send no headers",
    )

    @field_validator("hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _by_commas(value)


_Kind = Literal["export", "backup", "restore", "optimize"]


class MetricsSection(Section):
    """What Prometheus scrapes: /metrics of `calve serve`, and of each worker at this port."""

    host: str = Field(default="127.0.0.1", description="the address that a worker listens on")
    port: int = Field(default=0, ge=0, le=65535, description="the port of a worker's metrics; 0 for none")


class ExpectSection(Section):
    """Work that must happen: the dashboard and `calve_expected` of the metrics tell if it did not."""

    kind: _Kind = Field(default="export", description='"export", "backup", "restore" or "optimize"')
    table: str = Field(description='the source table, or a pattern of some: "main:db.*"')
    to: str = Field(default="", description="pattern of destinations; empty for any")
    within: str = Field(default="26h", description="how long ago the last one may have completed: 26h, 8d")
    proven_within: str = Field(
        default="", description="how long ago the last proof may be (calve verify); empty for no matter"
    )

    @field_validator("within", "proven_within")
    @classmethod
    def _is_span(cls, value: str) -> str:
        if value:
            _refused(lambda: span(value, units="mhdw"))
        return value

    @field_validator("within")
    @classmethod
    def _given(cls, value: str) -> str:
        if not value:
            raise ValueError("give an age such as 26h")
        return value


class PolicySection(Section):
    """Partitions that workers export on their own, once they are over and quiet."""

    source: str = Field(description='the table, or a pattern of some: "main:db.events", "main:db.*"')
    to: str = Field(description="the destination; {database} and {table} stand for those of the table")
    export_after: str = Field(
        default="3d",
        description="how long after the time that a partition covers it is exported: 12h, 3d, 2w",
    )
    quiet: str = Field(default="6h", description="how long a partition must not have changed")
    on_late_rows: Literal["hold", "append", "replace"] = Field(
        default="hold",
        description='rows that come after the export: "hold" waits for a person; "append" adds the parts that are'
        ' new; "replace" exports the partition again, where rows were only added',
    )
    verify: Literal["full", "sample"] = Field(
        default="full",
        description='how an export is proven: "full" compares every row with the source; "sample" reads some of its'
        " files",
    )
    release: Literal["never", "quarantine"] = Field(
        default="never",
        description='whether proven partitions leave the table: "quarantine" moves them aside, once somebody approved it',
    )
    release_after: str = Field(
        default="30d",
        description="how long after the proof they leave; and how long they stay in quarantine before they may be dropped",
    )
    only_copy: Literal["", "accepted"] = Field(
        default="",
        description='"accepted": a partition may be dropped from quarantine though no backup has it; the lake then has its'
        " only copy",
    )
    view: str = Field(
        default="",
        description='a view over each table and its destination, made and kept up to date: "db.events_all"; {database} and'
        " {table} stand for those of the table; empty for none",
    )
    window: str = Field(
        default="", description='when exports begin: "01:00-05:00 Europe/Berlin"; empty for any time'
    )
    partitions_per_run: int = Field(default=20, ge=1, description="how many partitions begin at once")
    bytes_per_day: str = Field(
        default="", description='how much begins in a day: "500GB", "2TB"; empty for no limit'
    )
    zone: str = Field(default="", description="where the day begins; empty for the window's zone, or UTC")
    look_every: str = Field(default="5m", description="how often the source and the destination are asked")

    @model_validator(mode="after")
    def _reads(self) -> Self:
        _refused(lambda: policy_of("policy", self))
        return self


def policy_of(name: str, section: PolicySection) -> Policy:
    """UsageError for what does not read."""
    source, colon, tables = section.source.partition(":")
    window = Window.parse(section.window) if section.window else None
    zone = section.zone or (window.zone if window else "UTC")
    zone_of(zone)
    made = Policy(
        name=name,
        source=source if colon else "",
        tables=tables if colon else source,
        to=section.to,
        export_after=_span("export_after", section.export_after),
        quiet=_span("quiet", section.quiet),
        on_late_rows=LateRows(section.on_late_rows),
        verify=Verify(section.verify),
        window=window,
        zone=zone,
        partitions_per_run=section.partitions_per_run,
        bytes_per_day=size(section.bytes_per_day, what="bytes_per_day") if section.bytes_per_day else 0,
        release=ReleaseRule(section.release),
        release_after=_span("release_after", section.release_after),
        only_copy=section.only_copy == "accepted",
        view=section.view,
        look_every=_span("look_every", section.look_every),
    )
    made.check()
    return made


def _span(key: str, text: str) -> timedelta:
    return span(text, what=key, units="smhdw")


class LogSection(Section):
    """The log of `calve worker` and `calve serve`, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least level that is logged; --log-level wins"
    )
    format: Literal["auto", "json", "human"] = Field(
        default="auto",
        description='"json", "human", or "auto": for people on a terminal, otherwise JSON lines',
    )


class NotifySection(Section):
    """A webhook: what happens to processes is posted to it."""

    url: str = Field(description="where to post; it is kept secret, and better given as url_file")
    secret: str = Field(default="", description="signs each message; better given as secret_file")
    form: Literal["json", "slack"] = Field(
        default="json", description='"json", or "slack" for an incoming webhook'
    )
    on: list[Literal["failed", "unknown", "recovered", "stuck", "wanted", "done"]] = Field(
        default=["failed", "unknown", "recovered", "stuck", "wanted"],
        description='the events it receives; "done" is the sixth',
    )
    kinds: list[_Kind | Literal["proof", "drill", "release", "return", "drop", "untier"]] = Field(
        default=[], description='such as ["export", "backup"]; empty for all'
    )
    tables: list[str] = Field(
        default=[], description='patterns of sources or destinations such as ["db.*"]; empty for all'
    )
    stuck_minutes: float = Field(
        default=60.0, gt=0, description="a process that makes no progress for this long is stuck"
    )
    ca_file: str = Field(default="", description="CA certificates for an https URL")

    @field_validator("on", "kinds", "tables", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _by_commas(value)

    @field_validator("url")
    @classmethod
    def _checked(cls, value: str) -> str:
        return _http_url(value)


class PingSection(Section):
    """A service that raises the alarm if nothing calls it: start, success and fail of a nightly job."""

    kind: Literal["", "export", "backup", "restore", "optimize", "proof", "drill"] = Field(
        default="", description="which work it is about; empty for all"
    )
    table: str = Field(default="", description='pattern of a source or destination such as "db.*"')
    start: str = Field(
        default="", description="URL to get when work is submitted; better given as start_file"
    )
    success: str = Field(default="", description="URL to get when it is done; better given as success_file")
    fail: str = Field(default="", description="URL to get when it fails; better given as fail_file")
    ca_file: str = Field(default="", description="CA certificates for https URLs")

    @field_validator("start", "success", "fail")
    @classmethod
    def _checked(cls, value: str) -> str:
        return _http_url(value) if value else value

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if not (self.start or self.success or self.fail):
            raise ValueError("give at least one of start, success and fail")
        return self


def _refused(read: Callable[[], object]) -> None:
    """What does not read, with its hint below it: `config.load` names the section before both."""
    try:
        read()
    except UsageError as error:
        raise ValueError(f"{error.message}\n{error.hint}") from None


def _http_url(value: str) -> str:
    """Checked without repeating it: it is a secret."""
    try:
        place = urlsplit(value)
        whole = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        whole = False
    if not whole or not all("!" <= sign <= "~" for sign in value) or "#" in value:
        raise ValueError("not an http:// or https:// URL")
    if "@" in urlsplit(value).netloc:
        raise ValueError("a URL with a user or password is not supported")
    return value


def _by_commas(value: Any) -> Any:
    """A list from the environment: commas between."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _limits_section() -> type[Section]:
    """`[limits]`, from the dataclass that the program itself uses."""
    keys: dict[str, Any] = {}
    for item in fields(Limits):
        # Nothing may be unbounded, so zero is refused wherever it has no meaning of its own.
        has_meaning = item.default == 0 or "0 means" in item.metadata["why"]
        bound: dict[str, Any] = {"ge": 0} if has_meaning else {"gt": 0}
        keys[item.name] = (item.type, Field(default=item.default, description=item.metadata["why"], **bound))
    return create_model(
        "LimitsSection", __base__=Section, __doc__="Every bound, each with its default.", **keys
    )


LimitsSection = _limits_section()


class Root(Section):
    """The whole file."""

    source: dict[str, SourceSection] = {}
    catalog: dict[str, dict[str, Any]] = {}
    storage: dict[str, StorageSection] = {}
    store: StoreSection = StoreSection()
    backup: BackupSection = BackupSection()
    spark: SparkSection = SparkSection()
    types: TypesSection = TypesSection()
    optimize: OptimizeSection = OptimizeSection()
    serve: ServeSection = ServeSection()
    metrics: MetricsSection = MetricsSection()
    expect: dict[str, ExpectSection] = {}
    policy: dict[str, PolicySection] = {}
    log: LogSection = LogSection()
    notify: dict[str, NotifySection] = {}
    ping: dict[str, PingSection] = {}
    limits: LimitsSection = LimitsSection()  # type: ignore[valid-type]

    @field_validator("catalog")
    @classmethod
    def _switches(cls, catalogs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The one key of ours there that is a switch; the others are PyIceberg's to check."""
        for name, entry in catalogs.items():
            if str(entry.get(SORT_ORDER_IDS, "true")).lower() not in ("true", "false"):
                raise ValueError(f'"{SORT_ORDER_IDS}" of [catalog.{name}] is true or false')
        return catalogs


NAMED_SECTIONS: dict[str, type[Section] | None] = {
    "source": SourceSection,
    "catalog": None,  # PyIceberg's own keys
    "storage": StorageSection,
    "expect": ExpectSection,
    "policy": PolicySection,
    "backup.schedule": ScheduleSection,
    "notify": NotifySection,
    "ping": PingSection,
}
PLAIN_SECTIONS: dict[str, type[Section]] = {
    "store": StoreSection,
    "backup": BackupSection,
    "spark": SparkSection,
    "types": TypesSection,
    "optimize": OptimizeSection,
    "serve": ServeSection,
    "metrics": MetricsSection,
    "log": LogSection,
    "limits": LimitsSection,
}
