"""Somebody else's hands on the lake table, by PyIceberg: rows deleted by rewriting files, files compacted, rows of others, old
snapshots expired, main rolled back."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from calve.iceberg.publish.marks import head_of
from support.simulator import foreign
from support.simulator.catalog import Name

if TYPE_CHECKING:
    from support.year.world import YearWorld


def _table(world: "YearWorld", name: Name) -> Table | None:
    metadata = world.catalog.tables.get(name)
    return None if metadata is None or head_of(metadata) is None else world.catalog.table(name, metadata)


def _files(table: Table) -> Iterator[DataFile]:
    head = head_of(table.metadata)
    assert head is not None
    for manifest in head.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            yield entry.data_file


def _made(world: "YearWorld", table: Table, like: DataFile, label: str, rows: Sequence[str]) -> DataFile:
    uri = f"{table.location()}/data/others-{label}.parquet"
    world.objects.held[uri] = world.known.parquet(uri, rows)
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=like.partition,
        record_count=len(rows),
        file_size_in_bytes=len(world.objects.held[uri]),
    )
    made.spec_id = like.spec_id
    return made


def _rewrite(table: Table, gone: Sequence[DataFile], come: Sequence[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for file in gone:
            snapshot.delete_data_file(file)
        for file in come:
            snapshot.append_data_file(file)


def delete(world: "YearWorld", name: Name, label: str, chosen: int) -> None:
    """Some rows of one file, by writing the others anew."""
    table = _table(world, name)
    files = sorted(_files(table), key=lambda one: one.file_path) if table else []
    if table is None or not files:
        return
    file = files[chosen % len(files)]
    kept = world.known.files[file.file_path][1:]
    _rewrite(table, [file], [_made(world, table, file, label, kept)] if kept else [])


def compact(world: "YearWorld", name: Name, label: str, chosen: int) -> None:
    """All files of one partition into one."""
    table = _table(world, name)
    by_value: dict[str, list[DataFile]] = {}
    for file in _files(table) if table else ():
        by_value.setdefault(str(file.partition), []).append(file)
    if table is None or not by_value:
        return
    some = by_value[sorted(by_value)[chosen % len(by_value)]]
    rows = sorted(row for file in some for row in world.known.files[file.file_path])
    _rewrite(table, some, [_made(world, table, some[0], label, rows)])


def expire(world: "YearWorld", name: Name) -> None:
    if name in world.catalog.tables:
        foreign.expire(world.catalog, name)


def rollback(world: "YearWorld", name: Name) -> None:
    foreign.rollback(world.catalog, name)
