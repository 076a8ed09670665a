"""Delete files that delete nothing any more: how many, and which.

By Iceberg's own rules of what applies to what (`TableStats.applies`). Its own search for them forgets
that equality deletes of an unpartitioned spec apply to every partition, and would drop those.
"""

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from calve.iceberg.health.entries import read_entries
from calve.iceberg.health.stats import Place, TableStats
from calve.iceberg.publish.manifests import manifests_of


def dangling(stats: TableStats) -> int:
    """How many there are."""
    return sum(
        found.files
        for place, part in stats.partitions.items()
        for (content, sequence), found in part.deletes.items()
        if not stats.applies(place, content, sequence)
    )


def dangling_paths(table: Table, stats: TableStats) -> list[str]:
    """Their paths. `stats` must be of the head that `table` has."""
    return [
        entry.path
        for manifest in manifests_of(table, table.metadata.current_snapshot())
        if manifest.content == ManifestContent.DELETES
        for entry in read_entries(table.io, manifest)
        if not stats.applies(
            Place(spec_id=manifest.partition_spec_id, values=entry.partition), entry.content, entry.sequence
        )
    ]
