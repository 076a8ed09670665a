"""A place to try whole exports in: an embedded source, a SQLite catalog and a store in one folder.

    place = Place(tmp_path, runner)
    place.execute("CREATE DATABASE db", "CREATE TABLE db.events …")
    [process] = place.export("db.events", "202401", to="lake.ns.events")
    assert place.read("lake.ns.events").num_rows == process.rows

Everything is real, the worker in this program included; only the Spark session is lent, because
starting one takes seconds. The readers are independent of what wrote: PyIceberg here, ClickHouse's
own `icebergLocal` through a child process.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.exports import export_request
from calve.app.wiring import App
from calve.app.work import follow, own_worker_for
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.clickhouse.parts.partitions import PartitionInfo, Selection
from calve.clickhouse.source import LiveSource, Session
from calve.control.ports import Runner
from calve.export.request import ExportOptions
from calve.export.submit import submit_export, survey_export
from calve.export.survey import Survey
from calve.model.process import Process, ProcessId
from support import tally
from support.kept_source import KeptSource


class Place:
    """One folder with a `calve.toml` as `calve init` writes it, plus `settings` as environment. A source that
    is given is used in place of opening the folder's at each visit."""

    def __init__(
        self, folder: Path, runner: Runner | None = None, source: LiveSource | None = None, **settings: str
    ) -> None:
        self.folder = folder
        self.runner = runner
        self.settings = {"CALVE_LIMITS__TICK_SECONDS": "0.05"} | settings
        (folder / "calve.toml").write_text(render())
        self._is_lent = source is not None
        self.source: LiveSource = source or EmbeddedSource("main", folder / "clickhouse", create=True)

    @contextmanager
    def app(self) -> Iterator[App]:
        """A program's view of the place; several may be open at once."""
        config = load_config(self.folder / "calve.toml", environ=self.settings, cwd=self.folder)
        app = App(config, runner=self.runner)
        if self._is_lent:
            app.source = lambda name: self.source  # type: ignore[method-assign]
        try:
            yield app
        finally:
            app.close()

    # -- the source ---------------------------------------------------------------------------------

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self.source.visit() as session:
            yield session

    def execute(self, *statements: str) -> None:
        with self.visit() as session:
            for statement in statements:
                session.execute(statement)

    def select(self, sql: str) -> list[dict[str, Any]]:
        with self.visit() as session:
            return session.rows(sql)

    @property
    def frozen(self) -> list[str]:
        """What is left in the source's `shadow` folder, by name."""
        shadow = self.folder / "clickhouse" / "shadow"
        return [entry.name for entry in shadow.iterdir() if entry.is_dir()] if shadow.is_dir() else []

    # -- exporting ----------------------------------------------------------------------------------

    def check(
        self,
        app: App,
        table: str,
        to: str,
        *,
        partitions: Sequence[str] = (),
        parts: Sequence[str] = (),
        older_than: timedelta | None = None,
        **options: Any,
    ) -> Survey[PartitionInfo]:
        """Of all partitions, where none are named in one of the three ways."""
        every = not (partitions or parts or older_than is not None)
        selection = Selection(
            partitions=tuple(partitions), parts=tuple(parts), all=every, older_than=older_than
        )
        return survey_export(
            app, export_request(app, table, to, selection, ExportOptions(**options)), selection
        )

    def submit(self, app: App, table: str, to: str, **asked: Any) -> list[ProcessId]:
        submission = submit_export(app, app.store, self.check(app, table, to, **asked))
        return [process.id for process in submission.processes]

    def export(self, table: str, *partitions: str, to: str = "lake.ns.events", **asked: Any) -> list[Process]:
        """Run an export to its end; without partitions, parts or an age, of all there is."""
        with self.app() as app:
            return self.finish(app, self.submit(app, table, to, partitions=partitions, **asked))

    def finish(self, app: App, ids: Sequence[ProcessId]) -> list[Process]:
        """Bring a worker and wait until these have ended and their pins are released."""
        if not ids:
            return []
        with own_worker_for(app, ids):
            for standing in follow(app, ids):
                last = standing
        return list(last.processes)

    # -- the lake -----------------------------------------------------------------------------------

    def table(self, name: str = "lake.ns.events") -> Table:
        catalog, *identifier = name.split(".")
        with self.app() as app:
            return app.catalog(catalog).load_table(tuple(identifier))

    def read(self, name: str = "lake.ns.events") -> pa.Table:
        """Every row, by PyIceberg."""
        rows = self.table(name).scan().to_arrow()
        tally.count("rows read back", "PyIceberg", times=rows.num_rows)
        return rows

    def read_by_clickhouse(
        self, columns: str, name: str = "lake.ns.events", tail: str = ""
    ) -> list[dict[str, Any]]:
        """Rows by ClickHouse's own Iceberg reader, in no order: see "Sort orders" in docs/types.md."""
        location = self.table(name).location().removeprefix("file://")
        rows = self.select(f"SELECT {columns} FROM icebergLocal('{location}') {tail}")
        tally.count("rows read back", "ClickHouse", times=len(rows))
        return rows

    @property
    def catalog_uri(self) -> str:
        return f"sqlite:///{self.folder / 'lake' / 'catalog.db'}"

    @property
    def warehouse(self) -> str:
        return (self.folder / "lake" / "warehouse").as_uri()


@contextmanager
def kept_place(folder: Path, runner: Runner | None = None, **settings: str) -> Iterator[Place]:
    """A place whose source stays open: opening the engine takes a second, and an export visits it often."""
    with KeptSource(folder / "clickhouse") as source:
        yield Place(folder, runner, source, **settings)
