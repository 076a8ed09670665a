"""`calve backup` as a person types it; only the JVM is left out."""

import json
from pathlib import Path

import pytest

from calve.clickhouse.embedded.source import EmbeddedSource
from support.calve_command import Run


def test_a_backup_s_whole_life(run: Run, tmp_path: Path) -> None:
    created = run("backup", "create", "monday", "--tables", "db.*", "--json")
    assert created.code == 0, created.err
    assert created.json["kind"] == "backup" and created.json["state"] == "COMPLETED"
    assert created.json["rows"] == 1000 and created.json["detail"]["moved_bytes"] == created.json["bytes"]

    again = run("backup", "create", "tuesday", "--tables", "db.t")
    assert again.code == 0, again.err
    assert "COMPLETED" in again.out and "0 B of them new" in again.out

    run("backup", "create", "monday", "--tables", "db.*").is_error(4, "a backup monday", "backup delete")

    listed = run("backup", "list", "--json").json
    assert [one["name"] for one in listed] == ["monday", "tuesday"]
    assert [one["own_bytes"] for one in listed] == [0, 0]
    assert "2 backups" in run("backup", "list").out

    shown = run("backup", "show", "monday", "--json").json
    assert shown["tables"][0]["table"] == "db.t" and shown["tables"][0]["rows"] == 1000
    assert "db.t" in run("backup", "show", "monday").out

    whole = run("backup", "verify", "monday", "--read-data", "100%", "--json")
    assert whole.code == 0 and whole.json["whole"] and whole.json["read_bytes"] > 100_000
    proven = (
        "SELECT name, proven_at >= finished_at FROM calve.backups ORDER BY name FORMAT JSONCompactEachRow"
    )
    assert run("sql", proven).out.splitlines() == ['["monday", 1]', '["tuesday", null]']

    run("backup", "restore", "monday").is_error(4, "db.t exists already", "--as")
    restored = run("backup", "restore", "monday", "--as", "db2", "--json")
    assert restored.code == 0, restored.err
    with EmbeddedSource("main", tmp_path / "clickhouse").visit() as session:
        assert session.rows("SELECT count() AS n FROM db2.t") == [{"n": 1000}]

    dry = run("backup", "prune", "--keep-last", "1", "--dry-run", "--json").json
    assert dry["kept"] == ["tuesday"] and [one["name"] for one in dry["deleted"]] == ["monday"]
    assert len(run("backup", "list", "--json").json) == 2
    pruned = run("backup", "prune", "--keep-last", "1")
    assert "deleted monday" in pruned.out and "1 shared parts kept" in pruned.out

    [stored] = tmp_path.glob("backups/parts/*/*/*/0")
    stored.write_bytes(stored.read_bytes()[:-1])
    broken = run("backup", "verify", "tuesday")
    assert broken.code == 1 and str(stored) in broken.out
    unproven = "SELECT count() FROM calve.backups WHERE proven_at IS NOT NULL AND name = 'tuesday'"
    assert run("sql", unproven).out == "0\n"

    assert run("backup", "delete", "tuesday").code == 0
    assert run("backup", "list", "--json").json == []
    assert not list(tmp_path.glob("backups/parts/*/*/*/0"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "a b", "--tables", "db.*"), 2, "invalid backup name"),
        (("create", "x", "--tables", "nope.*"), 3, "nope.*"),
        (("create", "x", "--tables", "db.*", "--source", "other"), 2, "other"),
        (("show", "nothing"), 3, "no backup 'nothing'"),
        (("verify", "nothing"), 3, "no backup 'nothing'"),
        (("restore", "nothing"), 3, "no backup 'nothing'"),
        (("delete", "nothing"), 3, "no backup 'nothing'"),
        (("prune",), 2, "what to keep"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    run("backup", *arguments).is_error(code, words)


def test_a_percentage_that_is_none_is_refused(run: Run) -> None:
    run("backup", "verify", "x", "--read-data", "many").is_error(2, "invalid percentage", "5%")


def test_without_a_worker_the_id_is_printed_and_it_is_said(run: Run) -> None:
    answer = run("backup", "create", "later", "--tables", "db.*", "--no-wait")
    assert answer.code == 0 and "no worker is running" in answer.err
    first = answer.out.strip()
    assert run("backup", "create", "later", "--tables", "db.*", "--no-wait").out.strip() == first
    [waiting] = run("ps", "--json").json
    assert (waiting["id"], waiting["kind"], waiting["state"]) == (first, "backup", "RUNNING")
    ended = run("backup", "create", "later", "--tables", "db.*", "--json")
    assert json.loads(ended.out)["id"] == first and ended.json["state"] == "COMPLETED"
