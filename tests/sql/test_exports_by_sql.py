"""Statements over a real store, a real source and a real catalog: what users of Altinity's ClickHouse type."""

import io
import json

import pytest

from calve.cli.main import run
from calve.model.errors import CalveError, DeniedError, RefusedError, UsageError
from calve.model.limits import Limits
from calve.sql import codes
from calve.sql.execution import Sql
from calve.sql.tables import SCHEMAS, TABLES
from sql.front import DONE, OPERATOR, VIEWER, WAITING, Front

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def queued(front: Front) -> str:
    """The process of an ALTER."""
    [process] = front.run(f"ALTER TABLE db.t EXPORT PARTITION ID '{WAITING}' TO TABLE lake.`ns.t`").processes
    return process


def test_an_export_is_queued_and_the_same_statement_joins_it(front: Front, queued: str) -> None:
    again = front.run(f"ALTER TABLE db.t EXPORT PARTITION {WAITING} TO TABLE lake.ns.t")
    assert (again.processes, again.joined, again.data) == ((queued,), (queued,), b"")


def test_what_is_exported_already_is_skipped_or_refused_as_the_settings_say(front: Front) -> None:
    text = f"ALTER TABLE db.t EXPORT PARTITION ID '{DONE}' TO TABLE lake.ns.t"
    assert front.run(text).processes == ()
    with pytest.raises(RefusedError, match="exported already: 1") as refused:
        front.run(f"{text} SETTINGS export_merge_tree_part_file_already_exists_policy = 'error'")
    assert codes.known(refused.value).status == 409


def test_several_clauses_are_one_request_for_each_destination(front: Front) -> None:
    made = front.run(
        "ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.u, EXPORT PARTITION ID '3' TO TABLE lake.ns.u, "
        "EXPORT PART '0_1_1_0' TO TABLE lake.ns.v"
    )
    rows = front.rows(
        "SELECT destination, partitions FROM calve.processes WHERE destination IN ('lake.ns.u', 'lake.ns.v')"
    )
    found = sorted((row["destination"], *row["partitions"]) for row in rows)
    assert found == [("lake.ns.u", "0"), ("lake.ns.u", "3"), ("lake.ns.v", "0")]
    assert len(made.processes) == 3


def test_a_clause_that_is_refused_names_what_was_queued_before_it(front: Front) -> None:
    with pytest.raises(CalveError, match="queued before that: ") as refused:
        front.run(
            "ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.ns.w, EXPORT PART 'no' TO TABLE lake.ns.x"
        )
    assert codes.known(refused.value).status == 404


def test_the_columns_that_altinitys_users_know(front: Front, queued: str) -> None:
    sql = "SELECT * FROM system.replicated_partition_exports WHERE destination_table = 'ns.t' ORDER BY partition_id"
    done, waiting = front.rows(sql)
    assert done["transaction_id"] == front.done
    assert (done["source_database"], done["source_table"]) == ("db", "t")
    assert (done["destination_database"], done["destination_table"]) == ("lake", "ns.t")
    assert (done["status"], waiting["status"]) == ("COMPLETED", "PENDING")
    assert done["parts"] == ["1_2_2_0"]
    assert (int(done["parts_count"]), int(done["parts_to_do"])) == (1, 0)
    [path] = done["destination_file_paths"]["1_2_2_0"]
    assert path.endswith(".parquet")
    assert (waiting["transaction_id"], waiting["last_exception_per_replica"]) == (queued, [])


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_read_with_its_columns_in_order(front: Front, queued: str, name: str) -> None:
    whole = front.rows(f"SELECT * FROM {name}")
    columns = dict(TABLES[name].schema.columns)
    assert all(list(row) == list(columns) for row in whole)
    assert bool(whole) == (
        name not in ("system.exports", "calve.backups", "calve.workers", "calve.holds", "calve.schedules")
    )


def test_what_people_ask_first(front: Front) -> None:
    assert front.rows("SHOW DATABASES") == [{"name": "calve"}, {"name": "system"}]
    everything = [f"{name}.{row['name']}" for name in ("calve", "system") for row in front.rows(f"SHOW TABLES FROM {name}")]  # fmt: skip
    assert sorted(everything) == sorted(TABLES)
    assert front.rows("SHOW TABLES LIKE 'b%'") == [{"name": "backups"}]
    assert front.rows("SHOW TABLES FROM default") == []
    for name, table in TABLES.items():
        described = front.rows(f"DESCRIBE TABLE {name}")
        assert tuple((row["name"], row["type"]) for row in described) == table.schema.columns
    asked = ["`calve`.`tasks`", "tasks", "TABLE nope", "DATABASE calve", "DATABASE nope"]
    assert [front.rows(f"EXISTS {one}")[0]["result"] for one in asked] == [1, 1, 0, 1, 0]
    for wrong, code in (("DESCRIBE nope", "sql_table"), ("SHOW TABLES FROM nope", "sql_database")):
        with pytest.raises(UsageError) as refused:
            front.run(wrong)
        assert refused.value.code == code


def test_a_column_that_is_named_alone_is_as_in_the_whole(front: Front, queued: str) -> None:
    """Plans and tasks are read only where a column needs them."""
    name = "system.replicated_partition_exports"
    whole = front.rows(f"SELECT * FROM {name}")
    for column, _ in TABLES[name].schema.columns:
        alone = front.rows(f"SELECT {column} FROM {name}")
        assert [row[column] for row in alone] == [row[column] for row in whole], column


def test_our_own_tables(front: Front, queued: str) -> None:
    [process] = front.rows(f"SELECT * FROM processes WHERE id = '{front.done}'")
    assert (process["state"], int(process["rows"]), process["error_code"]) == ("COMPLETED", 25, "")
    [task] = front.rows(f"SELECT * FROM tasks WHERE process_id = '{front.done}'")
    assert (task["state"], int(task["rows"])) == ("DONE", 25)
    names = front.rows(
        f"SELECT name FROM events WHERE process_id = '{front.done}' AND name IN ('submitted', 'completed')"
    )
    assert {row["name"] for row in names} == {"submitted", "completed"}
    [table] = front.rows("SELECT * FROM calve.tables WHERE destination = 'lake.ns.t'")
    assert (int(table["completed"]), int(table["live"])) == (1, 1)
    assert table["last_success_at"] == process["finished_at"]


def test_one_process_is_read_where_the_statement_asks_for_one(front: Front, queued: str) -> None:
    """Also where there is none, and not where an alias or another clause means something else."""
    assert front.rows("SELECT * FROM calve.tasks WHERE process_id = 'nosuchprocess'") == []
    assert len(front.rows("SELECT 'x' AS id FROM calve.processes WHERE id = 'x'")) > 1
    assert front.rows(f"SELECT count() AS n, any(id) AS x FROM processes HAVING x = '{front.done}' OR n > 1")


def test_a_table_that_is_longer_than_a_select_sees_says_so(front: Front, queued: str) -> None:
    short = Sql(front.sql.desk, front.sql.cages, Limits(select_rows=1))
    found = short.run(VIEWER, "SELECT count() FROM calve.processes, calve.tables")
    assert (found.data, found.truncated) == (b"1\n", ("calve.processes", "calve.tables"))


def test_tables_are_read_page_by_page(front: Front, queued: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in ("0", "1", "3"):
        front.run(f"ALTER TABLE db.t EXPORT PARTITION ID '{partition}' TO TABLE lake.ns.paged")
    whole = front.rows("SELECT id FROM calve.processes")
    assert len(whole) > 3
    monkeypatch.setattr("calve.sql.reader._PAGE", 2)
    assert front.rows("SELECT id FROM calve.processes") == whole


def test_kill_cancels_what_its_condition_chooses_and_only_that(front: Front) -> None:
    [process] = front.run("ALTER TABLE db.t EXPORT PARTITION ID '3' TO TABLE lake.ns.killed").processes
    where = "WHERE destination_table = 'ns.killed' AND source_table = 't'"
    tried = front.rows(f"KILL EXPORT PARTITION {where} TEST", OPERATOR)
    assert [row["transaction_id"] for row in tried] == [process]
    assert front.rows(f"SELECT status FROM system.distributed_exports {where}") == [{"status": "PENDING"}]
    [killed] = front.rows(f"KILL EXPORT {where} SYNC", OPERATOR)
    assert killed["kill_status"] in ("waiting", "finished")
    assert (killed["partition_id"], killed["transaction_id"]) == ("3", process)
    [row] = front.rows(f"SELECT cancel_requested, state FROM processes WHERE id = '{process}'")
    assert row["cancel_requested"] or row["state"] == "CANCELLED"
    assert front.run("KILL EXPORT PARTITION WHERE partition_id = 'none'").data == b""


@pytest.mark.parametrize(
    "where",
    [
        "1) OR (1 = 1",
        "1 UNION ALL SELECT 'x'",
        "1 ORDER BY 1",
        "file('/etc/passwd') = ''",
        "transaction_id IN (SELECT name FROM system.tables)",
        "1 SETTINGS readonly = 0",
    ],
)
def test_the_condition_of_a_kill_is_one_expression_and_no_way_around_the_list(
    front: Front, where: str
) -> None:
    with pytest.raises(UsageError):
        front.run(f"KILL EXPORT PARTITION WHERE {where}")


def test_stop_holds_exports_back_and_why_says_so(front: Front, queued: str) -> None:
    desk = front.sql.desk
    front.run("SYSTEM STOP EXPORTS db.t")
    [why] = desk.perform(VIEWER, "why", {"ids": [queued]})
    assert "SYSTEM START EXPORTS main:db.t" in why["why"]
    front.run("SYSTEM STOP EXPORTS")
    with pytest.raises(RefusedError, match="all work"):
        front.run("SYSTEM START EXPORTS db.t")
    front.run("SYSTEM START EXPORTS")
    front.run("SYSTEM START EXPORTS main:db.t")
    assert desk.perform(VIEWER, "halts", {}) == []
    front.run("SYSTEM START EXPORTS db.t")  # again: nothing to start is no error


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.ns.t",
        "KILL EXPORT PARTITION WHERE 1",
        "SYSTEM STOP EXPORTS",
        "SYSTEM START EXPORTS db.t",
    ],
)
def test_a_viewer_reads_and_changes_nothing(front: Front, text: str) -> None:
    with pytest.raises(DeniedError) as denied:
        front.run(text, VIEWER)
    assert denied.value.code == "role"


def test_errors_of_the_engine_keep_its_number(front: Front) -> None:
    with pytest.raises(CalveError, match="nothing") as refused:
        front.run("SELECT nothing FROM calve.processes")
    assert (codes.known(refused.value).number, codes.known(refused.value).name) == (47, "UNKNOWN_IDENTIFIER")
    assert "readonly" not in refused.value.message


def test_a_select_that_takes_too_long_is_stopped(front: Front) -> None:
    numbers = "SELECT x FROM processes ARRAY JOIN range(100000) AS x"
    slow = f"SELECT sum(sipHash64(x, y) % 2) FROM ({numbers}) ARRAY JOIN range(1000) AS y"
    with pytest.raises(CalveError, match=r"longer than 0\.5 s") as refused:
        front.sql.run(VIEWER, slow, seconds=0.5)
    assert codes.known(refused.value).status == 504
    assert front.run("SELECT 1").data == b"1\n"


def test_columns_are_of_types_that_every_format_writes() -> None:
    assert len(SCHEMAS) == 11
    assert all(len({name for name, _ in schema.columns}) == len(schema.columns) for schema in SCHEMAS)


def test_the_command_runs_one_statement_or_a_script(
    front: Front, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(front.place.folder)
    assert run(["sql", "SELECT 1 AS a", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["data"] == [{"a": 1}]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1; SELECT ';'\n;-- end"))
    assert run(["sql"]) == 0
    assert capfd.readouterr().out == "1\n;\n"
    assert run(["sql", "DROP TABLE db.t"]) == 2
    assert "hint:" in capfd.readouterr().err


def test_an_alter_at_the_command_says_what_it_queued(
    front: Front, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(front.place.folder)
    assert run(["sql", "ALTER TABLE db.t EXPORT PARTITION ID '3' TO TABLE lake.ns.cli", "--json"]) == 0
    [process] = json.loads(capfd.readouterr().out)["processes"]
    assert run(["sql", "ALTER TABLE db.t EXPORT PARTITION ID '3' TO TABLE lake.ns.cli"]) == 0
    said = capfd.readouterr().err
    assert f"{process} is under way already" in said
    assert "calve worker" in said
