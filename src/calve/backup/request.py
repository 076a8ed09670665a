"""What a person asked to be backed up, as it is stored with the process and read by every worker."""

import json
from dataclasses import asdict, dataclass

from calve.model.record import SPACED, Record


@dataclass(frozen=True, kw_only=True)
class BackupOptions:
    """As a person asks for it; each field is an option of `calve backup create`."""

    partitions: tuple[str, ...] = ()  # ids or values; none means all
    mutations: str = "refuse"  # "wait": until they are done
    ignore_row_policies: bool = False
    rbac: bool = False  # users, roles, quotas, settings profiles and named collections too


@dataclass(frozen=True, kw_only=True)
class BackupRequest(BackupOptions, Record, layout=SPACED):
    """Fields added later have defaults: older requests stay readable (L12)."""

    name: str
    source: str  # the name in the configuration
    patterns: tuple[str, ...]  # as typed: "db.*"
    tables: tuple[tuple[str, str], ...]  # MergeTree tables that they matched, as database and name
    schemas: tuple[tuple[str, str], ...] = ()  # what else they matched: views, dictionaries, other engines
    schedule: str = ""  # that asked for it; "": a person did

    @property
    def asked(self) -> str:
        """What was asked for, in one canonical text: the same command asks for the same."""
        given = asdict(self)
        asked = [given[name] for name in ("name", "source", "patterns", "partitions")]
        return json.dumps([*asked, "rbac"] if self.rbac else asked)
