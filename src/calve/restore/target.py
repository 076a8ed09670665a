"""Where the parts of one table go, fixed by the plan."""

from dataclasses import dataclass
from pathlib import Path

NEW, APPEND, REPLACE = "new", "append", "replace"
DATABASE = "calve_restore"  # of tables that parts are attached to before they go to one that was there
FOLDER = "calve_restore"  # at the root of a disk


@dataclass(frozen=True, kw_only=True)
class Target:
    """`receiver` is the table that parts are attached to: the target itself if it is new, otherwise a
    table of ours from which whole partitions then go to it."""

    database: str
    name: str
    uuid: str
    into: str
    receiver_database: str
    receiver_name: str
    data_path: str  # of the receiver, as executors see it
    state: str  # a folder on the same disk: staged parts and marks
    still: bool = True  # the receiver merges nothing, also after a restart
    settings: tuple[tuple[str, str], ...] = ()  # of a new table, put back at the end; "" is the default

    @property
    def detached(self) -> Path:
        return Path(self.data_path) / "detached"

    @property
    def attached_mark(self) -> Path:
        """Every part was attached to the receiver."""
        return Path(self.state) / "attached"

    @property
    def finished_mark(self) -> Path:
        return Path(self.state) / "finished"

    @property
    def given_up_mark(self) -> Path:
        """Partitions may have gone over, and the rest was cleaned away."""
        return Path(self.state) / "given-up"

    def stopped_mark(self, process_id: str) -> Path:
        """That process has ended: a worker that still runs it attaches nothing more."""
        return Path(self.state) / f"stopped-{process_id}"

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"
