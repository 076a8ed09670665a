"""A command that is killed in the middle of a rewrite leaves nothing running for ever, and no row wrong."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.process import ProcessId, ProcessQuery
from calve.model.states import PROCESS_TERMINAL, ProcessState, TaskState
from calve.store import open_store
from support.lake import IDENTIFIER, arrow, make_table, rows_of, sqlite_properties

pytestmark = pytest.mark.spark

FILES = 13
CONFIG = """
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[spark]
master = "local[2]"
[limits]
lease_seconds = 2
"""


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "calve.cli", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_T16_killed_in_mid_rewrite_the_same_command_takes_over_and_the_rewrite_is_there_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "calve.toml").write_text(CONFIG)
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    table = make_table(catalog)
    for number in range(FILES):
        table.append(arrow(range(number * 10, number * 10 + 10), 1))
    first = command(tmp_path, "optimize", "lake.ns.events", "--json")
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        while not (rewritten(tmp_path) and (ids := running(store))):
            assert first.poll() is None, first.stderr
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=60)
        second = command(tmp_path, "optimize", "lake.ns.events", "--json")
        out, said = second.communicate(timeout=240)
        assert second.returncode == 0, said
        shown = json.loads(out)
        assert shown["id"] == ids[0], "it joins"
        assert (shown["state"], shown["tasks"]["done"], shown["files"]) == ("COMPLETED", 1, 1)
        process = store.process(ids[0])
        assert process.state is ProcessState.COMPLETED, process.error
        assert process.state in PROCESS_TERMINAL and process.tasks.running == 0
    assert rows_of(catalog) == list(range(130))
    marked = [
        snapshot.summary.additional_properties["calve.task"]
        for snapshot in catalog.load_table(IDENTIFIER).snapshots()
        if snapshot.summary and snapshot.summary.additional_properties.get("calve.process-id") == process.id
    ]
    assert marked.count("0") == 1
    assert json.loads(process.result)["rewritten_files"] == 13


def rewritten(folder: Path) -> bool:
    """Whether the rewrite has begun to write: then it has not committed, or has just done so."""
    return len(list((folder / "warehouse" / "ns" / "events" / "data").rglob("*.parquet"))) > FILES


def running(store: object) -> list[ProcessId]:
    """Processes with a task under way."""
    found = store.processes(ProcessQuery(kind="optimize"))  # type: ignore[attr-defined]
    return [p.id for p in found if store.tasks(p.id, frozenset({TaskState.RUNNING}))]  # type: ignore[attr-defined]
