"""What a person asked to be backed up, as it is stored with the process and read by every worker."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from calve.model.stored import known_fields


@dataclass(frozen=True, kw_only=True)
class BackupRequest:
    """Fields added later have defaults: older requests stay readable (L12)."""

    name: str
    source: str  # the name in the configuration
    patterns: tuple[str, ...]  # as typed: "db.*"
    tables: tuple[tuple[str, str], ...]  # MergeTree tables that they matched, as database and name
    schemas: tuple[tuple[str, str], ...] = ()  # what else they matched: views, dictionaries, other engines
    partitions: tuple[str, ...] = ()  # ids or values; none means all
    mutations: str = "refuse"  # "wait": until they are done
    ignore_row_policies: bool = False

    @property
    def asked(self) -> str:
        """What was asked for, in one canonical text: the same command asks for the same."""
        given = asdict(self)
        return json.dumps([given[name] for name in ("name", "source", "patterns", "partitions")])

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        known = known_fields(cls, data)
        for name in ("patterns", "partitions"):
            known[name] = tuple(known.get(name, ()))
        for name in ("tables", "schemas"):
            known[name] = tuple((database, table) for database, table in known.get(name, ()))
        return cls(**known)
