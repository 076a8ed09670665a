"""`calve demo --serve`: a dashboard with live work in it, which Ctrl-C ends, and all that it started."""

import os
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from calve.cli.demo import _free
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from calve.store import open_store
from support.programs import Program


def programs(folder: Path) -> list[int]:
    """Those that run in a folder or name it, but for this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            named = str(folder) in (entry / "cmdline").read_text()
            there = (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:
            continue  # it ended
        if (named or there) and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.mark.spark
def test_a_demo_that_is_served_shows_live_work_and_ends_with_nothing_left_behind(tmp_path: Path) -> None:
    log, folder = tmp_path / "demo.log", tmp_path / "demo"
    command = [sys.executable, "-m", "calve.cli", "demo", "--serve", "--rows", "1000", "--port", "0"]
    demo = Program("calve demo", [*command, "--dir", str(folder)], log)
    try:
        demo.wait_ready(lambda: "in a browser" in log.read_text(), seconds=240)
        url = log.read_text().partition("open ")[2].partition(" in a browser")[0]
        page = httpx.get(url, headers={"Accept": "text/html"}, trust_env=False, timeout=30)
        assert page.status_code == 200 and "<h1" in page.text
        with open_store(f"sqlite:///{folder}/calve.db") as store:
            live = ProcessQuery(destination="lake.demo.live", states=frozenset({ProcessState.COMPLETED}))
            demo.wait_ready(lambda: bool(store.processes(live)), seconds=240)
        os.kill(demo.pid, signal.SIGINT)
        assert demo.wait() == 0, log.read_text()
    finally:
        demo.kill()
    assert programs(folder) == []
    with open_store(f"sqlite:///{folder}/calve.db") as store:
        assert store.servers() == [] and store.workers() == []
    with EmbeddedSource("main", folder / "clickhouse", busy_seconds=0).visit():
        pass  # nobody holds it


def test_a_port_that_is_taken_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert _free(taken.getsockname()[1]) == 0
