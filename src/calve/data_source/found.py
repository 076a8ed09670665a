"""What there is to read, as the driver found it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.clickhouse.tables import Column
from calve.model.plan import PartPlan, Relation


@dataclass(frozen=True, kw_only=True)
class Found:
    columns: tuple[Column, ...]  # all of the table's
    relation: Relation
    parts: tuple[PartPlan, ...]
    settings: Mapping[str, str]
    access: Mapping[str, str] = field(default_factory=dict, repr=False)  # to a server; secret
    splits: bool = True  # a huge part can be read by ranges
    filters: bool = False  # there is a server that can filter before it sends
