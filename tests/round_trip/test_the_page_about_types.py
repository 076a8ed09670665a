"""`docs/types.md` says what the code does, of every type that the engine has."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.schema import Schema

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.export.choices import Choices
from calve.export.columns import map_columns
from calve.export.iceberg_types import CASTABLE
from calve.export.spec import derive_spec, parse_partition_by

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "types.md").read_text()
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    default_kind: str = ""


def _rows(heading: str) -> Iterator[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)


TYPES = [(kind, row[1]) for row in _rows("Types") for kind in _CODE.findall(row[0])]
KEYS = [(row[0], row[1]) for row in _rows("Partition keys")]


@pytest.mark.parametrize(("kind", "becomes"), TYPES, ids=[kind for kind, _ in TYPES])
def test_a_type_becomes_what_the_page_says(kind: str, becomes: str) -> None:
    mapping = map_columns([Column("c", kind)], Choices())
    if becomes == "refused":
        [refusal] = mapping.refusals
        assert refusal.reason and refusal.hint
        return
    assert not mapping.refusals, mapping.refusals
    [field] = mapping.schema.fields
    shown = re.sub(r"\b\d+: ", "", str(field.field_type))
    assert f"`{shown}`" == re.sub(r"\b\d+: ", "", becomes)
    may_be_null = kind.startswith(("Nullable(", "LowCardinality(Nullable(", "Variant(", "Dynamic"))
    assert field.required is not may_be_null


def test_the_page_has_every_type_of_the_engine(tmp_path: Path) -> None:
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        found = session.rows("SELECT name FROM system.data_type_families WHERE alias_to = ''")
    # other ways to write Enum8, Enum16 and DateTime, which a table never shows
    names = {row["name"] for row in found} - {"Enum", "DateTime32"}
    assert len(names) > 60
    assert {name for name in names if not re.search(rf"\b{name}\b", PAGE)} == set()


def test_the_page_has_every_type_that_a_column_can_be_cast_to() -> None:
    sentence = PAGE.split("`--cast column=type` takes")[1].split(". A value")[0]
    assert set(_CODE.findall(sentence)) == set(CASTABLE)


def test_partition_keys_become_what_the_page_says() -> None:
    schema = map_columns([Column("c", "DateTime")], Choices()).schema
    numbers = map_columns([Column("c", "Int64")], Choices()).schema
    checked = 0
    for sources, targets in KEYS[:6]:
        wanted = [text for text in _CODE.findall(targets) if "(" in text] or ["identity(c)"]
        for place, source in enumerate(_CODE.findall(sources)):
            of: Schema = numbers if "iceberg" in source or source == "c" else schema
            derived = derive_spec(source, {"c": "c"}, of).spec
            asked = parse_partition_by(wanted[place if len(wanted) > 1 else 0], of)
            assert [field.transform for field in derived.fields] == [
                field.transform for field in asked.fields
            ]
            checked += 1
    assert checked == 18
