"""A visit to one replica: statements, their rows, what the server is, and what its version can do.

What a server lacks is said, with the version that has it.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from calve.clickhouse.engine.engine import FORMAT, decode
from calve.clickhouse.server import errors
from calve.clickhouse.server.client import ReplicaClient, Statement
from calve.clickhouse.source import Disk
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.model.errors import CalveError, PermanentError, RefusedError, UnavailableError
from calve.model.limits import Limits

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, order=True)
class Version:
    """Year and release: what features hang on."""

    year: int
    release: int

    def __str__(self) -> str:
        return f"{self.year}.{self.release}"


def parse(text: str) -> Version:
    found = _NUMBERS.match(text)
    if found is None:
        raise RefusedError(f"invalid ClickHouse version {text!r}", code="server_version")
    return Version(int(found[1]), int(found[2]))


@dataclass(frozen=True, kw_only=True)
class Features:
    """What this version has."""

    version: Version

    @property
    def named_rows(self) -> bool:
        """The format JSONCompactEachRowWithNamesAndTypes."""
        return self.version >= Version(20, 12)

    @property
    def grants(self) -> bool:
        """Users by SQL, and system tables that show each of them only what it may see."""
        return self.version >= Version(20, 5)

    @property
    def part_offset(self) -> bool:
        """`_part_offset`: a huge part can be split over tasks."""
        return self.version >= Version(22, 6)

    @property
    def drop_sync(self) -> bool:
        """DROP TABLE … SYNC; before, a drop in an Ordinary database is done when it returns."""
        return self.version >= Version(20, 10)

    @property
    def table_unfreeze(self) -> bool:
        """ALTER TABLE … UNFREEZE WITH NAME."""
        return self.version >= Version(21, 4)

    @property
    def system_unfreeze(self) -> bool:
        """SYSTEM UNFREEZE WITH NAME, where the server's configuration allows it."""
        return self.version >= Version(22, 6)

    @property
    def table_uuids(self) -> bool:
        return self.version >= Version(20, 5)

    @property
    def server_uuid(self) -> bool:
        return self.version >= Version(22, 1)

    @property
    def server_timezone(self) -> bool:
        """serverTimezone(); before, timezone() was the server's."""
        return self.version >= Version(23, 6)

    @property
    def sync_lightweight(self) -> bool:
        """SYSTEM SYNC REPLICA … LIGHTWEIGHT waits for data and not for merges."""
        return self.version >= Version(23, 5)

    @property
    def drop_limit_setting(self) -> bool:
        """`max_table_size_to_drop` may be given with a statement."""
        return self.version >= Version(23, 12)

    @property
    def session_timezone(self) -> bool:
        """The setting by which a query is computed in a zone other than the server's."""
        return self.version >= Version(23, 6)

    def lacking(self) -> tuple[str, ...]:
        """What a person should know before exporting from this server."""
        found = []
        if not self.part_offset:
            found.append("a part is read by one task, however large (from 22.6 on it is split)")
        if not self.table_uuids:
            found.append("tables have no uuid, so the source needs an id (from 20.5 on they have)")
        return tuple(f"ClickHouse {self.version}: {text}" for text in found)


T = TypeVar("T")
NO_SETTINGS: Mapping[str, str] = {}
_KILL_SECONDS = 5.0
# What is asked wherever the version has it. All that have grants have these.
_SYSTEM = frozenset({"columns", "disks", "functions", "mutations", "parts", "row_policies", "tables"})


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What the configuration says of a server."""

    url: str
    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = "default"
    ca_file: str = ""
    id: str = ""
    disks: Mapping[str, str] = field(
        default_factory=dict
    )  # the server's name -> where executors see it: a folder, or a bucket
    connect_seconds: float = 5.0
    call_seconds: float = 15.0  # for the first answer: a replica that hangs must not hold up fail-over
    query_seconds: float = 300.0
    stall_seconds: float = Limits.stall_seconds  # of a stream of rows


class ServerSession:
    """A visit to one replica. Asks its version first, so that a dead one is known at once."""

    embedded = False

    def __init__(self, source: str, options: ServerOptions, client: ReplicaClient) -> None:
        self.source = source
        self.configured_id = options.id or None
        self.user = options.user
        self.patience_seconds = options.query_seconds
        self.address = client.address
        self._options = options
        self._client = client
        self._known: dict[str, Any] = {}
        self._entered = False
        first = min(options.call_seconds, options.query_seconds)
        found = self._json(
            "SELECT version() AS version, timezone() AS timezone", "asking its version", first, None
        )
        self._entered = True
        self.version: str = found[0]["version"]
        self.timezone: str = found[0]["timezone"]
        self.features = Features(version=parse(self.version))

    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a query, exact, except that NaN and infinities are None: a user who may only
        read cannot ask for them, and no system table has any."""
        if not self.features.named_rows:
            return self._json(sql, what, seconds, settings)
        return decode(self._ask(f"{sql} FORMAT {FORMAT}", settings, what, seconds))

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None:
        """A statement for its effect. When this returns or raises, it is no longer under way: one that
        we gave up waiting for is killed, and if even that cannot be had, the error says so."""
        self._ask(sql, settings, what, seconds, query_id=query_id)

    def kill(self, query_id: str, what: str = "") -> None:
        """End whatever runs under that id at this replica, and wait for its end."""
        self._client.ask(
            Statement(
                sql=f"KILL QUERY WHERE query_id = {string(query_id)} SYNC",
                what=what or f"ending query {query_id}",
                seconds=max(_KILL_SECONDS, self._options.connect_seconds),
                query_id=secrets.token_hex(16),
            )
        )

    @property
    def read_only(self) -> bool:
        """Whether the user may change nothing by its settings. Grants show when a pin is tried."""
        return self.once("read_only", self._is_read_only)

    def disks(self) -> tuple[Disk, ...]:
        """The server's disks that the configuration maps to folders here, without those that this user
        may not enter: nothing was ever frozen there, and nothing can be looked for."""
        return tuple(disk for disk in self.mapped_disks() if _may_enter(disk.path))

    def mapped_disks(self) -> tuple[Disk, ...]:
        """All that the configuration maps to folders."""
        disks = sorted(self._options.disks.items())
        return tuple(Disk(name=name, path=Path(path)) for name, path in disks if "://" not in path)

    def buckets(self) -> dict[str, str]:
        """The buckets of disks in object storage, by disk, where the configuration says them."""
        return {name: path.rstrip("/") for name, path in self._options.disks.items() if "://" in path}

    def has(self, table: str, column: str = "name") -> bool:
        """Whether a system table of this server has that column."""
        return (table, column) in self.once("system", self._system_columns)

    def once(self, key: str, ask: Callable[[], T]) -> T:
        """An answer that does not change during a visit."""
        if key not in self._known:
            self._known[key] = ask()
        found: T = self._known[key]
        return found

    def _is_read_only(self) -> bool:
        found = self.rows("SELECT value FROM system.settings WHERE name = 'readonly'")
        return bool(found) and found[0]["value"] != "0"

    def _system_columns(self) -> frozenset[tuple[str, str]]:
        found = self.rows("SELECT table, name FROM system.columns WHERE database = 'system'")
        known = frozenset((row["table"], row["name"]) for row in found)
        self._refuse_hidden(frozenset(table for table, _ in known))
        return known

    def _refuse_hidden(self, seen: frozenset[str]) -> None:
        """A system table that the user may not read is not shown to it, and would be taken for one that the
        version does not have: for no mutations, no row policies."""
        if not self.features.grants or not (hidden := _SYSTEM - seen):
            return
        raise PermanentError(
            f"source {self.source} ({self.address}): user {self.user} may not read"
            f" {', '.join(f'system.{name}' for name in sorted(hidden))}",
            code="system_hidden",
            hint=f"GRANT SELECT ON system.* TO {quoted(self.user)}",
        )

    def _json(
        self, sql: str, what: str, seconds: float | None, settings: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """By the format that every version has; numbers stay as they were written."""
        body = self._ask(f"{sql} FORMAT JSONCompact", settings or {}, what, seconds)
        try:
            answer = json.loads(body.decode("utf-8", "surrogateescape"), parse_float=str, parse_int=str)
            names = [column["name"] for column in answer["meta"]]
            types = [column["type"] for column in answer["meta"]]
            lines = [json.dumps(line) for line in (names, types, *answer["data"])]
        except (ValueError, KeyError, TypeError) as error:
            raise errors.cut_off(f"source {self.source}, {what}", f"it is not JSON ({error})") from None
        return decode("\n".join(lines).encode())

    def _ask(
        self, sql: str, settings: Mapping[str, str], what: str, seconds: float | None, query_id: str = ""
    ) -> bytes:
        request = Statement(
            sql=sql,
            what=what or "asking",
            seconds=self.patience_seconds if seconds is None else seconds,
            query_id=query_id or secrets.token_hex(16),
            settings=settings,
        )
        try:
            return self._client.ask(request)
        except errors.HungError as error:
            raise self._ended(request, error) from None

    def _ended(self, request: Statement, error: CalveError) -> CalveError:
        """The error for a statement that was given up, once it is ended."""
        if not self._entered:
            return error  # a server that does not say its version would not end a query either
        try:
            self.kill(request.query_id)
        except (UnavailableError, PermanentError) as failed:
            return UnavailableError(
                f"{error.message}; and it could not be ended there: {failed.message}",
                code=error.code,
                hint=error.hint,
                service=error.service,
            )
        return error


def _may_enter(disk: Path) -> bool:
    try:
        (disk / "shadow").exists()
    except PermissionError:
        return False
    return True
