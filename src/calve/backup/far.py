"""Parts on disks in object storage while they are pinned: described by their outlines, and listed for executors."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from calve.archive.location import Location
from calve.archive.ports import BackupPorts
from calve.backup.outline import Buckets, outline, scratch
from calve.clickhouse.parts.content import content_hash, read_columns, size
from calve.clickhouse.parts.links import LinkedPart
from calve.clickhouse.pins.freeze import FrozenPart
from calve.model.errors import CalveError, RefusedError

_PARTS_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class PinnedPart:
    """A part that a pin holds, as long as it is at hand."""

    frozen: FrozenPart
    objects: str  # where its listing is; "" for one whose files are seen


class FarParts:
    """What the pins of one backup need for such parts. Opens nothing before it is used."""

    def __init__(self, ports: BackupPorts, source: str, process_id: str) -> None:
        self._ports = ports
        self._source = source
        self._process_id = process_id
        self._listed: list[str] = []  # by this one: another worker may be listing the same process anew

    @contextmanager
    def at_hand(self, linked: Sequence[LinkedPart], pin: str) -> Iterator[list[PinnedPart]]:
        """The parts that a pin holds, by partition and block, each with a folder that ends with the block."""
        if self._ports.hard_links:
            raise RefusedError(
                "parts in object storage cannot be linked into a backup",
                code="no_hard_links",
                hint="set hard_links = false under [backup]",
            )
        found = sorted(linked, key=lambda part: (part.partition_id, part.min_block, part.name))
        with scratch() as room, ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            yield list(pool.map(lambda at: self._held(found[at], pin, at, room / str(at)), range(len(found))))

    def _held(self, part: LinkedPart, pin: str, number: int, folder: Path) -> PinnedPart:
        if not part.files:
            return PinnedPart(frozen=_frozen(part, Path(part.folder)), objects="")
        listed = outline(self._buckets, part.files, folder)
        uri = self._location.objects(self._process_id, pin, number)
        self._listed.append(uri)
        listed.put(self._location, uri)
        return PinnedPart(frozen=_frozen(part, folder), objects=uri)

    def forget(self) -> None:
        """After a pin that failed: what was listed serves nobody, and no plan will ever name it."""
        with suppress(CalveError):
            # if we die here, small objects are left; the end of the process's backup clears them away
            self._location.storage.delete(self._listed)

    @cached_property
    def _buckets(self) -> Buckets:
        limits = self._ports.limits
        return Buckets(
            properties=self._ports.bucket_properties(self._source),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
        )

    @cached_property
    def _location(self) -> Location:
        return self._ports.location()


def _frozen(part: LinkedPart, folder: Path) -> FrozenPart:
    facts = part.facts | {"bytes": size(folder)}
    return FrozenPart(
        **facts,
        rows_seen=part.rows_seen,
        content=content_hash(folder),
        path=str(folder),
        disk=part.disk,
        columns=read_columns(folder),
    )
