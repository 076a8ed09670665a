"""The quick start, end to end: one partition out, proven, and never twice."""

from pathlib import Path

import pytest

from calve.app.config.template import write
from calve.clickhouse.embedded.source import EmbeddedSource
from support.calve_command import call

pytestmark = pytest.mark.spark

STATEMENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, at Date) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
    "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 31 FROM numbers(1000)",
)
EXPORT = ("export", "db.events", "--partition", "202401", "--to", "lake.ns.events")


def test_the_quick_start(tmp_path: Path) -> None:
    write(tmp_path)
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        for statement in STATEMENTS:
            session.execute(statement)

    planned = call(*EXPORT, "--dry-run", "--json", cwd=tmp_path)
    assert (planned.code, planned.json["rows"], planned.json["creates_table"]) == (0, 1000, True)
    assert call("ps", "--all", "--json", cwd=tmp_path).json == [], "a dry run queues nothing"

    first = call(*EXPORT, cwd=tmp_path)
    assert first.code == 0, first.err
    (done,) = call("ps", "--all", "--json", cwd=tmp_path).json
    assert (done["state"], done["rows"]) == ("COMPLETED", 1000)
    [note] = [line for line in planned.json["notes"] if "ReplacingMergeTree" in line]
    assert f"note: {note}" in first.err
    assert f"note: {note}" in call("show", done["id"], cwd=tmp_path).out

    proof = call("verify", done["id"], "--json", cwd=tmp_path)
    assert (proof.code, proof.json["ok"]) == (0, True), proof.err

    again = call(*EXPORT, "--json", cwd=tmp_path)
    assert again.code == 0, again.err
    assert (again.json["id"], again.json["already_exported"]) == (done["id"], True)
    assert "already exported" in again.err

    (listed,) = call("partitions", "db.events", "--to", "lake.ns.events", "--json", cwd=tmp_path).json
    assert listed["exported"] == "unchanged"

    with EmbeddedSource("main", tmp_path / "clickhouse").visit() as session:
        session.execute("INSERT INTO db.events VALUES (5000, '2024-01-05')")
    call(*EXPORT, cwd=tmp_path).is_error(4, "changed since", "--force")
    assert not list(tmp_path.glob("clickhouse/shadow/*/*")), "a freeze is left"
