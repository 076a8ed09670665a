"""One statement becomes one value, and anything else an error with a hint, in linear time."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calve.clickhouse.sql.tokens import name, string
from calve.model.errors import UsageError
from calve.sql import codes
from calve.sql.statement import Clause, Export, Kill, Select, Switch, parse, split


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            "ALTER TABLE db.t EXPORT PARTITION ID '2024' TO TABLE cat.ns.t",
            Export(table="db.t", clauses=(Clause(to="cat.ns.t", partition="2024"),)),
        ),
        (
            "alter table db.t export part 'all_1_1_0' to table cat.`ns.t`, export part 'all_2_2_0' to table cat.ns.t;",
            Export(
                table="db.t",
                clauses=(Clause(to="cat.ns.t", part="all_1_1_0"), Clause(to="cat.ns.t", part="all_2_2_0")),
            ),
        ),
        (
            "ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE 's3://lake/folder'",
            Export(table="db.t", clauses=(Clause(to="s3://lake/folder", all=True),)),
        ),
        (
            "ALTER TABLE t EXPORT PARTITION (2024, 'a') TO TABLE cat.ns.t -- by value",
            Export(table="`t`", clauses=(Clause(to="cat.ns.t", partition="(2024,'a')"),)),
        ),
        (
            "ALTER TABLE main:db.t EXPORT PARTITION -5 TO TABLE cat.ns.t",
            Export(table="main:db.t", clauses=(Clause(to="cat.ns.t", partition="-5"),)),
        ),
        (
            "ALTER TABLE db.t EXPORT PARTITION tuple() TO TABLE c.n.t SETTINGS a = 1, b = 'x''y', c = true, d = -1.5",
            Export(
                table="db.t",
                clauses=(Clause(to="c.n.t", partition="tuple()"),),
                settings=(("a", "1"), ("b", "x'y"), ("c", "1"), ("d", "-1.5")),
            ),
        ),
        ("KILL EXPORT PARTITION WHERE partition_id = '1'", Kill(where="partition_id = '1'")),
        ("KILL EXPORT WHERE a = 1 /* all */ AND b SYNC", Kill(where="a = 1   AND b")),
        (
            "KILL EXPORT WHERE source_table = 't' TEST FORMAT JSON",
            Kill(where="source_table = 't'", test=True, form="JSON"),
        ),
        ("SYSTEM STOP EXPORTS", Switch(stop=True)),
        ("SYSTEM START EXPORTS db.`a b`", Switch(stop=False, table="db.`a b`")),
        ("SELECT 1 FORMAT JSON ;", Select(sql="SELECT 1", form="JSON")),
        ("-- hello\nWITH 1 AS x SELECT x", Select(sql="WITH 1 AS x SELECT x")),
        ("SELECT ';' /* ; */ -- ;", Select(sql="SELECT ';'")),
        ("(SELECT 1) UNION ALL (SELECT 2)", Select(sql="(SELECT 1) UNION ALL (SELECT 2)")),
    ],
)
def test_a_statement_is_read(text: str, meant: object) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", codes.SYNTAX, "the statement is empty"),
        (" ; -- nothing", codes.SYNTAX, "the statement is empty"),
        ("SELECT 1; SELECT 2", codes.SYNTAX, "several"),
        ("SELECT 'open", codes.SYNTAX, "quote is not closed, at character 8"),
        ("SELECT 1 /* open", codes.SYNTAX, "comment is not closed"),
        ("SELECT $a$x$a$", codes.SYNTAX, r"\$"),
        ("SELECT \u2018x\u2019", codes.SYNTAX, "outside of quotes"),
        ("SELECT \0", codes.SYNTAX, "outside of quotes"),
        ("SELECT '" + "x" * (64 << 10) + "'", codes.TOO_LONG, "64 KB"),
        ("INSERT INTO t VALUES (1)", codes.STATEMENT, "INSERT"),
        ("DROP TABLE t", codes.STATEMENT, "DROP"),
        ("SHOW GRANTS", codes.STATEMENT, "SHOW"),
        ("SHOW", codes.STATEMENT, "SHOW"),
        ("DESCRIBE TABLE file('x', CSV)", codes.SYNTAX, "expected the end"),
        ("EXISTS", codes.SYNTAX, "expected a table"),
        ("SHOW TABLES LIKE x", codes.SYNTAX, "expected a pattern"),
        ("KILL QUERY WHERE 1", codes.STATEMENT, "KILL EXPORT"),
        ("KILL EXPORT PARTITION WHERE", codes.SYNTAX, "condition"),
        ("SYSTEM STOP MERGES", codes.STATEMENT, "EXPORTS"),
        ("SYSTEM STOP EXPORTS a.b.c", codes.SYNTAX, "expected the end"),
        ("ALTER TABLE t DELETE WHERE 1", codes.STATEMENT, "can only EXPORT"),
        ("ALTER TABLE t ON CLUSTER c EXPORT PART 'x' TO TABLE y", codes.STATEMENT, "ON CLUSTER"),
        ("ALTER TABLE t EXPORT PART 'x' TO TABLE FUNCTION s3('y')", codes.STATEMENT, "FUNCTION"),
        (
            "ALTER TABLE t EXPORT PART x TO TABLE y",
            codes.SYNTAX,
            "character 27: 'x', expected the name of a part",
        ),
        ("ALTER TABLE t EXPORT PARTITION toYYYYMM(d) TO TABLE y", codes.SYNTAX, "a value, ID or ALL"),
        ("ALTER TABLE t EXPORT PARTITION ID '' TO TABLE y", codes.SYNTAX, "empty"),
        ("ALTER TABLE t EXPORT PART 'x'", codes.SYNTAX, "at the end, expected TO TABLE"),
        ("ALTER TABLE t EXPORT PART 'x' TO TABLE y SETTINGS a", codes.SYNTAX, "expected ="),
    ],
)
def test_anything_else_is_refused_and_says_what_is_wrong(text: str, code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        parse(text)
    assert refused.value.code == code
    assert codes.known(refused.value).status in (400, 413)


words = st.text(min_size=1, max_size=12)
values = st.one_of(st.integers().map(str), words.map(string))


@settings(max_examples=100, deadline=None)
@given(
    words, words, st.lists(words, min_size=1, max_size=3), words, st.dictionaries(words, values, max_size=3)
)
def test_whatever_the_names_an_export_is_read_back(
    database: str, table: str, to: list[str], part: str, given_settings: dict[str, str]
) -> None:
    if "\0" in database + table + part + "".join(to) + "".join(given_settings) + "".join(
        given_settings.values()
    ):
        return
    text = f"ALTER TABLE {name(database)}.{name(table)} EXPORT PART {string(part)} TO TABLE {'.'.join(map(name, to))}"
    if given_settings:
        text += " SETTINGS " + ", ".join(f"{name(key)} = {value}" for key, value in given_settings.items())
    found = parse(text)
    assert isinstance(found, Export)
    assert found.clauses == (Clause(to=".".join(to), part=part),)
    assert [key for key, _ in found.settings] == list(given_settings)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="'`\"\\/*-#; \nSELECTALTERKILLx1(),=.$", max_size=300))
@example("'\\'" * 10_000)
@example("/*" * 10_000)
@example("--" * 10_000)
@example("`" * 20_001)
@example("SELECT " + "(" * 30_000)
@example("''" * 15_000 + "'")
def test_garbage_is_an_error_or_a_statement_and_never_takes_long(text: str) -> None:
    started = time.process_time()
    try:
        parse(text)
    except UsageError as error:
        assert codes.known(error).status < 500
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; ; SELECT ';' ;\n-- end", ["SELECT 1;", " SELECT ';' ;"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        (" ;; ", []),
    ],
)
def test_a_script_is_split_outside_of_quotes_and_comments(script: str, statements: list[str]) -> None:
    assert split(script) == statements
