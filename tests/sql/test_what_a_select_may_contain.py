"""Any SELECT of our tables works, and what does not is refused with a name and a hint."""

import json

import pytest

from calve.clickhouse.embedded.cage import Cage
from calve.clickhouse.embedded.parser import Parser
from calve.model.errors import UsageError
from calve.sql import allowance, codes

pytestmark = pytest.mark.programs

TABLES = ("calve.processes", "system.exports")
ROWS = [
    {
        "id": f"p{number}",
        "rows": number * 10,
        "created_at": f"2026-01-0{number} 00:00:00.000",
        "parts": ["a", "b"],
    }
    for number in (1, 2, 3)
]
# One of each group of functions and of each clause: a new engine that needs a system call the cage denies fails here.
WORK = {
    "SELECT count(), sum(rows), max(created_at) FROM calve.processes": "3\t60\t2026-01-03 00:00:00.000\n",
    "SELECT id FROM processes WHERE rows > 10 ORDER BY rows DESC LIMIT 1": "p3\n",
    "SELECT id FROM processes AS p WHERE p.id IN ('p1', 'p9')": "p1\n",
    "SELECT count() FROM processes WHERE id NOT IN (SELECT id FROM processes WHERE rows = 10)": "2\n",
    "SELECT a.id FROM processes AS a INNER JOIN processes AS b ON a.rows = b.rows * 2": "p2\n",
    "SELECT count() FROM processes AS a LEFT JOIN system.exports AS b ON a.id = b.part_name": "3\n",
    "WITH t AS (SELECT max(rows) AS m FROM processes) SELECT m + 1 FROM t": "31\n",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 4) SELECT sum(n) FROM t": "10\n",
    "SELECT part FROM processes ARRAY JOIN parts AS part WHERE id = 'p1' ORDER BY part": "a\nb\n",
    "SELECT arrayStringConcat(arrayMap(x -> upper(x), parts), '-') FROM processes LIMIT 1": "A-B\n",
    "SELECT row_number() OVER (ORDER BY rows DESC) FROM processes ORDER BY id": "3\n2\n1\n",
    "SELECT sumIf(rows, id != 'p1'), countIf(rows > 10), uniqExactIf(id, 1) FROM processes": "50\t2\t3\n",
    "SELECT quantileExact(0.5)(rows), argMax(id, rows), groupArray(id)[1] FROM processes": "20\tp3\tp1\n",
    "SELECT toYYYYMM(created_at) AS m, count() FROM processes GROUP BY m WITH TOTALS": "202601\t3\n\n0\t3\n",
    "SELECT formatDateTime(toTimeZone(created_at, 'Asia/Tokyo'), '%H') FROM processes LIMIT 1": "09\n",
    "SELECT now() > toDateTime('2020-01-01'), today() - INTERVAL 1 DAY < today()": "1\t1\n",
    "SELECT CASE WHEN rows > 20 THEN 'big' ELSE 'small' END FROM processes ORDER BY id": "small\nsmall\nbig\n",
    "SELECT match(id, '^p[12]$'), replaceRegexpOne(id, 'p', 'q'), rows::String FROM processes LIMIT 1": "1\tq1\t10\n",
    "SELECT * EXCEPT (parts, created_at) FROM processes ORDER BY ALL LIMIT 1": "p1\t10\n",
    "SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 2": "1\n2\n",
    "SELECT DISTINCT length(parts) FROM processes QUALIFY 1": "2\n",
    "SELECT formatReadableSize(1024), bar(1, 0, 2, 2), cityHash64('a') > 0, MD5('a') != ''": "1.00 KiB\t█\t1\t1\n",
    "SELECT JSONExtractInt('{\"a\": 5}', 'a'), map('k', 1)['k'], (1, 'x').2": "5\t1\tx\n",
    "SELECT `count()` FROM (SELECT count() FROM processes)": "3\n",
    "SELECT * FROM system.one": "0\n",
    "SELECT 'it''s \\' \\n (children 9)'": "it\\'s \\' \\n (children 9)\n",
}


@pytest.mark.parametrize("sql", WORK)
def test_a_select_of_our_tables_works(cage: Cage, sql: str) -> None:
    allowed = allowance.allowed(Parser(cage), sql, TABLES)
    rows = {table: [_lines()] if table == "calve.processes" else [] for table in allowed.tables}
    assert cage.run(allowed.sql, "TSV", rows, 20.0).decode() == WORK[sql]


@pytest.mark.parametrize("form", [name for name in allowance.FORMATS.values() if name != "Null"])
def test_every_format_of_the_list_is_written(cage: Cage, form: str) -> None:
    assert cage.run("SELECT id, parts FROM processes", form, {"calve.processes": [_lines()]}, 20.0)


def test_only_the_tables_that_are_read_are_named(cage: Cage) -> None:
    found = allowance.allowed(Parser(cage), "SELECT 1 FROM processes, (SELECT * FROM system.exports)", TABLES)
    assert set(found.tables) == {"calve.processes", "system.exports"}
    assert allowance.allowed(Parser(cage), "SELECT 1", TABLES).tables == ()


@pytest.mark.parametrize(
    ("sql", "code", "says"),
    [
        ("SELECT", codes.SYNTAX, "Syntax error"),
        ("SELECT 1 +", codes.SYNTAX, "position 11"),
        ("SELECT {a:String}", codes.REFUSED, "parameter"),
        ("SELECT * FROM system.tables", codes.TABLE, "system.tables"),
        ("SELECT * FROM `system`.`tables`", codes.TABLE, "system.tables"),
        ("SELECT * FROM calve.nothing", codes.TABLE, "calve.nothing"),
        ("SELECT 1 WHERE 1 IN system.numbers", codes.REFUSED, "system.numbers"),
        ("SELECT in(1, system.numbers)", codes.REFUSED, "system.numbers"),
        ("SELECT * FROM numbers(5)", codes.REFUSED, "numbers()"),
        ("SELECT * FROM merge('system', '.*')", codes.REFUSED, "merge()"),
        ("SELECT * FROM generateRandom()", codes.REFUSED, "generateRandom()"),
        ("SELECT sleep(3)", codes.FUNCTION, "sleep()"),
        ("SELECT hostName()", codes.FUNCTION, "hostName()"),
        ("SELECT getSetting('readonly')", codes.FUNCTION, "getSetting()"),
        ("SELECT sumState(1)", codes.FUNCTION, "sumState()"),
        ("SELECT 1 SETTINGS max_threads = 4", codes.REFUSED, "SETTINGS"),
        ("(SELECT 1 SETTINGS readonly = 0) UNION ALL SELECT 2", codes.REFUSED, "SETTINGS"),
        ("SELECT * FROM (SELECT 1 SETTINGS readonly = 0)", codes.REFUSED, "SETTINGS"),
        ("SELECT 1 FORMAT TSV", codes.REFUSED, "FORMAT"),
        ("SELECT * FROM processes SAMPLE 0.1", codes.REFUSED, "SampleRatio"),
        *(
            ("SELECT " + "-(" * depth + "x" + ")" * depth, codes.REFUSED, "deep")
            for depth in (150, 500, 5000)
        ),
        ("SELECT 1 AS `a (children 3)`", codes.REFUSED, "name"),
        ("SELECT 1 AS `a\\nb`", codes.REFUSED, "name"),
    ],
)
def test_what_is_not_on_the_list_is_refused_by_its_name(cage: Cage, sql: str, code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("(", r"\(").replace(")", r"\)")) as refused:
        allowance.allowed(Parser(cage), sql, TABLES)
    assert refused.value.code == code


def test_a_format_is_named_in_any_case_and_others_are_refused() -> None:
    assert allowance.format_named("jsoneachrow") == "JSONEachRow"
    with pytest.raises(UsageError, match="Template"):
        allowance.format_named("Template")


def _lines() -> bytes:
    return "\n".join(json.dumps(row) for row in ROWS).encode()
