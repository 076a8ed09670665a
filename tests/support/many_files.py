"""Tables of very many files, made in seconds: one data file under many names, listed by real manifests."""

import os

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from calve.iceberg.publish.build import build_empty
from calve.iceberg.publish.manifests import ManifestFiles, manifests_of


def repeat_file(catalog: Catalog, identifier: tuple[str, ...], times: int) -> None:
    """Add the only data file of a table in a folder `times` more, as hard links: all its rows again each
    time. Every link is a file of its own to Iceberg."""
    table = catalog.load_table(identifier)
    [task] = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    snapshot = build_empty(table, "many")
    written = ManifestFiles(table=table, process_id="many", snapshot_id=snapshot.snapshot_id)
    written.add([_linked(task.file, path, number) for number in range(times)], task.file.spec_id)
    before = manifests_of(table, table.current_snapshot())
    listed = written.list([*written.written, *before], table.current_snapshot())
    made = snapshot.model_copy(update={"manifest_list": listed})
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=made), SetSnapshotRefUpdate.model_validate(main))
    )


def _linked(file: DataFile, path: str, number: int) -> DataFile:
    link = f"{path.removesuffix('.parquet')}-{number}.parquet"
    os.link(path, link)
    made = DataFile.from_args(
        content=file.content,
        file_path=f"file://{link}",
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
    )
    made.spec_id = file.spec_id
    return made
