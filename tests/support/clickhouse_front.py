"""A ClickHouse server of today for tests: an HTTP front for chdb, in a process of its own.

It speaks ClickHouse's HTTP protocol well enough for `clickhouse-connect` and for
`calve.clickhouse.server`. What the embedded engine cannot have (Keeper, a server's uuid, row
policies) is stood in for by text: `stand_ins` replaces `system.replicas` by a table of the
test's own, `serverUUID()` by a literal, and so on. Accounts with `grants` are held to them by the
engine itself, see `front_access`.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from support.front_access import write_access
from support.front_users import FrontUser
from support.programs import Program, free_ports

__all__ = ["NO_USERS", "ClickHouseFront", "FrontOptions", "FrontUser", "clickhouse_front"]


# Unless a user has grants, the engine runs without access control, and refuses to list what there is none of.
NO_USERS = {"system.row_policies": "(SELECT '' AS name, '' AS database, '' AS table WHERE 0)"}


@dataclass(frozen=True, kw_only=True)
class FrontOptions:
    users: Mapping[str, FrontUser] = field(default_factory=lambda: {"default": FrontUser()})
    timezone: str = "UTC"
    stand_ins: Mapping[str, str] = field(default_factory=lambda: dict(NO_USERS))
    tagged_exceptions: bool = True  # as servers from 25.11 on; otherwise the bare text of older ones
    server_settings: Mapping[str, str] = field(default_factory=dict)  # of the engine's configuration
    delays: Mapping[str, float] = field(default_factory=dict)  # a word of a statement -> seconds added to it
    certificate: Path | None = None  # with `key`: https
    key: Path | None = None


class ClickHouseFront:
    """Its address and its life: `kill` is SIGKILL, `start` uses the same port and folder."""

    def __init__(self, folder: Path, options: FrontOptions) -> None:
        self.folder = folder
        self.data = folder / "data"
        (self.port,) = free_ports(1)
        self._options = options
        self._program: Program | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._options.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def program(self) -> Program:
        assert self._program is not None, "the front was not started"
        return self._program

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self._options
        options = {
            "folder": str(self.data),
            "server_settings": self._server_settings(),
            "delays": dict(settings.delays),
            "port": self.port,
            "users": {name: asdict(user) for name, user in settings.users.items()},
            "timezone": settings.timezone,
            "stand_ins": dict(settings.stand_ins),
            "tagged_exceptions": settings.tagged_exceptions,
            "certificate": str(settings.certificate or ""),
            "key": str(settings.key or ""),
        }
        file = self.folder / "options.json"  # a file, and not the command line, which everybody can read
        file.write_text(json.dumps(options), encoding="utf-8")
        file.chmod(0o600)
        self._program = Program(
            "the ClickHouse front",
            [sys.executable, "-m", "support.front_process", str(file)],
            self.folder / "output.log",
            {"TZ": settings.timezone},
        )
        self._program.read_line()

    def _server_settings(self) -> dict[str, str]:
        users = self._options.users
        granted = {name: user.grants for name, user in users.items() if user.grants is not None}
        access = {"config-file": str(write_access(self.folder, granted))} if granted else {}
        return dict(self._options.server_settings) | access

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()


@contextmanager
def clickhouse_front(folder: Path, options: FrontOptions | None = None) -> Iterator[ClickHouseFront]:
    """A started front over a data folder of its own, killed at the end of the block."""
    front = ClickHouseFront(folder, options or FrontOptions())
    front.start()
    try:
        yield front
    finally:
        front.kill()
