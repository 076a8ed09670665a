"""The SQL that makes, of a value as ClickHouse reads it from the lake, the value that the table holds: exact, or an error.

Never a default and never another value. The engine's own casts are not enough: `accurateCast` checks integers, but cuts
decimals, and turns a Date32 of 1900 into a Date of 2079 (tried). So what could change a value is converted back and
compared. A column that is read anyway is compared in the view's WHERE: inside of the column's own expression
the comparison would keep a condition on it from pruning files (tried: 3 of 3 files read, else 1 of 3).
"""

from dataclasses import dataclass, replace
from functools import partial

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import string

_POINT = types.Tuple((types.Element(None, types.Simple("Float64")),) * 2)
_RING = types.Array(_POINT)
_GEO: dict[str, types.Type] = {
    "Point": _POINT,
    "Ring": _RING,
    "LineString": _RING,
    "MultiPoint": _RING,
    "Polygon": types.Array(_RING),
    "MultiLineString": types.Array(_RING),
    "MultiPolygon": types.Array(types.Array(_RING)),
}
_STRING = types.Simple("String")
CHANGED = "calve: a value of the lake does not fit the column of the table"


class NotAlignedError(Exception):
    """No value of the one type is one of the other; the caller names the column."""


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """`sql` is of the table's type. True `wrong`: the value cannot be had; "" where the engine itself says so."""

    sql: str
    wrong: str = ""

    @property
    def guarded(self) -> str:
        """One expression: the value, or an error."""
        return f"if({throw(self.wrong)}, {self.sql}, {self.sql})" if self.wrong else self.sql


def throw(wrong: str) -> str:
    """0, or an error where the condition holds. NULL holds nothing."""
    return f"throwIf(ifNull({wrong}, 0), {string(CHANGED)})"


def zoned(kind: types.Type, zone: str) -> types.Type:
    """With the server's zone written where a type has none. A cast to such a type keeps the zone of the lake instead, and
    still calls itself DateTime (tried)."""
    inner = partial(zoned, zone=zone)
    match kind:
        case types.DateTime(None):
            return types.DateTime(zone)
        case types.DateTime64(precision, None):
            return types.DateTime64(precision, zone)
        case types.Nullable() | types.LowCardinality() | types.Array():
            return replace(kind, inner=inner(kind.inner))
        case types.Map():
            return types.Map(inner(kind.key), inner(kind.value))
        case types.Tuple() | types.Nested():
            return replace(
                kind, elements=tuple(types.Element(one.name, inner(one.type)) for one in kind.elements)
            )
        case _:
            return kind


def align(hot: types.Type, cold: types.Type, value: str, depth: int = 0) -> Aligned:
    """NotAlignedError where there is no exact way."""
    kind, found = _stored(hot), types.strip_wrappers(cold)
    made = _value(kind, found, value, depth, nullable=types.is_nullable(cold))
    # A NULL that the table's type does not have is an error of the cast (tried: code 349).
    same = made.sql == value and str(hot) == str(cold)
    return made if same else Aligned(sql=f"CAST({made.sql}, {string(str(hot))})", wrong=made.wrong)


def _stored(hot: types.Type) -> types.Type:
    kind = types.strip_wrappers(hot)
    if isinstance(kind, types.Simple) and kind.name in _GEO:
        return _GEO[kind.name]
    return types.Array(types.Tuple(kind.elements)) if isinstance(kind, types.Nested) else kind


def _value(kind: types.Type, found: types.Type, value: str, depth: int, *, nullable: bool) -> Aligned:
    match kind, found:
        case types.Array(inner), types.Array(of):
            each = f"e{depth}"
            return Aligned(sql=_mapped(each, align(inner, of, each, depth + 1), value))
        case types.Map(), types.Map():
            return _map(kind, found, value, depth)
        case types.Tuple(), types.Tuple():
            return _tuple(kind, found, value, depth, nullable=nullable)
        case _ if kind == found:
            return Aligned(sql=value)
        case _:
            return _scalar(kind, found, value, nullable=nullable)


def _mapped(each: str, element: Aligned, array: str) -> str:
    return array if element.guarded == each else f"arrayMap({each} -> {element.guarded}, {array})"


def _map(kind: types.Map, found: types.Map, value: str, depth: int) -> Aligned:
    key = align(kind.key, found.key, f"k{depth}", depth + 1)
    inner = align(kind.value, found.value, f"v{depth}", depth + 1)
    keys = _mapped(f"k{depth}", key, f"mapKeys({value})")
    values = _mapped(f"v{depth}", inner, f"mapValues({value})")
    return Aligned(sql=f"CAST(({keys}, {values}), {string(str(kind))})")


def _tuple(kind: types.Tuple, found: types.Tuple, value: str, depth: int, *, nullable: bool) -> Aligned:
    """By name; an export gives unnamed elements `_1`, `_2`, and takes dots out of names."""
    if nullable:
        raise NotAlignedError(f"{found} that may be NULL as {kind}")
    places = {element.name or f"_{place}": place for place, element in enumerate(found.elements, start=1)}
    wanted = [(one.name or f"_{place}").replace(".", "_") for place, one in enumerate(kind.elements, start=1)]
    if set(places) != set(wanted):
        raise NotAlignedError(f"{found} as {kind}")
    fields = [
        align(
            one.type, found.elements[places[name] - 1].type, f"tupleElement({value}, {places[name]})", depth
        ).guarded
        for name, one in zip(wanted, kind.elements, strict=True)
    ]
    return Aligned(sql=f"tuple({', '.join(fields)})")


def _scalar(kind: types.Type, found: types.Type, value: str, *, nullable: bool) -> Aligned:
    match kind, found:
        case types.Simple(name), _ if name in types.INTEGERS and _is_number(found):
            return _accurate(name, value, nullable=nullable)
        case types.Simple("Bool"), _ if found in (types.Simple("Int32"), types.Simple("UInt8")):
            made = f"CAST({value}, {_text(kind, nullable)})"
            return _back(made, value, f"CAST({{}}, {_text(found, nullable)})")  # 2 is true, too
        case types.Simple("Float32" | "Float64" as name), types.Simple(given) if given in types.FLOATS:
            return _accurate(name, value, nullable=nullable)
        case types.Simple("BFloat16"), types.Simple("Float32"):
            made = f"toBFloat16({value})"
            return Aligned(sql=made, wrong=f"(toFloat32({made}) != {value} AND NOT isNaN({value}))")
        case types.Decimal(_, scale), types.Decimal(_, given):
            return _back(f"CAST({value}, {_text(kind, nullable)})", value) if scale < given else _cast(
                kind, value, nullable=nullable
            )  # fmt: skip
        case types.Simple("Date"), types.Simple("Date32"):
            return _back(f"toDate({value})", value, "toDate32({})")
        case types.DateTime(zone), types.DateTime64(6):
            given_zone = f", {string(zone)}" if zone else ""
            return _back(f"toDateTime({value}{given_zone})", value, "toDateTime64({}, 6, 'UTC')")
        case types.DateTime64(precision, zone), types.DateTime64(6):
            given_zone = f", {string(zone)}" if zone else ""
            made = f"toDateTime64({value}, {precision}{given_zone})"
            return _back(made, value, "toDateTime64({}, 6, 'UTC')") if precision < 6 else Aligned(sql=made)
        case types.Interval(), types.Simple("Int64"):
            return _cast(kind, value, nullable=nullable)
        case _, types.Simple("String"):
            return _text_as(kind, value, nullable=nullable)
        case types.Simple("String"), types.FixedString():
            return Aligned(sql=f"concat({value}, '')")  # a cast drops the zero bytes at the end
        case _:
            raise NotAlignedError(f"{found} as {kind}")


def _text_as(kind: types.Type, value: str, *, nullable: bool) -> Aligned:
    """What an export writes as text, read again."""
    match kind:
        case types.FixedString() | types.Json() | types.Simple("UUID" | "IPv4" | "IPv6"):
            return _cast(kind, value, nullable=nullable)  # each is an error for what is none
        case types.Simple("Time") | types.Time64() | types.Decimal() | types.Enum():
            return _back(_cast(kind, value, nullable=nullable).sql, value, "toString({})")
        case types.Simple(name) if name in types.INTEGERS:
            return _back(
                _cast(kind, value, nullable=nullable).sql, value, "toString({})"
            )  # too large ones wrap
        case _:
            raise NotAlignedError(f"text as {kind}")


def _accurate(name: str, value: str, *, nullable: bool) -> Aligned:
    return Aligned(sql=f"accurateCast({value}, {_text(types.Simple(name), nullable)})")


def _cast(kind: types.Type, value: str, *, nullable: bool) -> Aligned:
    return Aligned(sql=f"CAST({value}, {_text(kind, nullable)})")


def _back(made: str, value: str, back: str = "{}") -> Aligned:
    """With the comparison of what comes back."""
    return Aligned(sql=made, wrong=f"{back.format(made)} != {value}")


def _text(kind: types.Type, nullable: bool) -> str:
    return string(f"Nullable({kind})" if nullable else str(kind))


def _is_number(kind: types.Type) -> bool:
    if isinstance(kind, types.Decimal):
        return kind.scale == 0  # of others the engine's check cuts what follows the point
    return isinstance(kind, types.Simple) and kind.name in types.INTEGERS | types.FLOATS | {"Bool"}
