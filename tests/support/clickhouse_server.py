"""A real ClickHouse server: Debian's `clickhouse-server` (18.16), in a folder of its own.

It is old on purpose: what it lacks must be detected by version and said.
"""

import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from support.programs import Program, free_ports, missing

INSTALL = "apt-get install --no-install-recommends clickhouse-server"


@dataclass(frozen=True, kw_only=True)
class User:
    """One account of the server."""

    password: str = ""
    readonly: bool = False


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    users: Mapping[str, User] = field(default_factory=lambda: {"default": User()})
    timezone: str = "UTC"


class ClickHouseServer:
    """The server's address and its life: `kill` is SIGKILL, `start` uses the same port and folder."""

    def __init__(self, folder: Path, options: ServerOptions) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port, self._tcp_port, self._interserver_port = free_ports(3)
        self._options = options
        self._program: Program | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def program(self) -> Program:
        assert self._program is not None, "the server was not started"
        return self._program

    def start(self) -> None:
        binary = shutil.which("clickhouse-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if binary is None:
            raise missing("clickhouse-server", INSTALL)
        self._configure()
        self._program = Program(
            "clickhouse-server",
            [binary, f"--config-file={self.folder / 'config.xml'}"],
            self.folder / "output.log",
        )
        self._program.wait_ready(self._answers)

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=1.0) as answer:
                return bool(answer.read().strip() == b"Ok.")
        except OSError:
            return False

    def _configure(self) -> None:
        for name in ("data", "tmp", "user_files", "format_schemas"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "config.xml").write_text(self._config(), encoding="utf-8")
        (self.folder / "users.xml").write_text(self._users(), encoding="utf-8")

    def _config(self) -> str:
        return f"""<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{self.port}</http_port>
  <tcp_port>{self._tcp_port}</tcp_port>
  <interserver_http_port>{self._interserver_port}</interserver_http_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <path>{escape(str(self.data))}/</path>
  <tmp_path>{escape(str(self.folder / "tmp"))}/</tmp_path>
  <user_files_path>{escape(str(self.folder / "user_files"))}/</user_files_path>
  <format_schema_path>{escape(str(self.folder / "format_schemas"))}/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <timezone>{escape(self._options.timezone)}</timezone>
  <mark_cache_size>67108864</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <remote_servers>
    <two_shards>
      <shard><replica><host>127.0.0.1</host><port>{self._tcp_port}</port></replica></shard>
      <shard><replica><host>127.0.0.2</host><port>{self._tcp_port}</port></replica></shard>
    </two_shards>
  </remote_servers>
</yandex>
"""

    def _users(self) -> str:
        users = "".join(
            f"<{name}><password>{escape(user.password)}</password>"
            "<networks><ip>127.0.0.1</ip></networks>"
            f"<profile>{'readonly' if user.readonly else 'default'}</profile><quota>default</quota></{name}>"
            for name, user in self._options.users.items()
        )
        return (
            "<yandex><profiles><default/><readonly><readonly>1</readonly></readonly></profiles>"
            f"<users>{users}</users><quotas><default/></quotas></yandex>"
        )


@contextmanager
def clickhouse_server(folder: Path, options: ServerOptions | None = None) -> Iterator[ClickHouseServer]:
    """A started server in `folder`, killed at the end of the block."""
    server = ClickHouseServer(folder, options or ServerOptions())
    server.start()
    try:
        yield server
    finally:
        server.kill()
