import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.clickhouse.embedded.source import EmbeddedSession
from calve.clickhouse.sql import types
from calve.clickhouse.sql.types import Element, Other, parse

_KNOWN = {
    "UInt256": types.Simple("UInt256"),
    "BFloat16": types.Simple("BFloat16"),
    "Decimal(20, 3)": types.Decimal(20, 3),
    "FixedString(16)": types.FixedString(16),
    "DateTime('Asia/Tokyo')": types.DateTime("Asia/Tokyo"),
    "DateTime64(6)": types.DateTime64(6),
    "DateTime64(9, 'UTC')": types.DateTime64(9, "UTC"),
    "Time": types.Simple("Time"),
    "Time64(3)": types.Time64(3),
    "Enum8('b\\'c, )' = -2, 'a' = 1)": types.Enum(8, (("b'c, )", -2), ("a", 1))),
    "LowCardinality(Nullable(String))": types.LowCardinality(types.Nullable(types.Simple("String"))),
    "Map(String, Array(UInt8))": types.Map(types.Simple("String"), types.Array(types.Simple("UInt8"))),
    "Tuple(UInt8, String)": types.Tuple(
        (Element(None, types.Simple("UInt8")), Element(None, types.Simple("String")))
    ),
    "Tuple(a UInt8, `b c` Tuple(x Date))": types.Tuple(
        (
            Element("a", types.Simple("UInt8")),
            Element("b c", types.Tuple((Element("x", types.Simple("Date")),))),
        )
    ),
    "Nested(a UInt8, b String)": types.Nested(
        (Element("a", types.Simple("UInt8")), Element("b", types.Simple("String")))
    ),
    "SimpleAggregateFunction(groupArrayArray(10), Array(String))": types.SimpleAggregateFunction(
        "groupArrayArray(10)", types.Array(types.Simple("String"))
    ),
    "AggregateFunction(quantiles(0.5, 0.9), Float64)": types.AggregateFunction(
        ("quantiles(0.5, 0.9)", "Float64")
    ),
    "Variant(String, UInt64)": types.Variant((types.Simple("String"), types.Simple("UInt64"))),
    "Dynamic(max_types=10)": types.Dynamic(("max_types=10",)),
    "Dynamic": types.Dynamic(),
    "JSON": types.Json(),
    "JSON(max_dynamic_paths=8, `a.b` UInt32, SKIP c, SKIP REGEXP 'x, y')": types.Json(
        ("max_dynamic_paths=8", "`a.b` UInt32", "SKIP c", "SKIP REGEXP 'x, y'")
    ),
    "Object('json')": types.Object(("'json'",)),
    "IntervalDay": types.Interval("Day"),
    "MultiPolygon": types.Simple("MultiPolygon"),
    "QBit(Float32, 128)": types.QBit(types.Simple("Float32"), 128),
    "Nothing": types.Simple("Nothing"),
}


@pytest.mark.parametrize("text", _KNOWN)
def test_every_type_is_parsed_and_written_as_it_was(text: str) -> None:
    assert parse(text) == _KNOWN[text]
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Decimal64(4)", types.Decimal(18, 4)),
        ("Decimal256(4)", types.Decimal(76, 4)),
        ("Enum('a', 'b')", types.Enum(8, (("a", 1), ("b", 2)))),
        ("Enum('a' = 1000)", types.Enum(16, (("a", 1000),))),
        ("DateTime64", types.DateTime64(3)),
    ],
)
def test_other_spellings_mean_the_same(text: str, meant: types.Type) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text", ["", "Hologram", "Array(Hologram(3))", "Array(", "Map(String)", "UInt8)", "Nested(UInt8)", "'x'"]
)
def test_an_unknown_type_keeps_its_text(text: str) -> None:
    assert parse(text) == Other(text)


_simple = st.sampled_from(sorted(types.SIMPLE)).map(types.Simple)
_words = st.text(max_size=8)


def _composed(inner: st.SearchStrategy[types.Type]) -> st.SearchStrategy[types.Type]:
    elements = st.lists(st.tuples(st.text(min_size=1, max_size=6), inner), min_size=1, max_size=3)
    return st.one_of(
        inner.map(types.Array),
        inner.map(types.Nullable),
        st.builds(types.Map, inner, inner),
        elements.map(lambda found: types.Tuple(tuple(Element(name, kind) for name, kind in found))),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda found: types.Tuple(tuple(Element(None, kind) for kind in found))
        ),
        st.lists(st.tuples(_words, st.integers(-128, 127)), min_size=1, max_size=3).map(
            lambda found: types.Enum(8, tuple(found))
        ),
    )


@given(st.recursive(_simple, _composed, max_leaves=8))
def test_what_is_written_is_parsed_back(kind: types.Type) -> None:
    assert parse(str(kind)) == kind


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse(text)


def test_the_engine_understands_what_is_written_and_writes_what_is_understood(
    session: EmbeddedSession,
) -> None:
    refused = {"Nothing", "Object('json')", "IntervalDay", "Nested(a UInt8, b String)"}
    texts = [text for text in _KNOWN if text not in refused]
    columns = ", ".join(f"c{number} {parse(text)}" for number, text in enumerate(texts))
    session.execute(
        f"CREATE TABLE db.every_type ({columns}) ENGINE = MergeTree ORDER BY tuple() ",
        settings={"allow_suspicious_low_cardinality_types": "1", "allow_suspicious_fixed_string_types": "1"},
    )
    shown = session.rows("SELECT type FROM system.columns WHERE table = 'every_type' ORDER BY position")
    assert [parse(row["type"]) for row in shown] == [parse(text) for text in texts]
