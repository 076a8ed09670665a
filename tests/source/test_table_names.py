import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calve.clickhouse.sql.tokens import TableName, parse
from calve.model.errors import UsageError


@pytest.mark.parametrize(
    ("text", "source", "database", "table"),
    [
        ("db.events", None, "db", "events"),
        ("main:db.events", "main", "db", "events"),
        ("db.`my.table`", None, "db", "my.table"),
        ("main:`a b`.`c``d`", "main", "a b", "c`d"),
        ("`my:src`:db.t", "my:src", "db", "t"),
        ("db.`x\\`y`", None, "db", "x`y"),
        ("db-1.ünï", None, "db-1", "ünï"),
    ],
)
def test_names_are_read_as_people_write_them(
    text: str, source: str | None, database: str, table: str
) -> None:
    assert parse(text) == TableName(source=source, database=database, table=table)


@pytest.mark.parametrize(
    "text",
    ["", "events", "a.b.c", ".t", "db.", "db.`open", "a:b:c.d", "db . t", "db.t; DROP TABLE x", "db.``"],
)
def test_what_is_no_name_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    assert "db.table" in caught.value.hint


_text = st.text(min_size=1, max_size=20)


@example(source=None, database="''", table='""')
@given(source=st.none() | _text, database=_text, table=_text)
def test_what_is_shown_is_read_back(source: str | None, database: str, table: str) -> None:
    name = TableName(source=source, database=database, table=table)
    assert parse(str(name)) == name
