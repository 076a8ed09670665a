"""What a snapshot of a table holds: the counts that everything else in this folder judges. Pure.

Memory is bounded by partitions, not by files. `entries.collect` fills them.
"""

from collections import Counter
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent

from calve.iceberg.health.settings import MIB

POSITION, EQUALITY = int(DataFileContent.POSITION_DELETES), int(DataFileContent.EQUALITY_DELETES)

# Upper limits, exclusive; the last class has none.
SIZE_CLASSES: tuple[tuple[str, int | None], ...] = (
    ("under 1 MiB", MIB),
    ("1 to 16 MiB", 16 * MIB),
    ("16 to 64 MiB", 64 * MIB),
    ("64 to 128 MiB", 128 * MIB),
    ("128 to 512 MiB", 512 * MIB),
    ("512 MiB and more", None),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A partition: values mean nothing without their spec."""

    spec_id: int
    values: tuple[object, ...]  # as manifests store them


@dataclass(kw_only=True)
class Deletes:
    files: int = 0
    rows: int = 0


@dataclass(kw_only=True)
class PartitionStats:
    """Counts of one partition; grows while manifests are read."""

    place: Place
    files: int = 0
    rows: int = 0
    bytes: int = 0
    fragments: int = 0
    fragment_bytes: int = 0
    undersized: int = 0  # larger than a fragment, smaller than they should be
    undersized_bytes: int = 0
    oversized: int = 0
    oldest_fragment_ms: int | None = None
    oldest_sequence: int | None = None  # of its data files
    deletes: dict[tuple[int, int], Deletes] = field(default_factory=dict)  # by content and sequence

    @property
    def position_deletes(self) -> int:
        """Files that still apply to a data file; the others dangle."""
        return self._applying(POSITION).files

    @property
    def equality_deletes(self) -> int:
        return self._applying(EQUALITY).files

    @property
    def delete_files(self) -> int:
        return self.position_deletes + self.equality_deletes

    @property
    def deleted_rows(self) -> int:
        """Equality deletes count as one row each: metadata does not say how many rows they hit."""
        return self._applying(POSITION).rows + self._applying(EQUALITY).rows

    @property
    def delete_ratio(self) -> float:
        return self.deleted_rows / max(self.rows, 1)

    def _applying(self, content: int) -> Deletes:
        """Iceberg's rule: positions apply to data of the same sequence or older, equality to older."""
        total = Deletes()
        oldest = self.oldest_sequence
        for (kind, sequence), found in self.deletes.items():
            if kind != content or oldest is None:
                continue
            if sequence > oldest or (sequence == oldest and kind == POSITION):
                total.files += found.files
                total.rows += found.rows
        return total


@dataclass(kw_only=True)
class TableStats:
    """Everything that evaluation and score need."""

    partitions: dict[Place, PartitionStats] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)
    manifests: int = 0
    manifest_bytes: int = 0
    delete_manifests: int = 0
    snapshots: int = 0
    current_spec_id: int = 0
    unpartitioned_spec_ids: frozenset[int] = frozenset()

    @property
    def files(self) -> int:
        return sum(item.files for item in self.partitions.values())

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.partitions.values())

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.partitions.values())

    @property
    def fragments(self) -> int:
        return sum(item.fragments for item in self.partitions.values())

    @property
    def small_files(self) -> int:
        return sum(item.fragments + item.undersized for item in self.partitions.values())

    @property
    def position_deletes(self) -> int:
        return sum(item.position_deletes for item in self.partitions.values())

    @property
    def equality_deletes(self) -> int:
        return sum(
            found.files
            for place, item in self.partitions.items()
            for (kind, sequence), found in item.deletes.items()
            if kind == EQUALITY and self.applies(place, kind, sequence)
        )

    @property
    def deleted_rows(self) -> int:
        return sum(item.deleted_rows for item in self.partitions.values())

    @property
    def dangling_deletes(self) -> int:
        """Delete files that no longer delete anything, by Iceberg's own rules of what applies to what
        (`applies`). Iceberg's own search for them forgets that equality deletes of an unpartitioned spec
        apply to every partition, and would drop those."""
        return sum(
            found.files
            for place, part in self.partitions.items()
            for (content, sequence), found in part.deletes.items()
            if not self.applies(place, content, sequence)
        )

    @property
    def global_deletes(self) -> int:
        """Equality deletes of an unpartitioned spec that apply to the data of others."""
        return sum(
            found.files
            for place, item in self.partitions.items()
            if self.specs_with_data - {place.spec_id}
            for (kind, sequence), found in item.deletes.items()
            if self._is_global(place, kind) and self.applies(place, kind, sequence)
        )

    def applies(self, place: Place, content: int, sequence: int) -> bool:
        """Whether a delete file of that place, content and sequence deletes anything still. Positions
        apply to data of their own partition, of the same sequence or older; equality to older data of
        their own partition, or, of an unpartitioned spec, of every partition."""
        if self._is_global(place, content):
            oldest = self.oldest_sequence
        else:
            oldest = self.partitions[place].oldest_sequence
        if oldest is None:
            return False
        return sequence > oldest or (sequence == oldest and content == POSITION)

    def _is_global(self, place: Place, content: int) -> bool:
        return content == EQUALITY and place.spec_id in self.unpartitioned_spec_ids

    @property
    def oldest_sequence(self) -> int | None:
        """Of all data files."""
        known = [
            item.oldest_sequence for item in self.partitions.values() if item.oldest_sequence is not None
        ]
        return min(known, default=None)

    @property
    def specs_with_data(self) -> frozenset[int]:
        return frozenset(place.spec_id for place, item in self.partitions.items() if item.files)


def size_class(size: int) -> str:
    return next(name for name, limit in SIZE_CLASSES if limit is None or size < limit)
