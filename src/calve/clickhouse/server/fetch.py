"""Asking a server for the rows of a part: the engine itself fetches them, and what came is counted.

An answer that is cut off, or that a part which is gone gave, fails the attempt. What the server said is kept in
its own words, and never with a secret (P22).
"""

import re
import secrets
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from calve.clickhouse.engine.engine import Engine
from calve.clickhouse.errors import number_of
from calve.clickhouse.server import errors
from calve.clickhouse.server.client import Credentials, ReplicaClient, Statement, parse_url
from calve.clickhouse.server.live import LiveTable
from calve.clickhouse.sql import tokens
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import CalveError, PermanentError, TemporaryError
from calve.model.limits import Limits

# What the server said, inside of what the engine says about it.
_REMOTE = re.compile(
    r"Code: \d+(?:\.|, e\.displayText\(\) =) DB::Exception: .*?(?=\s*\(version [^)]*\)|\s*'?: ?\(in file/uri|\Z)",
    re.DOTALL,
)
# DNS, socket timeout, network, an answer that is no 200, Poco's own, unexpected end, broken framing
_NETWORK = frozenset({86, 198, 209, 210, 1000})
# An exception's text in the middle of Native blocks is read as a block, and fails as anything may.
_GARBLED = ("While executing Native", "Unexpected EOF")
_CUT = frozenset({27, 32, 33, 117, 354})
_FETCH = {
    "max_threads": "1",
    "max_insert_threads": "1",
    "optimize_on_insert": "0",  # a merging engine would merge what comes
    "input_format_skip_unknown_fields": "0",  # Native matches by name: a stranger must not become a default
    "parts_to_delay_insert": "1000000000",
    "parts_to_throw_insert": "1000000000",
    "http_make_head_request": "0",  # would run the query once more for its headers
    "http_max_tries": "1",  # attempts are ours; a stream is never taken up again in its middle
    "max_read_buffer_size_remote_fs": "1048576",
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """What an executor needs to ask the server. Shipped with the task, never stored (P22)."""

    user: str = "default"
    password: str = field(default="", repr=False)
    ca_file: str = ""
    connect_seconds: float = 5.0
    read_seconds: float = Limits.stall_seconds  # how long a stream of rows may say nothing

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Access":
        """From `ServerSource.access`."""
        return cls(
            user=properties["user"],
            password=properties["password"],
            ca_file=properties["ca_file"],
            connect_seconds=float(properties["connect_seconds"]),
            read_seconds=float(properties["read_seconds"]),
        )

    @property
    def credentials(self) -> Credentials:
        return Credentials(user=self.user, password=self.password)


class Fetch:
    """Asks the server for slices and puts them into the scratch table."""

    def __init__(
        self,
        engine: Engine,
        live: LiveTable,
        relation: Relation,
        aliases: Mapping[str, str],
        access: Access,
        target: str,
    ) -> None:
        self.target = target
        self._engine = engine
        self._live = live
        self._access = access
        added = ", ".join(f"{tokens.name(key)} {kind}" for key, kind in aliases.items())
        self._structure = ", ".join(text for text in (added, relation.structure) if text)
        self._columns = tuple(
            next(tokens.tokens(item)).value for item in tokens.split_arguments(self._structure)
        )

    def slice(self, part: PartPlan, start: int, end: int, settings: Mapping[str, str]) -> None:
        columns = ", ".join(map(tokens.name, self._columns))
        query = self._live.query(self._columns, part, start, end)
        query_id = f"calve-read-{secrets.token_hex(8)}"
        # The password stands in this statement alone, inside the engine; errors are searched for it.
        sql = f"INSERT INTO {self.target} ({columns}) SELECT {columns} FROM {self._url(query, query_id)}"
        try:
            self._engine.execute(sql, {**_FETCH, **self._timeouts(), **settings}, self._what(part))
        except CalveError as error:
            raise self._translate(error, part, query_id) from None

    def check(self, part: PartPlan, start: int, end: int, rows: int) -> None:
        """Every row of the slice came, or the attempt fails. `rows` came."""
        counted = self._live.counts(part)
        expected = self._number(part, self._live.count(part, start, end)) if counted else end - start
        what = f"{self._what(part)}: {rows} of {expected} rows came"
        if not self._live.pinned and self._is_gone(part, rows, counted=counted):
            raise PermanentError(
                f"{what}: the part was merged, mutated or dropped since it was planned",
                code="part_gone",
                hint="try again; an export by a user who may create tables in calve_pins gets parts that stay",
            )
        if rows != expected:
            raise TemporaryError(f"{what}: the answer was cut off", code="source_cut_off")

    def _is_gone(self, part: PartPlan, rows: int, *, counted: bool) -> bool:
        """Of a part that is gone no row comes, and none is counted either: what was counted holds only
        if the part is there after it."""
        return not self._number(part, self._live.still_there(part)) if counted else rows == 0

    def _url(self, query: str, query_id: str) -> str:
        parameters = {"query": f"{query} FORMAT Native", "query_id": query_id, **self._live.settings}
        address = f"{self._live.replica}/?{urllib.parse.urlencode(parameters)}"
        headers = ", ".join(
            f"{tokens.string(key)} = {tokens.string(value)}"
            for key, value in self._access.credentials.headers().items()
        )
        return (
            f"url({tokens.string(address)}, 'Native', {tokens.string(self._structure)}, headers({headers}))"
        )

    def _timeouts(self) -> dict[str, str]:
        return {
            "http_connection_timeout": str(max(1, round(self._access.connect_seconds))),
            # never longer than the engine's own patience, which would end its process
            "http_send_timeout": str(max(1, int(self._access.read_seconds))),
            "http_receive_timeout": str(max(1, int(self._access.read_seconds))),
        }

    def _number(self, part: PartPlan, query: str, seconds: float = 0.0) -> int:
        """What the server answers to a question about a part."""
        return int(self._ask(part, query, seconds))

    def _ask(self, part: PartPlan, query: str, seconds: float = 0.0) -> bytes:
        [address] = parse_url(self._live.replica, self._live.source)
        client = ReplicaClient(
            address,
            source=self._live.source,
            credentials=self._access.credentials,
            database=self._live.database,
            ca_file=self._access.ca_file,
            connect_seconds=self._access.connect_seconds,
        )
        request = Statement(
            sql=f"{query} FORMAT TabSeparated",
            what=f"asking about part {part.name}",
            seconds=seconds or self._access.read_seconds,
            query_id="",
        )
        return client.ask(request)

    def _answers(self, part: PartPlan) -> bool:
        """Whether the server is there, though it sends no rows: then it is not an outage, and counts."""
        with suppress(CalveError):
            return self._number(part, "SELECT 1", self._access.connect_seconds) == 1
        return False

    def _ended(self, part: PartPlan, query_id: str) -> bool:
        """End the query that was given up; whether the server was still at it. A user may end its own."""
        is_it = f"query_id = {tokens.string(query_id)}"
        with suppress(CalveError):
            if self._number(
                part, f"SELECT count() FROM system.processes WHERE {is_it}", self._access.connect_seconds
            ):
                self._ask(part, f"KILL QUERY WHERE {is_it} ASYNC", self._access.connect_seconds)
                return True
        return False

    def _what(self, part: PartPlan) -> str:
        return f"source {self._live.source} ({self._live.replica}), reading part {part.name}"

    def _translate(self, error: CalveError, part: PartPlan, query_id: str) -> CalveError:
        """The server's own words where they came through, and never a secret."""
        text = errors.masked(error.message, self._access.credentials.secrets)
        text = text.removeprefix(f"{self._what(part)}: ")
        remote, number = _REMOTE.search(text), number_of(error)
        if number in _NETWORK and remote:
            return errors.translate(
                remote.group(), self._what(part), self._live.source, self._access.credentials.secrets
            )
        if number in _CUT or any(sign in text for sign in _GARBLED):
            return errors.cut_off(self._what(part), text)
        if number in _NETWORK and "timeout" in text.lower() and self._answers(part):
            busy = self._ended(part, query_id)
            return errors.stalled(self._what(part), self._access.read_seconds, busy=busy)
        if number in _NETWORK:
            return errors.unreachable(self._what(part), text, self._live.source)
        return type(error)(f"{self._what(part)}: {text}", code=error.code, hint=error.hint)
