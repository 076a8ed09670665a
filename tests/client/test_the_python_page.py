"""The examples of docs/python.md, run from the first to the last, over a server with a worker."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import calve
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import write
from calve.clickhouse.embedded.source import EmbeddedSource
from support.local_runner import LocalRunner
from support.served import served_here

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.events (id UInt64, at Date) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id"
        )
        session.execute(
            "INSERT INTO db.events VALUES (1, '2024-01-01'), (2, '2024-02-01'), (3, '2024-02-02')"
        )
    with ExitStack() as stack:
        runner = stack.enter_context(closing(LocalRunner()))
        facade = stack.enter_context(Calve(load_config(tmp_path / "calve.toml", environ={}), runner=runner))
        program = facade.worker()
        thread = Thread(target=program.run)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(program.request_stop)
        yield stack.enter_context(served_here(tmp_path))


def test_every_example_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8180", url), names)
    client = names["calve"]
    assert {row["destination"]: row["rows"] for row in names["rows"]}["lake.ns.events"] == 3
    assert client.process(names["asked"].process.id).state is calve.ProcessState.COMPLETED
    assert {one.partitions for one in names["old"].processes} == {("202402",)}
    said = capsys.readouterr().out
    assert "COMPLETED 1 None" in said
    assert "no_table" in said
    assert "events were missed" not in said
    client.close()
