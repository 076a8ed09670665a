"""`calve sql --install` prints statements for a ClickHouse server, and connects to nothing."""

from pathlib import Path

import pytest

from calve.app.token_file import make_token
from support.calve_command import Run

ADDRESS = "http://calve.example:8180"


def test_the_statements_make_each_table_and_hide_the_token(run: Run, tmp_path: Path) -> None:
    _, token = make_token()
    (tmp_path / "operator.token").write_text(token)
    done = run("sql", "--install", ADDRESS, "--token-file", str(tmp_path / "operator.token"))
    made = done.out.splitlines()
    assert done.code == 0
    assert all(line.endswith(";") for line in made)
    assert [line.split(" (")[0] for line in made if line.startswith("CREATE TABLE")] == [
        f"CREATE TABLE `calve`.`{name}`" for name in ("processes", "exports", "backups", "actions")
    ]
    [collection] = [line for line in made if token in line]
    assert collection.startswith("CREATE NAMED COLLECTION")
    assert "TOKEN" not in done.out


def test_without_a_token_it_says_where_to_put_one(run: Run) -> None:
    done = run("sql", "--install", ADDRESS)
    assert "'Bearer TOKEN'" in done.out
    assert "calve token new --role operator" in done.err


def test_tables_that_are_only_read_need_no_token(run: Run) -> None:
    done = run("sql", "--install", ADDRESS + "/root", "--read-only", "--database", "my `db`")
    assert "COLLECTION" not in done.out
    assert "actions" not in done.out
    assert "`my \\`db\\``.`exports`" in done.out
    assert f"URL('{ADDRESS}/root/v1/tables/exports.jsonl', JSONEachRow)" in done.out
    assert "TOKEN" not in done.err


@pytest.mark.parametrize("address", ["nonsense", "ftp://x", "http://user:secret@x", ""])
def test_an_address_must_be_one(run: Run, address: str) -> None:
    done = run("sql", "--install", address)
    assert done.code == 2
    assert "secret" not in done.err
