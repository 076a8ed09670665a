"""Hive-style folders of partition values, for readers that take partitions from paths.

A value can hold anything (D10): everything but letters, digits and `-._~` is
percent-encoded, so that no value can leave its folder, and `name=` stands before each, so that
none is `.` or `..`. NULL has Hive's own word. The column is in the file as well, whole.
"""

import hashlib
from urllib.parse import quote

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_BYTES = 200  # file systems take 255 in a name


def hive_path(spec: PartitionSpec, schema: Schema, record: Record) -> str:
    types = [field.field_type for field in spec.partition_type(schema).fields]
    return "/".join(
        f"{_escaped(field.name)}={_value(field.transform.to_human_string(kind, value), value)}"
        for field, kind, value in zip(spec.fields, types, _values(record, len(types)), strict=True)
    )


def _values(record: Record, count: int) -> list[object]:
    return [record[place] for place in range(count)]


def _value(text: str, value: object) -> str:
    return NULL if value is None else _escaped(text)


def _escaped(text: str) -> str:
    escaped = quote(text, safe="")
    if len(escaped) <= _MOST_BYTES:
        return escaped
    # Cut, with a hash to keep it unique: paths are never parsed, so the value need not be readable.
    return f"{escaped[: _MOST_BYTES - 33]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
