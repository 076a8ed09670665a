"""Makes a fixture: an installation as one version of Calve leaves it, with work in every state.

    .venv/bin/python tests/upgrades/make.py tests/upgrades/NAME.tar.xz

Run it once when a version is released, or when the store's schema, a plan, a receipt or a manifest changes, with the
Python of a checkout of that version, and keep the archive for ever (`FIXTURES` in conftest.py). `v0_1.tar.xz` is of
commit 420a629, whose modules had other names: `home` knows both. Those of schemas 3 to 6 are of the last commits before
the next schema (e8b4d34, 2954c2f, 3c949dc, 1536094), made with this file in the place of theirs.

Everything in it was written by that version's own commands. Three things differ from an ordinary
installation: tasks run in child processes instead of Spark, manifests are written uncompressed, and
everything lies under a root path of ROOT_LENGTH characters. The last two let a test put another root
of the same length in place of it, byte for byte, in every file (`upgrades.unpack`).
"""

import contextlib
import importlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT_LENGTH = 200
ROOT_FILE = "root.txt"
CONFIG = """\
[source.main]
url = "chdb://clickhouse"

[catalog.lake]
type = "sql"
uri = "sqlite:///lake/catalog.db"
warehouse = "lake/warehouse"

[catalog.other]
type = "sql"
uri = "sqlite:///other/catalog.db"
warehouse = "other/warehouse"

[store]
url = "sqlite:///calve.db"

[backup]
url = "backups"

[limits]
process_hours = 876000  # whoever reads this in years still finds its work under way
tick_seconds = 0.05
"""
ROWS = 40  # of a part
EVENTS = """
CREATE TABLE db.events (
    id UInt64, at DateTime64(3, 'UTC'), name LowCardinality(String), price Decimal(12, 2),
    note Nullable(String), tags Array(String), labels Map(String, String), session UUID
) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id
SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1
"""


def events(month: int, part: int) -> str:
    first = month * 1000 + part * 100
    return f"""
    INSERT INTO db.events SELECT {first} + number AS id,
        toDateTime64('2024-{month:02}-01 00:00:00', 3, 'UTC') + INTERVAL number * 12345 SECOND,
        ['a', 'b', 'c'][1 + id % 3], toDecimal64(id / 7, 2), if(id % 5 = 0, NULL, toString(cityHash64(id))),
        arrayMap(i -> toString(i), range(id % 3)), map('k', toString(id % 10)), reinterpretAsUUID(MD5(toString(id)))
    FROM numbers({ROWS})"""


def counts(shard: int, part: int) -> str:
    return f"INSERT INTO db.counts SELECT {shard}, number + {part * ROWS} FROM numbers({ROWS})"


def home(*names: str) -> Any:
    """The first of these modules that there is: now, and in the first release."""
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ModuleNotFoundError(" or ".join(names))


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve()
        root = root / ("x" * (ROOT_LENGTH - len(str(root)) - 1))
        root.mkdir()
        fill(root)
        (root / ROOT_FILE).write_text(str(root))
        assert len(str(root)) == ROOT_LENGTH
        pack(root, target)


def fill(root: Path) -> None:
    (root / "calve.toml").write_text(CONFIG)
    embedded = home("calve.clickhouse.embedded.source", "calve.source.embedded")
    source = embedded.EmbeddedSource("main", root / "clickhouse", create=True)

    def execute(*statements: str) -> None:
        with source.visit() as session:
            for statement in statements:
                session.execute(statement)

    months = range(1, 10)
    execute(
        "CREATE DATABASE db",
        EVENTS,
        *(events(month, part) for month in months for part in (0, 1)),
        "CREATE TABLE db.counts (shard UInt8, number UInt32) ENGINE = MergeTree PARTITION BY shard ORDER BY number"
        " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1",
        *(counts(shard, part) for shard in (1, 2) for part in (0, 1)),
        "CREATE VIEW db.latest AS SELECT max(at) AS at FROM db.events",
    )
    calve = Commands(root)
    queued = (
        "--no-wait=queued" if find_spec("calve.clickhouse") else "--no-wait"
    )  # the first release pinned later
    export = ("export", "db.events", "--to", "lake.ns.events", "--partition")
    calve("export", "db.counts", "--all", "--to", "lake.ns.counts")
    calve("optimize", "lake.ns.counts", "--full", "--no-expire", "--no-orphans")
    calve(*export, "202401", "--partition", "202402")
    calve("export", "db.events", "--partition", "202401", "--to", f"{root}/plain/")
    calve("backup", "create", "first", "--tables", "db.*")
    execute(events(1, 2))
    calve("backup", "create", "second", "--tables", "db.*")
    calve(*export, "202401", "--force")  # a second generation of the key
    calve("export", "db.events", "--partition", "202401", "--to", f"{root}/plain/", "--force")
    calve("backup", "restore", "first", "--tables", "db.events", "--as", "restored")
    calve(*export, "202408", queued)
    execute("ALTER TABLE db.events DROP PARTITION 202408")
    calve(*export, "202403", expect=0)  # its worker meets 202408 as well, and that one fails
    calve(*export, "202409", queued)
    calve("cancel", calve.live())
    # From here on work is left undone, and the leases of the dead are prolonged until the end.
    calve(*export, "202404", expect=-signal.SIGKILL, die_at="second_task")
    calve(*export, "202405", expect=-signal.SIGKILL, die_at="before_send")
    calve(*export, "202406", expect=-signal.SIGKILL, die_at="after_send")
    calve(
        "export",
        "db.events",
        "--partition",
        "202405",
        "--to",
        f"{root}/plain/",
        expect=-signal.SIGKILL,
        die_at="parquet_commit",
    )
    calve("export", "db.events", "--partition", "202407", "--to", "other.ns.events", queued)
    calve("backup", "create", "third", "--tables", "db.counts", queued)
    trip(root)
    leases(root, time.time())


class Commands:
    """`calve …` in the root, as programs of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, *arguments: str, expect: int = 0, die_at: str = "") -> str:
        environment = os.environ | {"DIE_AT": die_at, "CALVE_LIMITS__LEASE_SECONDS": "5"}
        done = subprocess.run(
            [sys.executable, __file__, "calve", *arguments],
            cwd=self._root, env=environment, capture_output=True, text=True, check=False, timeout=120, start_new_session=True,
        )  # fmt: skip
        print(" ".join(arguments), "->", done.returncode, flush=True)
        if done.returncode != expect:
            raise SystemExit(done.stdout + done.stderr)
        if die_at:
            leases(self._root, time.time() + 3600)
        return done.stdout

    def live(self) -> str:
        (process,) = json.loads(self("ps", "--json", "--state", "PENDING"))
        return str(process["id"])


def leases(root: Path, until: float) -> None:
    with contextlib.closing(sqlite3.connect(root / "calve.db", isolation_level=None)) as database:
        database.execute("UPDATE processes SET lease_until = ? WHERE owner IS NOT NULL", (int(until * 1e6),))


def trip(root: Path) -> None:
    from calve.store import open_store

    with open_store(f"sqlite:///{root}/calve.db") as store:
        store.trip("catalog:other", "connection refused", 5.0)


def pack(root: Path, target: Path) -> None:
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(str(path), str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if entry.isreg():
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
            else:
                archive.addfile(entry)
    print(f"{target}: {target.stat().st_size:,} bytes")


# -- the command, with tasks in child processes, that may die on its way ----------------------------


def run_calve(arguments: Sequence[str]) -> None:
    from pyiceberg.table import TableProperties

    from calve.app.wiring import App
    from calve.cli.main import main as command

    slicing = home("calve.export.slices", "calve.kinds.export.slicing")
    catalogs = home("calve.iceberg.catalogs.catalog", "calve.lake.catalogs")
    storages = home("calve.objects.local", "calve.lake.storage")
    storage = getattr(storages, "LocalObjects", None) or storages.Storage
    publish = home("calve.iceberg.publish.publish", "calve.lake.publish.publish")
    TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT = "null"
    slicing.PARTS_A_TASK = 1
    die_at = os.environ.get("DIE_AT", "")
    send, put = publish.send, storage.put_if_absent

    def dying_send(*given: Any) -> Any:
        if die_at == "before_send":
            die()
        answer = send(*given)
        if die_at == "after_send":
            die()
        return answer

    def dying_put(self: Any, path: str, *given: Any, **named: Any) -> Any:
        if die_at == "parquet_commit" and "/_calve/commits/" in path:
            die()
        return put(self, path, *given, **named)

    def runner(app: App) -> Any:
        made = runner_class(die_at)(lambda: catalogs.open_catalog("lake", app.catalog_properties("lake")))
        closing: Any = getattr(app, "closing", None) or app._closing
        closing.callback(made.close)
        return made

    publish.send, storage.put_if_absent = dying_send, dying_put
    App.runner = cached_property(runner)
    App.runner.__set_name__(App, "runner")
    sys.argv = ["calve", *arguments]
    command()


def die() -> None:
    """At once, children included, as when the power goes."""
    os.killpg(0, signal.SIGKILL)


def runner_class(die_at: str) -> Any:
    from support.local_runner import LocalRunner

    rewriting = home("support.plain_rewriting", "calve.testing.plain_rewriting")

    class Runner(LocalRunner):
        """Rewrites by PyIceberg, tasks in child processes, one at a time."""

        def __init__(self, catalog: Callable[[], Any]) -> None:
            super().__init__(slots=1)
            self._catalog = catalog
            self.results = 0

        def run(self, group: str, orders: Sequence[Any], on_result: Callable[[Any], None]) -> None:
            def taken(result: Any) -> None:
                self.results += 1
                if die_at == "second_task" and self.results == 2:
                    time.sleep(2)  # until the first result is in the store; the second has only its receipt
                    die()
                on_result(result)

            rewrites = [order for order in orders if order.function.endswith(".actions:rewrite")]
            if rewrites:
                rewriting.PlainRewriter(self._catalog()).run(group, rewrites, taken)
            others = [order for order in orders if order not in rewrites]
            if others:
                super().run(group, others, taken)

    return Runner


if __name__ == "__main__":
    if sys.argv[1] == "calve":
        run_calve(sys.argv[2:])
    else:
        main(Path(sys.argv[1]).absolute())
