"""A part as a server, a pin and a backup tell of it alike, and what is made of that."""

from dataclasses import dataclass

from calve.clickhouse.parts.content import Extent, file_hash
from calve.model.content import PartMark
from calve.model.plan import PartPlan


@dataclass(frozen=True, kw_only=True)
class PartFacts:
    """What everybody knows who lists parts."""

    name: str
    partition_id: str
    rows: int  # physical: what offsets count, lightweight-deleted ones too
    bytes: int
    min_block: int
    max_block: int
    level: int
    mutation: int  # the last that changed it; 0 for none
    data_version: int

    def extent_with(self, rows_seen: int) -> Extent:
        return Extent(
            min_block=self.min_block, max_block=self.max_block, mutation=self.mutation, rows=rows_seen
        )

    def mark_with(self, hashed: str) -> PartMark:
        return PartMark(
            min_block=self.min_block,
            max_block=self.max_block,
            level=self.level,
            mutation=self.mutation,
            rows=self.rows,
            hash=hashed,
        )

    def plan_with(self, *, path: str = "", disk: str = "default", content: str) -> PartPlan:
        return PartPlan(
            name=self.name,
            partition_id=self.partition_id,
            rows=self.rows,
            bytes=self.bytes,
            path=path,
            disk=disk,
            min_block=self.min_block,
            max_block=self.max_block,
            level=self.level,
            data_version=self.data_version,
            content=content,
        )


@dataclass(frozen=True, kw_only=True)
class FiledPart(PartFacts):
    """A part whose files were at hand."""

    rows_seen: int  # without lightweight-deleted ones
    content: str  # a hash of its checksums.txt: what a table's own parts are compared by

    @property
    def extent(self) -> Extent:
        return self.extent_with(self.rows_seen)

    @property
    def mark(self) -> PartMark:
        return self.mark_with(file_hash(self.content))
