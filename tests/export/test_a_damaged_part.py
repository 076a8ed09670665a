"""One flipped byte in a large block: ClickHouse tries every bit of it for minutes, without reading a byte."""

from contextlib import suppress
from pathlib import Path

import pytest

from calve.model.errors import STALLED
from calve.model.states import ProcessState
from support.place import Place

pytestmark = pytest.mark.spark

_BLOBS = (
    "CREATE TABLE db.blobs (day UInt8, id UInt64, v String CODEC(NONE)) ENGINE = MergeTree PARTITION BY day"
    " ORDER BY id SETTINGS min_bytes_for_wide_part = 0, min_compress_block_size = 1000000,"
    " max_compress_block_size = 1000000",
    "SYSTEM STOP MERGES db.blobs",
    "INSERT INTO db.blobs SELECT 1, number, randomString(1000) FROM numbers(1100)",
    "INSERT INTO db.blobs SELECT 1, number, randomString(1000) FROM numbers(1100)",
    "INSERT INTO db.blobs SELECT 2, number, 'whole' FROM numbers(10)",
)


def _flip_a_bit(file: Path) -> None:
    with file.open("r+b") as data:
        data.seek(500_000)
        [byte] = data.read(1)
        data.seek(500_000)
        data.write(bytes([byte ^ 16]))


def _readers(file: Path) -> list[str]:
    """The processes that have this very file open, under whatever name."""
    inode, found = file.stat().st_ino, []
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # gone meanwhile, or another user's
            if handle.stat().st_ino == inode:
                found.append(str(handle))
    return found


def test_its_task_is_stopped_the_error_names_the_part_and_the_cpu_is_given_back(place: Place) -> None:
    place.settings["CALVE_LIMITS__STALL_SECONDS"] = "2"
    place.execute(*_BLOBS)
    [damaged] = place.folder.glob("clickhouse/store/*/*/1_2_2_0/v.bin")
    _flip_a_bit(damaged)
    [process] = place.export("db.blobs", "1", to="lake.ns.blobs")
    assert process.state is ProcessState.FAILED
    assert process.error is not None and process.error.code == STALLED
    assert not process.error.retryable
    assert "part 1_2_2_0:" in process.error.message
    assert "CHECK TABLE" in process.error.hint
    [healthy] = place.export("db.blobs", "2", to="lake.ns.blobs")
    assert healthy.state is ProcessState.COMPLETED, healthy.error
    assert place.read("lake.ns.blobs").num_rows == 10
    assert _readers(damaged) == []
