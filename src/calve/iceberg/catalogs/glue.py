"""PyIceberg's Glue catalog, with calls that end in time: botocore's own defaults are 60 s, ten times.

Botocore sends a call again. For a commit that is harmless: the second carries the version that the first one changed, and
is refused as a conflict, after which the publish looks for its marks.
"""

from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from botocore.session import Session
from pyiceberg.catalog import BOTOCORE_SESSION
from pyiceberg.catalog.glue import GLUE_MAX_RETRIES, GlueCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.typedef import Identifier

from calve.iceberg.catalogs.guards import CommitGuard
from calve.model.limits import Limits

_RETRIES = 2
_TABLE_INPUT = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


class BoundedGlueCatalog(GlueCatalog):
    """Makes no call before its first use."""

    def __init__(self, name: str, limits: Limits, properties: Mapping[str, Any]) -> None:
        retries = int(properties.get(GLUE_MAX_RETRIES, _RETRIES))
        seconds = limits.call_seconds / (1 + retries)
        session = Session()
        bounds = Config(connect_timeout=min(limits.connect_seconds, seconds), read_timeout=seconds)
        session.set_default_client_config(bounds)
        given = dict(properties) | {GLUE_MAX_RETRIES: retries, BOTOCORE_SESSION: session}
        super().__init__(name, **given)
        self.properties = dict(properties)

    def guard(self, identifier: Identifier) -> CommitGuard:
        """The table as it is, with a version that is not its own."""
        database, name = self.identifier_to_database_and_table(identifier)
        found = self._get_glue_table(database, name)
        version = int(found.get("VersionId", "0"))
        same: Any = {key: value for key, value in found.items() if key in _TABLE_INPUT}
        try:
            # If we die here, the table is as it was. (An emulator that takes it could undo a commit of this moment.)
            self._update_glue_table(database, name, same, str(version - 1 if version else version + 1))
        except CommitFailedException:
            return CommitGuard.VERSION
        return CommitGuard.NOTHING
