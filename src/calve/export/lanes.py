"""How lanes and needs name what an export reaches. A lane has one circuit breaker."""

import re

from calve.export.request import ExportRequest

CATALOG = "catalog:"
SOURCE = "source:"
STORAGE = "storage:"
_BUCKET = re.compile(r"s3[an]?://[^/]+")


def lane_of(request: ExportRequest) -> str:
    """A catalog, or, for plain Parquet, the bucket: what is down together waits together."""
    if not request.plain:
        return f"{CATALOG}{request.catalog}"
    bucket = _BUCKET.match(request.catalog)
    return f"{STORAGE}{bucket[0] if bucket else request.catalog}"


def destination_needs(request: ExportRequest) -> tuple[str, ...]:
    """What a worker's configuration must have for the destination. A folder, and a bucket whose keys
    come from the environment, are in no configuration: whoever reaches the source may try."""
    if not request.plain:
        return (f"{CATALOG}{request.catalog}",)
    return (f"{STORAGE}{request.storage}",) if request.storage else ()
