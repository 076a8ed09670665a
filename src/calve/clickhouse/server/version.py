"""What a server can do, by its version. What it lacks is said, with the version that has it."""

import re
from dataclasses import dataclass

from calve.model.errors import RefusedError

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, order=True)
class Version:
    """Year and release: what features hang on."""

    year: int
    release: int

    def __str__(self) -> str:
        return f"{self.year}.{self.release}"


def parse(text: str) -> Version:
    found = _NUMBERS.match(text)
    if found is None:
        raise RefusedError(f"invalid ClickHouse version {text!r}", code="server_version")
    return Version(int(found[1]), int(found[2]))


@dataclass(frozen=True, kw_only=True)
class Features:
    """What this version has."""

    version: Version

    @property
    def named_rows(self) -> bool:
        """The format JSONCompactEachRowWithNamesAndTypes."""
        return self.version >= Version(20, 12)

    @property
    def grants(self) -> bool:
        """Users by SQL, and system tables that show each of them only what it may see."""
        return self.version >= Version(20, 5)

    @property
    def part_offset(self) -> bool:
        """`_part_offset`: a huge part can be split over tasks."""
        return self.version >= Version(22, 6)

    @property
    def drop_sync(self) -> bool:
        """DROP TABLE … SYNC; before, a drop in an Ordinary database is done when it returns."""
        return self.version >= Version(20, 10)

    @property
    def table_unfreeze(self) -> bool:
        """ALTER TABLE … UNFREEZE WITH NAME."""
        return self.version >= Version(21, 4)

    @property
    def system_unfreeze(self) -> bool:
        """SYSTEM UNFREEZE WITH NAME, where the server's configuration allows it."""
        return self.version >= Version(22, 6)

    @property
    def table_uuids(self) -> bool:
        return self.version >= Version(20, 5)

    @property
    def server_uuid(self) -> bool:
        return self.version >= Version(22, 1)

    @property
    def server_timezone(self) -> bool:
        """serverTimezone(); before, timezone() was the server's."""
        return self.version >= Version(23, 6)

    @property
    def sync_lightweight(self) -> bool:
        """SYSTEM SYNC REPLICA … LIGHTWEIGHT waits for data and not for merges."""
        return self.version >= Version(23, 5)

    @property
    def drop_limit_setting(self) -> bool:
        """`max_table_size_to_drop` may be given with a statement."""
        return self.version >= Version(23, 12)

    @property
    def session_timezone(self) -> bool:
        """The setting by which a query is computed in a zone other than the server's."""
        return self.version >= Version(23, 6)

    def lacking(self) -> tuple[str, ...]:
        """What a person should know before exporting from this server."""
        found = []
        if not self.part_offset:
            found.append("a part is read by one task, however large (from 22.6 on it is split)")
        if not self.table_uuids:
            found.append("tables have no uuid, so the source needs an id (from 20.5 on they have)")
        return tuple(f"ClickHouse {self.version}: {text}" for text in found)
