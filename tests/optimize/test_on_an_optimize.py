"""`show`, `verify`, `history`, `retry` and `cancel` on an optimize, as a person types them.

The rewrite is PyIceberg's: what is tested is what the commands say of it. With Spark: `test_command_line`.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from calve.app.wiring import App
from calve.cli.main import run
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.verify import verify_rewrites
from calve.model.errors import ErrorInfo, RefusedError
from support.equality_deletes import delete_equal
from support.lake import IDENTIFIER, arrow, make_table, rows_of
from support.plain_rewriting import PlainRewriter

CONFIG = """
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[limits]
slots = 2
tick_seconds = 0.02
"""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A table of twelve small files in the working folder of a person."""
    (tmp_path / "calve.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/catalog.db"
    opened = open_catalog("lake", {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/warehouse"})
    table = make_table(opened, properties={"self-optimizing.minor.trigger.file-count": "3"})
    for number in range(3):
        table.append(pa.concat_tables([arrow([number], 1), arrow([10 + number], 2)]))
    return opened


@pytest.fixture
def runner(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> PlainRewriter:
    rewriter = PlainRewriter(catalog)
    monkeypatch.setattr(App, "runner", rewriter)
    return rewriter


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    code = run([*arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def optimize(capsys: pytest.CaptureFixture[str]) -> Any:
    code, process, said = answer(capsys, "optimize", "lake.ns.events")
    assert (code, process["state"]) == (0, "COMPLETED"), said
    return process


@pytest.mark.usefixtures("runner")
def test_show_says_what_was_gained(capsys: pytest.CaptureFixture[str]) -> None:
    process = optimize(capsys)
    _, shown, _ = answer(capsys, "show", process["id"])
    assert shown["result"]["before"]["files"] == 6 and shown["result"]["after"]["files"] == 2
    assert run(["show", process["id"]]) == 0
    page = capsys.readouterr().out
    assert "gained" in page and "files 6 -> 2" in page


@pytest.mark.usefixtures("runner")
def test_verify_proves_that_no_row_changed(capsys: pytest.CaptureFixture[str], catalog: Catalog) -> None:
    process = optimize(capsys)
    catalog.load_table(IDENTIFIER).append(arrow([99], 1))
    code, proof, _ = answer(capsys, "verify", process["id"])
    assert (code, proof["ok"]) == (0, True)
    [made] = proof["snapshots"]
    assert (made["rows"], made["files"]) == ({"before": 6, "after": 6}, {"before": 6, "after": 2})
    assert made["columns"] == {name: {"same": True} for name in ("id", "month", "name")}
    assert run(["verify", process["id"]]) == 0
    assert "proven  6 rows rewritten from 6 files to 2" in capsys.readouterr().out


def test_verify_says_which_column_a_bad_rewrite_changed(
    capsys: pytest.CaptureFixture[str], runner: PlainRewriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support import plain_rewriting

    write = plain_rewriting._dataframe_to_data_files

    def spoiled(metadata: Any, rows: pa.Table, io: Any) -> Any:
        names = pa.array(["?"] * rows.num_rows, rows.schema.field("name").type)
        return write(metadata, rows.set_column(2, rows.schema.field("name"), names), io)

    monkeypatch.setattr(plain_rewriting, "_dataframe_to_data_files", spoiled)
    process = optimize(capsys)
    code, proof, said = answer(capsys, "verify", process["id"])
    assert (code, proof["ok"]) == (1, False)
    assert [fault.split(" changed ")[1] for fault in proof["faults"]] == ["values of column name"]
    assert "hint: roll the table back" in said


@pytest.mark.usefixtures("runner")
def test_verify_refuses_what_is_expired_and_what_rewrote_nothing(
    capsys: pytest.CaptureFixture[str], catalog: Catalog
) -> None:
    process = optimize(capsys)
    table = catalog.load_table(IDENTIFIER)
    parent = table.metadata.snapshots[-2].snapshot_id
    table.maintenance.expire_snapshots().by_id(parent).commit()
    code, refused, _ = answer(capsys, "verify", process["id"])
    assert (code, refused["error"]["code"]) == (4, "snapshot_expired")
    nothing = optimize(capsys)
    code, refused, _ = answer(capsys, "verify", nothing["id"])
    assert (code, refused["error"]["code"]) == (4, "not_verifiable")
    assert "rewrote nothing" in refused["error"]["message"]


def test_history_shows_what_was_done_by_whom_and_what_was_gained(
    capsys: pytest.CaptureFixture[str], runner: PlainRewriter
) -> None:
    assert run(["history"]) == 0
    assert "calve health" in capsys.readouterr().err
    process = optimize(capsys)
    runner.fails = [ErrorInfo(code="denied", message="wrong credentials")]
    answer(capsys, "optimize", "lake.ns.events", "--full")
    _, found, _ = answer(capsys, "history", "lake.ns.events")
    assert [item["state"] for item in found] == ["FAILED", "COMPLETED"]
    assert found[1]["id"] == process["id"] and found[1]["files"] == {"before": 6, "after": 2}
    assert found[0]["files"] == {"before": 2, "after": None} and not found[0]["by_worker"]
    assert run(["history"]) == 0
    page = capsys.readouterr().out
    assert "6 -> 2" in page and "person" in page and "lake.ns.events" in page
    assert answer(capsys, "history", "lake.ns.other")[1] == []


def test_retry_runs_one_that_failed_again_and_refuses_one_that_completed(
    capsys: pytest.CaptureFixture[str], runner: PlainRewriter, catalog: Catalog
) -> None:
    runner.fails = [ErrorInfo(code="denied", message="wrong credentials")]
    code, failed, said = answer(capsys, "optimize", "lake.ns.events")
    assert (code, failed["state"], failed["error"]["code"]) == (1, "FAILED", "denied"), said
    code, process, _ = answer(capsys, "retry", failed["id"])
    assert (code, process["state"], process["retry_of"]) == (0, "COMPLETED", failed["id"])
    assert rows_of(catalog) == [0, 1, 2, 10, 11, 12]
    code, refused, _ = answer(capsys, "retry", process["id"])
    assert (code, refused["error"]["code"]) == (4, "completed")


@pytest.mark.usefixtures("runner")
def test_cancel_ends_one_that_waits_and_says_that_it_is_too_late_for_one_that_is_done(
    capsys: pytest.CaptureFixture[str], catalog: Catalog
) -> None:
    _, waiting, _ = answer(capsys, "optimize", "lake.ns.events", "--no-wait")
    code, cancelled, _ = answer(capsys, "cancel", waiting["id"])
    assert (code, cancelled["state"]) == (0, "CANCELLED")
    assert len(catalog.load_table(IDENTIFIER).metadata.snapshots) == 3
    done = optimize(capsys)
    code, late, said = answer(capsys, "cancel", done["id"])
    assert (code, late["state"]) == (4, "COMPLETED") and "too late" in said
    code, _, _ = answer(capsys, "retry", waiting["id"])
    assert code == 0


def test_verify_refuses_snapshots_with_deletes_that_its_reader_does_not_have(catalog: Catalog) -> None:
    delete_equal(catalog, IDENTIFIER, "id", [1], partition=(1,))
    table = catalog.load_table(IDENTIFIER)
    table.append(arrow([50], 1))
    head = str(table.metadata.snapshots[-1].snapshot_id)
    with pytest.raises(RefusedError, match="cannot be read here") as refused:
        verify_rewrites(catalog, IDENTIFIER, str(table.metadata.table_uuid), [head])
    assert refused.value.code == "not_verifiable" and "Spark" in refused.value.hint
