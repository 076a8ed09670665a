"""A place to try whole exports in whose source is a ClickHouse server that runs already.

As `Place`, but `[source.main]` has the server's URL. The password comes by the environment, as a
person gives it, so it is in no file of the place: what finds it there has found a leak (P22).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.source import Session
from calve.control.ports import Runner, TaskOrder, TaskResult
from support.place import Place

_EMBEDDED = 'url = "chdb://clickhouse"'


class ServerPlace(Place):
    """`user` is who exports; `visit` and `execute` are always by `default`, who may do everything."""

    def __init__(
        self,
        folder: Path,
        url: str,
        runner: Runner | None = None,
        *,
        user: str = "default",
        password: str = "",
        configured_id: str = "",
        disks: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        super().__init__(folder, runner, None, CALVE_SOURCE__MAIN__PASSWORD=password, **settings)
        given = {"url": url, "user": user, "id": configured_id}
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items() if value]
        mapped = ", ".join(f"{name} = {json.dumps(path)}" for name, path in (disks or {}).items())
        lines.append(f"disks = {{ {mapped} }}")
        file = folder / "calve.toml"
        file.write_text(file.read_text().replace(_EMBEDDED, "\n".join(lines), 1))
        options = ServerOptions(url=url, password=password, id=configured_id, query_seconds=60.0)
        self._server = ServerSource("main", options)

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs beside the configuration file."""
        return dict(self.settings)

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self._server.visit() as session:
            yield session

    @property
    def pins(self) -> list[str]:
        """The clones that are left at the server."""
        found = self.select("SELECT name FROM system.tables WHERE database = 'calve_pins' ORDER BY name")
        return [row["name"] for row in found]


class MeddlingRunner:
    """Does something to the world right before the first wave of tasks, or right after it."""

    def __init__(
        self,
        runner: Runner,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.runner = runner
        self._before, self._after = before, after
        self.waves = 0

    @property
    def slots(self) -> int:
        return self.runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        self.waves += 1
        first = self.waves == 1
        if first and self._before is not None:
            self._before()
        self.runner.run(group, orders, on_result)
        if first and self._after is not None:
            self._after()

    def cancel(self, group: str) -> None:
        self.runner.cancel(group)

    def warm(self) -> None:
        """The runner is started already."""

    def close(self) -> None:
        """The runner is lent."""
