"""Statements made by a grammar, right and wrong: an answer or an error with a code, never a 500 and never a hang."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calve.http.clickhouse import StatementRequest, answer
from calve.sql.tables import TABLES
from sql.front import OPERATOR, Front

pytestmark = pytest.mark.programs

_NAMES = sorted({column for table in TABLES.values() for column, _ in table.schema.columns})
literals = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.text(max_size=5).map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"),
    st.sampled_from(
        ["NULL", "true", "[]", "[1, 2]", "(1, 'a')", "map('a', 1)", "now()", "INTERVAL 1 DAY", "*"]
    ),
)
names = st.sampled_from([*_NAMES, "x", "calve.processes.id", "t.*", "`a b`", '"', "COLUMNS('i')"])
functions = st.sampled_from(
    [
        "plus",
        "minus",
        "divide",
        "modulo",
        "equals",
        "and",
        "or",
        "not",
        "in",
        "lower",
        "length",
        "concat",
        "substring",
        "toString",
        "toUInt64",
        "toDate",
        "CAST",
        "if",
        "arrayMap",
        "count",
        "sum",
        "max",
        "groupArray",
        "uniq",
        "quantile",
        "row_number",
        "file",
        "url",
        "sleep",
        "dictGet",
        "toIntervalDay",
        "range",
        "repeat",
        "tupleElement",
        "formatDateTime",
        "JSONExtractString",
        "match",
        "replaceRegexpAll",
        "throwIf",
        "argMax",
        "sumIf",
        "exists",
    ]
)
expressions = st.recursive(
    st.one_of(literals, names),
    lambda inner: st.one_of(
        st.tuples(functions, st.lists(inner, max_size=3)).map(
            lambda call: f"{call[0]}({', '.join(call[1])})"
        ),
        st.tuples(
            inner, st.sampled_from(["+", "=", "IN", "AND", "||", "::", "->", ".", "?", "BETWEEN"]), inner
        ).map(" ".join),
        st.tuples(inner, st.sampled_from(["a", "id", "`x (children 9`", "`\\n`"])).map(
            lambda pair: f"({pair[0]} AS {pair[1]})"
        ),
    ),
    max_leaves=6,
)
tables = st.sampled_from(
    [*TABLES, "processes", "system.one", "system.tables", "numbers(3)", "(SELECT 1)", "t", "a.b.c"]
)


@st.composite
def selects(draw: st.DrawFn) -> str:
    text = f"SELECT {', '.join(draw(st.lists(expressions, min_size=1, max_size=3)))}"
    if draw(st.booleans()):
        text += f" FROM {draw(tables)}"
    for clause in ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "SETTINGS", "INTO OUTFILE"):
        if draw(st.integers(0, 5)) == 0:
            text += f" {clause} {draw(expressions)}"
    if draw(st.integers(0, 5)) == 0:
        text = f"WITH {draw(expressions)} AS t {text}"
    if draw(st.integers(0, 5)) == 0:
        text += f" UNION ALL {draw(selects())}"
    return text


# What changes something is bound to a destination, or a table, that no other test looks at.
settings_of_an_export = st.sampled_from(
    [
        "export_merge_tree_partition_force_export = 1",
        "export_merge_tree_part_file_already_exists_policy = 'error'",
        "export_merge_tree_part_max_bytes_per_file = 1e30",
        "export_merge_tree_partition_max_retries = 3",
        "output_format_parquet_compression_method = 'nope'",
        "nope = 1",
        "max_threads = (",
    ]
)
chosen = st.one_of(
    st.sampled_from(
        ["PARTITION ID '0'", "PARTITION ALL", "PARTITION tuple()", "PART '0_1_1_0'", "PARTITION"]
    ),
    literals.map("PARTITION {}".format),
    literals.map("PARTITION ID {}".format),
    literals.map("PART {}".format),
    st.tuples(literals, literals).map(lambda pair: f"PARTITION ({pair[0]}, {pair[1]})"),
)
clauses = st.tuples(chosen, st.sampled_from(["TABLE lake.ns.fuzz", "TABLE lake.`ns.fuzz`", "TABLE nope.a.b", "TABLE FUNCTION s3('x')", "x"]))  # fmt: skip
alters = st.builds(
    lambda table, parts, given: (
        f"ALTER TABLE {table} {', '.join(f'EXPORT {one} TO {to}' for one, to in parts)}"
        + (f" SETTINGS {', '.join(given)}" if given else "")
    ),
    st.sampled_from(["db.t", "main:db.t", "`db`.`t`", "nope.t", "t", "nope:db.t", "a.b.c", "'db.t'"]),
    st.lists(clauses, min_size=1, max_size=3),
    st.lists(settings_of_an_export, max_size=2),
)
kills = st.builds(
    "KILL EXPORT {}WHERE destination_table = 'ns.fuzz' AND ({}) {}".format,
    st.sampled_from(["", "PARTITION ", "PART "]),
    expressions,
    st.sampled_from(["", "SYNC", "ASYNC", "TEST", "FORMAT JSON", "FORMAT Nope", "TEST FORMAT TSV", "x"]),
)
systems = st.builds(
    "SYSTEM {} {}".format,
    st.sampled_from(["STOP EXPORTS", "START EXPORTS", "STOP", "RELOAD CONFIG", "STOP MERGES"]),
    st.sampled_from(["db.fuzz", "main:db.fuzz", "nope:db.fuzz", "`db`.`fu zz`", "a.b.c", "'db.fuzz'"]),
)
looks = st.builds(
    "{} {}".format,
    st.sampled_from(
        [
            "SHOW TABLES",
            "SHOW TABLES FROM",
            "SHOW DATABASES LIKE",
            "DESC",
            "DESCRIBE TABLE",
            "EXISTS",
            "EXISTS DATABASE",
            "SHOW",
        ]
    ),
    st.one_of(literals, names, tables),
)
_WORDS = """
ALTER TABLE db.t EXPORT PART PARTITION ID ALL TO KILL WHERE SYSTEM STOP START EXPORTS SETTINGS FORMAT TSV = , ; ( ) '0'
'x' 1 lake.ns.fuzz test SYNC TEST SHOW TABLES DESCRIBE EXISTS
"""
salad = (
    st.lists(st.sampled_from(_WORDS.split()), max_size=14)
    .map(" ".join)
    .filter(
        lambda text: "EXPORTS" not in text.split()[-1:]  # alone it would stop those of every table
    )
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(selects(), alters, kills, systems, looks, salad), st.sampled_from(["POST", "GET"]))
def test_a_statement_has_an_answer_or_an_error_with_a_code(front: Front, text: str, method: str) -> None:
    started = time.monotonic()
    answered = answer(
        front.sql, OPERATOR, StatementRequest(method=method, parameters=[("query", text)], headers={})
    )
    assert answered.status < 500, (text, answered.body)
    assert (answered.status == 200) == ("X-ClickHouse-Exception-Code" not in answered.headers)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    "text",
    [
        # Not `fuzz`: what was made there before, by chance, may hold the partition.
        "ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.right",
        "KILL EXPORT PARTITION WHERE destination_table = 'ns.fuzz' AND (1) TEST",
        "SYSTEM STOP EXPORTS db.fuzz",
        "SHOW TABLES FROM system",
        "SELECT count() FROM calve.processes",
    ],
)
def test_the_grammar_makes_statements_that_are_right(front: Front, text: str) -> None:
    """One of each sort that it can make is carried out: the rest is not all refused at its first word."""
    assert (
        answer(
            front.sql, OPERATOR, StatementRequest(method="POST", parameters=[("query", text)], headers={})
        ).status
        == 200
    )
