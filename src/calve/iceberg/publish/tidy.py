"""Taking away the metadata files of attempts that lost their race, once one of them has landed.

Only one commit of a process can land, since each asserts that the tag is absent: when the tag
stands on one snapshot, the manifests written for the others can never be referred to.
"""

from collections.abc import Sequence
from logging import getLogger

from pyiceberg.table import Table

from calve.destination.names import manifest_list_name, manifest_name
from calve.iceberg.publish.marks import Sent

log = getLogger(__name__)


def attempt_files(table: Table, process_id: str, sent: Sequence[Sent]) -> list[str]:
    """The metadata files written for those attempts, by name: no listing is needed."""
    provider = table.location_provider()
    return [
        provider.new_metadata_location(name)
        for item in sent
        for name in (
            manifest_list_name(process_id, item.snapshot_id),
            *(manifest_name(process_id, item.snapshot_id, number) for number in range(item.manifests)),
        )
    ]


def tidy(table: Table, process_id: str, sent: Sequence[Sent], landed: str) -> None:
    """Never fails a publish: what cannot be deleted now is an orphan that maintenance finds."""
    known = {str(snapshot.snapshot_id) for snapshot in table.metadata.snapshots} | {landed}
    for path in attempt_files(table, process_id, [item for item in sent if item.snapshot_id not in known]):
        try:
            # If we die here, a file that nobody refers to is left.
            table.io.delete(path)
        except OSError as cause:
            log.info("could not delete %s, which nothing refers to: %s", path, cause)
