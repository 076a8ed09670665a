"""What a person asked to be restored, as it is stored with the process and read by every worker."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from calve.model.stored import known_fields

REFUSE, APPEND, REPLACE = "refuse", "append", "replace"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One object of the backup, and what it is to be called."""

    database: str
    name: str
    to_database: str
    to_name: str

    @property
    def origin(self) -> tuple[str, str]:
        return self.database, self.name

    @property
    def target(self) -> tuple[str, str]:
        return self.to_database, self.to_name


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """Fields added later have defaults (L12). `seed` is kept by a retry: the tables that the first run
    made bear uuids derived from it, and so are known as ours by every later one."""

    backup: str
    number: int  # which use of the name
    backup_process: str
    source: str  # the source to restore to
    items: tuple[Item, ...]
    seed: str
    asked: str = ""  # the command's own words, in one canonical text
    schema: bool = True
    data: bool = True
    existing: str = REFUSE  # what to do with a table that is there already
    partitions: tuple[str, ...] = ()  # ids; none means all

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        known = known_fields(cls, data)
        known["items"] = tuple(Item(**item) for item in data["items"])
        known["partitions"] = tuple(data.get("partitions", ()))
        return cls(**known)
