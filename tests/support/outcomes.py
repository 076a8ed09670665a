"""Driving a publish to its end as the control plane does, and checking that a table tells one truth."""

from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import read_manifest_list

from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, publish
from calve.model.errors import CalveError, TemporaryError
from support.lake import IDENTIFIER, Work, arrow

ATTEMPTS = 10


@dataclass(kw_only=True)
class Publisher:
    """Attempts with a budget, and a note that outlives each of them."""

    catalog: Catalog
    work: Work
    noted: str = ""
    errors: list[CalveError] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.noted = text

    def attempt(self) -> PublishedSnapshot | AlreadyExported:
        return publish(
            self.catalog, self.work.process_id, self.work.plan, self.work.receipts, self.noted, self.note
        )

    def run(self, attempts: int = ATTEMPTS) -> PublishedSnapshot | AlreadyExported:
        """Until an answer; the last temporary error if there is none within the budget."""
        for _ in range(attempts):
            try:
                return self.attempt()
            except TemporaryError as error:
                self.errors.append(error)
        raise self.errors[-1]


def append_as_somebody_else(catalog: Catalog, ids: range, month: int = 9) -> None:
    """An append by a writer that knows nothing of us."""
    catalog.load_table(IDENTIFIER).append(arrow(ids, month))


def assert_published_once(catalog: Catalog, process_id: str) -> None:
    """One tag, one snapshot with the process's id; every manifest of every snapshot is there."""
    table = catalog.load_table(IDENTIFIER)
    ours = [
        snapshot.snapshot_id
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None and snapshot.summary["calve.process-id"] == process_id
    ]
    assert len(ours) == 1, f"process {process_id} has {len(ours)} snapshots"
    assert table.metadata.refs[f"calve-{process_id}"].snapshot_id == ours[0]
    assert_every_manifest_is_there(catalog)


def assert_every_manifest_is_there(catalog: Catalog) -> None:
    table = catalog.load_table(IDENTIFIER)
    for snapshot in table.metadata.snapshots:
        for manifest in read_manifest_list(table.io.new_input(snapshot.manifest_list)):
            manifest.fetch_manifest_entry(table.io)
