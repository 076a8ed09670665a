"""An attempt leaves whole files and one receipt, or an error as data; never anything between."""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exporting import Child, child_run, child_scratch, export

from calve.clickhouse.pins.pin import FROZEN_READER
from calve.clickhouse.reader import Reader
from calve.destination import checksums
from calve.destination.names import DataFileName, receipt_uri
from calve.destination.receipt import FileReceipt, Receipt
from calve.export.payload import TaskPayload, write_settings
from calve.model.errors import ErrorInfo
from calve.objects.storage import Storage

pytestmark = pytest.mark.programs

ROWS = "SELECT number FROM numbers(100)"
CATALOGS = ("pandas", "requests", "sqlalchemy", "pyiceberg.catalog", "pyiceberg.table")


def test_the_start_of_an_executor_s_python_imports_no_catalog() -> None:
    code = f"import sys, calve.export.task; print([name for name in {CATALOGS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def run(child: Child, payload: str, **changes: Any) -> dict[str, Any]:
    data = json.loads(payload)
    answer: dict[str, Any] = json.loads(child.call(child_run, json.dumps(data | changes)))
    return answer


def test_a_receipt_says_what_was_read_and_written(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    (receipt,) = done.receipts
    assert (receipt.rows, len(receipt.files), receipt.task, receipt.attempt) == (100, 1, 0, 1)
    assert receipt.bytes == done.paths[0].stat().st_size
    assert done.paths[0].name == f"calve-{done.plan.process_id}-0-1-0.parquet"
    stored = Storage().read(receipt_uri(done.plan.destination.receipts_location, done.plan.process_id, 0, 1))
    assert Receipt.from_json(stored.decode()) == receipt
    assert len(receipt.files[0].sha256) == 64


def test_an_attempt_that_left_a_receipt_is_not_repeated(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    before = done.paths[0].stat()
    again = run(child, done.payloads[0])
    assert Receipt.from_json(again["receipt"]) == done.receipts[0]
    assert done.paths[0].stat().st_mtime_ns == before.st_mtime_ns


def test_another_attempt_writes_other_files(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    second = Receipt.from_json(run(child, done.payloads[0], attempt=2)["receipt"])
    assert {file.path for file in second.files}.isdisjoint(file.path for file in done.files)
    assert second.checksums == done.receipts[0].checksums


def test_L9_a_receipt_can_never_overwrite_a_data_file(child: Child, tmp_path: Path) -> None:
    """Even where a table keeps everything in one folder."""
    done = export(child, tmp_path, "id UInt32", ROWS)
    data = json.loads(done.payloads[0])
    data["destination"]["receipts_location"] = data["destination"]["data_location"]
    answer = run(child, json.dumps(data), attempt=3)
    receipt = Receipt.from_json(answer["receipt"])
    (path,) = (Path(file.path.removeprefix("file://")) for file in receipt.files)
    assert path.read_bytes()[:4] == b"PAR1"
    folder = path.parent / done.plan.process_id
    assert [entry.name for entry in folder.iterdir()] == ["0-3.json"]
    # and a receipt is never replaced, whatever stands under its name
    uri = TaskPayload.from_json(json.dumps(data | {"attempt": 4})).receipt_uri
    assert Storage().put_if_absent(uri, receipt.to_json().encode())
    assert run(child, json.dumps(data), attempt=4)["receipt"] == receipt.to_json()


def test_errors_come_back_as_data(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    data = json.loads(done.payloads[0])
    data["parts"][0]["path"] = str(tmp_path / "gone" / "all_1_1_0")
    error = ErrorInfo.from_json(run(child, json.dumps(data), attempt=2)["error"])
    assert error.code == "part_missing" and "gone" in error.message and error.hint
    damaged = ErrorInfo.from_json(json.loads(child.call(child_run, "{}"))["error"])
    assert damaged.code == "damaged" and not damaged.retryable
    data = json.loads(done.payloads[0])
    data["slices"][0]["part"] = 99
    crashed = ErrorInfo.from_json(run(child, json.dumps(data), attempt=3)["error"])
    assert crashed.code == "task_crashed" and crashed.retryable
    assert child.call(child_scratch) == []


def test_storage_that_cannot_be_written_fails_the_attempt_and_leaves_nothing(
    child: Child, tmp_path: Path
) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    data = json.loads(done.payloads[0])
    (tmp_path / "file").write_text("in the way")
    data["destination"]["data_location"] = f"file://{tmp_path}/file/data"
    error = ErrorInfo.from_json(run(child, json.dumps(data), attempt=2)["error"])
    assert error.code == "storage_failed" and str(tmp_path) in error.message
    assert not Storage().exists(TaskPayload.from_json(json.dumps(data | {"attempt": 2})).receipt_uri)
    assert child.call(child_scratch) == []


@pytest.mark.parametrize(
    "function", ["calve.telepathy:opened", "calve.clickhouse.reader:lost", "os:system", ""]
)
def test_a_reader_of_another_version_is_a_clear_error(child: Child, tmp_path: Path, function: str) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    data = json.loads(done.payloads[0])
    data["reader"]["function"] = function
    error = ErrorInfo.from_json(run(child, json.dumps(data), attempt=2)["error"])
    assert error.code == "relation_mode" and not error.retryable


def test_P22_a_payload_shows_no_secrets_when_printed(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "id UInt32", ROWS)
    payload = TaskPayload.of(
        done.plan,
        task=0,
        attempt=1,
        reader=Reader(function=FROZEN_READER),
        storage={"s3.secret-access-key": "hush"},
    )
    assert "hush" not in repr(payload) and "hush" in payload.to_json()
    assert TaskPayload.from_json(payload.to_json()) == payload


def test_a_task_is_shipped_only_the_parts_it_reads(child: Child, tmp_path: Path) -> None:
    fill = "SELECT number, sipHash64(number) FROM numbers(60000)"
    done = export(child, tmp_path, "id UInt64, h UInt64", fill, fill, fill, task_bytes_mb=1)
    payloads = [TaskPayload.from_json(text) for text in done.payloads]
    assert len(payloads) == 3 and all(len(payload.parts) == 1 for payload in payloads)
    assert sorted(done.arrow().column("id").to_pylist()) == sorted([*range(60_000)] * 3)


def test_a_table_of_many_columns_is_measured_some_at_a_time(child: Child, tmp_path: Path) -> None:
    """Beyond 200 columns by several queries: each column has its own checksum and counts, of the same rows. Those that
    are read as they are come by themselves, and straight from the table."""
    columns = ", ".join(f"c{n} {('Float64', 'Int64', 'String', 'UInt32')[n % 4]}" for n in range(450))
    values = ", ".join(
        ("if(number = 1, nan, number)", "number", "toString(number)", "number")[n % 4] for n in range(450)
    )
    done = export(child, tmp_path, columns, f"SELECT {values} FROM numbers(10)")
    (receipt,) = done.receipts
    written = done.arrow()
    schema = done.table.schema()
    assert len(receipt.checksums) == 450
    for name, found in receipt.checksums.items():
        kind = schema.find_field(name).field_type
        assert checksums.text(checksums.of_arrow(kind, written.column(name))) == found
    (file,) = receipt.files
    assert set(file.nan_counts.values()) == {1}
    payload = TaskPayload.from_json(done.payloads[0])
    assert write_settings(payload, 1)["preferred_block_size_bytes"] == "14400000", "its blocks are larger"
    little = replace(payload, memory_mb=100)
    assert write_settings(little, 1)["preferred_block_size_bytes"] == "8000000", "memory allowing"


def test_L15_receipts_hold_more_than_2_to_the_31() -> None:
    many = 5_000_000_000
    file = FileReceipt(
        path="file:///x", rows=many, bytes=many, value_counts={1: many}, split_offsets=(4, many)
    )
    receipt = Receipt(process_id="p", task=0, attempt=1, rows=many, bytes=many, files=(file,))
    assert Receipt.from_json(receipt.to_json()) == receipt


def child_peak(payload: str) -> tuple[str, int]:
    """The answer, and the peak memory of the process so far, in bytes."""
    answer = child_run(payload)
    return answer, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_P10_memory_does_not_grow_with_the_part(child: Child, tmp_path: Path) -> None:
    """Parts of 100 and of 400 MB, uncompressed, through an engine that may use 150 MB, in one file."""

    def peak_of(rows: int) -> int:
        done = export(
            child, tmp_path / str(rows), "id UInt64, s String",
            f"SELECT number, repeat(hex(sipHash64(number)), 25) FROM numbers({rows})", memory_mb=150,
        )  # fmt: skip
        fresh = Child()  # a child of its own, so that nothing else has raised its peak
        try:
            again = json.dumps(json.loads(done.payloads[0]) | {"attempt": 2})
            answer, peak = fresh.call(child_peak, again)
        finally:
            fresh.close()
        assert json.loads(answer)["rows"] == rows
        return peak

    assert peak_of(1_000_000) - peak_of(250_000) < 150_000_000


def test_memory_that_is_not_enough_is_a_clear_error(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "s String", "SELECT repeat(repeat('x', 1000000), 20) FROM numbers(4)", memory_mb=30,
        expect_errors=True,
    )  # fmt: skip
    (error,) = done.errors
    assert error.code == "memory_limit" and "task_memory_mb" in error.hint
    assert child.call(child_scratch) == []


@pytest.mark.parametrize("attempt", [1, 2, 30])
def test_names_of_attempts_never_meet(attempt: int) -> None:
    names, others = (
        {
            str(DataFileName(process_id="p", task=task, attempt=mine, number=n))
            for task in range(13)
            for n in range(13)
        }
        for mine in (attempt, attempt + 1)
    )
    assert len(names) == 169 and names.isdisjoint(others)
