"""The services of a run, a proxy before each, and the configuration that Calve's programs get.

Programs reach the services through the proxies. Whoever checks, and the writers beside Calve, go past them.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy.engine import make_url

from calve.clickhouse.server.source import ServerOptions, ServerSource
from support.chaos.diary import Diary
from support.clickhouse_front import NO_USERS, ClickHouseFront, FrontOptions, clickhouse_front
from support.iceberg_rest import IcebergRest, apache_rest
from support.network_proxy import NetworkProxy
from support.postgres import Postgres, postgres
from support.programs import free_ports
from support.s3 import S3Server, s3_server

BUCKET = "chaos"
LEASE_SECONDS = 6.0
_UUID = "11111111-2222-3333-4444-555555555555"
DISK_MB = 256  # of a worker's own files, its JVM's included

LIMITS: Mapping[str, float] = {
    "lease_seconds": LEASE_SECONDS,
    "tick_seconds": 0.2,
    "backoff_first_seconds": 0.3,
    "backoff_most_seconds": 3,
    "connect_seconds": 2,
    "call_seconds": 5,
    "query_seconds": 20,
    "stall_seconds": 15,
    "probe_seconds": 1,
    "task_seconds": 40,
    "task_bytes_mb": 1,
    "keep_failed_hours": 0.01,
    "answer_seconds": 3,
    "slots": 2,
}


@dataclass(frozen=True, kw_only=True)
class World:
    folder: Path
    diary: Diary
    postgres: Postgres
    s3: S3Server
    rest: IcebergRest
    clickhouse: ClickHouseFront
    proxies: Mapping[str, NetworkProxy]
    store_url: str  # past the proxy
    serve_port: int

    @property
    def config(self) -> Path:
        return self.folder / "calve.toml"

    def source(self, seconds: float = 30.0) -> ServerSource:
        """ClickHouse, past the proxy."""
        return ServerSource("direct", ServerOptions(url=self.clickhouse.url, query_seconds=seconds))

    def catalog(self) -> Catalog:
        """The lake, past the proxies."""
        return load_catalog("direct", **self.rest.properties(), **self.s3.properties())

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with self.source().visit() as session:
            return session.rows(sql)

    def execute(self, *statements: str, settings: Mapping[str, str] | None = None) -> None:
        with self.source().visit() as session:
            for statement in statements:
                session.execute(statement, settings or {})

    def write_config(self, extra_limits: Mapping[str, float]) -> None:
        keys = {
            "access_key_id": self.s3.keys.access_key_id,
            "secret_access_key": self.s3.keys.secret_access_key,
        }
        ports = {name: proxy.port for name, proxy in self.proxies.items()}
        store = make_url(self.store_url).set(port=ports["postgres"]).render_as_string(False)
        s3 = self.s3.properties() | {"s3.endpoint": f"http://127.0.0.1:{ports['s3']}"}
        sections: dict[str, dict[str, Any]] = {
            "source.main": {"url": f"http://127.0.0.1:{ports['clickhouse']}"},
            "source.disks": {
                "url": f"http://127.0.0.1:{ports['clickhouse']}",
                "disks": {"default": str(self.clickhouse.data)},
            },
            "catalog.lake": {"type": "rest", "uri": f"http://127.0.0.1:{ports['catalog']}", **s3},
            f'storage."s3://{BUCKET}"': {
                "endpoint": s3["s3.endpoint"],
                "region": self.s3.region,
                **keys,
            },
            "store": {"url": store},
            "backup": {"url": f"s3://{BUCKET}/backups"},
            "spark": {"master": "local[1]"},
            "serve": {"port": self.serve_port},
            "limits": dict(LIMITS) | dict(extra_limits),
        }
        self.config.write_text("\n".join(_section(name, keys) for name, keys in sections.items()))


def _section(name: str, keys: Mapping[str, Any]) -> str:
    lines = [f"[{name}]", *(f"{json.dumps(key)} = {_value(value)}" for key, value in keys.items())]
    return "\n".join([*lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


@contextmanager
def world(folder: Path, diary: Diary, limits: Mapping[str, float] | None = None) -> Iterator[World]:
    """Everything started, and ended with the block."""
    with ExitStack() as stack:
        for name in ("s3", "rest", "clickhouse"):
            (folder / name).mkdir(parents=True)
        database = stack.enter_context(postgres())
        s3 = stack.enter_context(s3_server(folder / "s3"))
        s3.create_bucket(BUCKET)
        rest = stack.enter_context(apache_rest(folder / "rest", f"s3://{BUCKET}/lake", s3.properties()))
        front = FrontOptions(stand_ins={**NO_USERS, "serverUUID()": f"toUUID('{_UUID}')"})
        clickhouse = stack.enter_context(clickhouse_front(folder / "clickhouse", front))
        targets = {
            "s3": s3.port,
            "catalog": rest.port,
            "clickhouse": clickhouse.port,
            "postgres": database.port,
        }
        proxies = {name: stack.enter_context(NetworkProxy(port)) for name, port in targets.items()}
        made = World(
            folder=folder,
            diary=diary,
            postgres=database,
            s3=s3,
            rest=rest,
            clickhouse=clickhouse,
            proxies=proxies,
            store_url=database.new_database(),
            serve_port=free_ports(1)[0],
        )
        made.write_config(limits or {})
        yield made


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A worker's temporary folder, on a small file system of its own where that may be mounted."""

    folder: Path
    small: bool

    def fill(self) -> None:
        """To the last byte. Python takes another folder where not even a small file fits, so a little is left."""
        ballast = self.folder / "ballast"
        try:
            with ballast.open("wb", buffering=0) as sink:
                while True:
                    sink.write(bytes(65_536))
        except OSError:
            with ballast.open("r+b") as sink:
                sink.truncate(max(ballast.stat().st_size - 65_536, 0))

    def make_room(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)


@contextmanager
def disk(folder: Path, diary: Diary) -> Iterator[Disk]:
    folder.mkdir(parents=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)]
    small = (
        shutil.which("mount") is not None
        and subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    )
    if not small:
        diary.remark("no file system may be mounted here: no disk was filled")
    try:
        yield Disk(folder=folder, small=small)
    finally:
        if small:
            subprocess.run(["umount", "-l", str(folder)], check=True)
