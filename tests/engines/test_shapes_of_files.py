"""What a table's properties, and `--file-mb` and `--codec`, ask of data files."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calve.model.states import ProcessState
from support.place import Place


def _make(place: Place, name: str) -> None:
    place.execute(
        f"CREATE TABLE db.{name} (id UInt32, s String) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} SELECT number, randomPrintableASCII(100) FROM numbers(60000)",
    )


def _footers(place: Place, table: str) -> list[pq.FileMetaData]:
    files = [task.file.file_path for task in place.table(table).scan().plan_files()]
    return [pq.ParquetFile(path.removeprefix("file://")).metadata for path in files]


def _codecs(footers: list[pq.FileMetaData]) -> set[str]:
    return {footer.row_group(0).column(0).compression for footer in footers}


def test_a_table_s_properties_are_honoured(place: Place) -> None:
    _make(place, "wished")
    [process] = place.export("db.wished", to="lake.ns.wished")
    assert process.files == 1 and _codecs(_footers(place, "lake.ns.wished")) == {"ZSTD"}
    with place.table("lake.ns.wished").transaction() as change:
        change.set_properties(
            {
                "write.target-file-size-bytes": "4000000",
                "write.parquet.row-group-size-bytes": "1048576",
                "write.parquet.compression-codec": "gzip",
                "write.parquet.compression-level": "1",
                "write.parquet.page-size-bytes": "8192",
            }
        )
    place.execute("INSERT INTO db.wished VALUES (1, 'new')")
    [process] = place.export("db.wished", to="lake.ns.wished", force=True)
    assert process.state is ProcessState.COMPLETED, process.error
    footers = _footers(place, "lake.ns.wished")
    assert len(footers) > 1 and _codecs(footers) == {"GZIP"}
    groups = [footer.row_group(at) for footer in footers for at in range(footer.num_row_groups)]
    assert len(groups) > len(footers) and all(group.total_byte_size < 2 << 20 for group in groups)
    assert sum(footer.num_rows for footer in footers) == 60001


def test_one_export_has_its_own_size_and_codec(place: Place) -> None:
    _make(place, "asked")
    [process] = place.export("db.asked", to="lake.ns.asked", file_mb=1, codec="snappy")
    assert process.state is ProcessState.COMPLETED, process.error
    footers = _footers(place, "lake.ns.asked")
    assert len(footers) > 3 and _codecs(footers) == {"SNAPPY"}


def test_plain_parquet_too(place: Place, tmp_path: Path) -> None:
    _make(place, "plain")
    [process] = place.export("db.plain", to=f"{tmp_path}/plain/", file_mb=1, codec="uncompressed")
    assert process.state is ProcessState.COMPLETED, process.error
    files = sorted((tmp_path / "plain").rglob("calve-*.parquet"))
    assert len(files) > 3
    assert _codecs([pq.ParquetFile(file).metadata for file in files]) == {"UNCOMPRESSED"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("write.parquet.compression-codec", "lzo"), ("write.target-file-size-bytes", "large")],
)
def test_a_property_that_cannot_be_honoured_is_refused_and_named(place: Place, name: str, value: str) -> None:
    table = f"refused_{value}"
    _make(place, table)
    place.export(f"db.{table}", to=f"lake.ns.{table}")
    with place.table(f"lake.ns.{table}").transaction() as change:
        change.set_properties({name: value})
    place.execute(f"INSERT INTO db.{table} VALUES (1, 'new')")
    [process] = place.export(f"db.{table}", to=f"lake.ns.{table}", force=True)
    assert process.error is not None and process.error.code == "table_property"
    assert name in process.error.message
