"""Statements made by a grammar, right and wrong: an answer or an error with a code, never a 500 and never a hang."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calve.http.clickhouse import Asked, answer
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


others = st.lists(
    st.sampled_from(
        [
            "ALTER",
            "TABLE",
            "db.t",
            "EXPORT",
            "PART",
            "PARTITION",
            "ID",
            "ALL",
            "TO",
            "KILL",
            "WHERE",
            "SYSTEM",
            "STOP",
            "START",
            "EXPORTS",
            "SETTINGS",
            "FORMAT",
            "TSV",
            "=",
            ",",
            ";",
            "(",
            ")",
            "'0'",
            "'x'",
            "1",
            "lake.ns.fuzz",
            "test",
            "SYNC",
            "TEST",
        ]
    ),
    max_size=14,
).map(" ".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(selects(), selects().map(lambda text: f"KILL EXPORT WHERE {text[7:]} TEST"), others))
def test_a_statement_has_an_answer_or_an_error_with_a_code(front: Front, text: str) -> None:
    started = time.monotonic()
    method = "POST" if text.startswith("KILL") else "GET"
    asked = Asked(method=method, parameters=[("query", text)], headers={})
    answered = answer(front.sql, OPERATOR, asked)
    assert answered.status < 500, answered.body
    assert (answered.status == 200) == ("X-ClickHouse-Exception-Code" not in answered.headers)
    assert time.monotonic() - started < 30
