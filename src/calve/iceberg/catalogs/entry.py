"""A catalog's entry in the configuration, as all of its clients read it. Pure; imports no client.

Its keys are PyIceberg's own, but for those under `calve.`.
"""

from collections.abc import Mapping
from typing import Any

RECEIPTS = "calve.receipts"  # where receipts go, for buckets that take nothing but tables
SORT_ORDER_IDS = "calve.sort-order-ids"  # whether sorted files say so; see `tables.tells_sort_orders`
_TYPES_BY_SCHEME = {
    "http": "rest", "https": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql", "postgres": "sql",
}  # fmt: skip


def catalog_type(entry: Mapping[str, Any]) -> str:
    """`sql`, `rest`, `hive`, `glue`, …; where no type is given, by the URI as PyIceberg does. "" if unknown."""
    scheme = str(entry.get("uri", "")).partition(":")[0].partition("+")[0]
    return str(entry.get("type", "")).lower() or _TYPES_BY_SCHEME.get(scheme, "")


def property_text(value: Any) -> str:
    """Properties are text; TOML's booleans and numbers are not."""
    return str(value).lower() if isinstance(value, bool) else str(value)
