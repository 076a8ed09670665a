"""An embedded source that stays open between visits.

Opening a data folder takes a second or more. A test that makes hundreds of exports from one folder
opens it once; everything a visit does is done by the real engine.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

from calve.clickhouse.embedded.base import EngineSource
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.clickhouse.source import Session


class KeptSource(EngineSource):
    """`Source` over a folder that is made if it is missing. Open for as long as the block lasts."""

    def __init__(self, folder: Path, name: str = "main", configured_id: str | None = None) -> None:
        self.name = name
        self.folder = folder
        self._source = EmbeddedSource(name, folder, create=True, configured_id=configured_id)
        self._open = ExitStack()
        self._visiting = RLock()  # a session has one visitor at a time

    def __enter__(self) -> Self:
        self.session: Session = self._open.enter_context(self._source.visit())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self._visiting:
            yield self.session

    def execute(self, *statements: str) -> None:
        with self.visit() as session:
            for statement in statements:
                session.execute(statement)

    def select(self, sql: str) -> list[dict[str, Any]]:
        with self.visit() as session:
            return session.rows(sql)

    @property
    def frozen(self) -> list[str]:
        """What is left in the `shadow` folder, by name."""
        shadow = self.folder / "shadow"
        return sorted(entry.name for entry in shadow.iterdir() if entry.is_dir()) if shadow.is_dir() else []
