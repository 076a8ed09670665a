"""Values to JSON and back, by their types: the one codec for everything that is stored or shipped.

Invariants: what an older version wrote is read (a missing field gets its default), what a newer version
added is ignored, and anything else is `Malformed`, with the place. Field names and shapes are those of
the dataclasses: renaming a field of a stored dataclass changes the format.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Decoder = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, types.NoneType})


class Malformed(ValueError):
    """The data is not of the type; says where."""


def encode(value: Any) -> Any:
    """What `json.dumps` takes. Keys of mappings stay as they are, so that numbers sort as numbers."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value):
        return {item.name: encode(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(encode(item) for item in value)
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def decode(kind: type[T], data: Any) -> T:
    """The value that `data`, read by `json.loads`, stands for. `kind` may be any type hint that
    `_decoder` knows: dataclasses, tuples, mappings, enums, times, optional values."""
    return cast(T, _decoder(cast(Any, kind))(data))


@cache
def _decoder(hint: Any) -> _Decoder:
    """Made once for each type: a plan of thousands of parts is read as fast as by hand."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        return _decoder(hint.__supertype__)
    if origin in (Union, types.UnionType):
        return _optional(args)
    if origin is tuple:
        return _sequence(args[0], tuple) if args[-1] is Ellipsis else _row(args)
    if origin in (list, frozenset):
        return _sequence(args[0], origin)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*args)
    if hint is Any or not isinstance(hint, type):
        return lambda data: data
    if is_dataclass(hint):
        return _object(hint)
    if issubclass(hint, Enum):
        return _made_by(hint, hint)
    if hint is datetime:
        return _made_by(datetime.fromisoformat, hint)
    return _plain(hint)


def _optional(args: tuple[Any, ...]) -> _Decoder:
    """One type or None. Of a union of several types the data is taken as it is."""
    rest = [arg for arg in args if arg is not types.NoneType]
    inner = _decoder(rest[0]) if len(rest) == 1 else _decoder(Any)
    return lambda data: None if data is None else inner(data)


def _sequence(of: Any, make: Callable[[Any], Any]) -> _Decoder:
    inner = _decoder(of)

    def read(data: Any) -> Any:
        if not isinstance(data, list | tuple):
            raise Malformed(f"a list was expected, not {_shown(data)}")
        return make([_at(place, inner, item) for place, item in enumerate(data)])

    return read


def _row(kinds: tuple[Any, ...]) -> _Decoder:
    inner = [_decoder(kind) for kind in kinds]

    def read(data: Any) -> Any:
        if not isinstance(data, list | tuple) or len(data) != len(inner):
            raise Malformed(f"a list of {len(inner)} was expected, not {_shown(data)}")
        return tuple(_at(place, inner[place], item) for place, item in enumerate(data))

    return read


def _mapping(key_type: Any, value_type: Any) -> _Decoder:
    inner = _decoder(value_type)
    key_of: Callable[[str], Any] = int if key_type is int else str

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise Malformed(f"an object was expected, not {_shown(data)}")
        try:
            return {key_of(key): _at(key, inner, item) for key, item in data.items()}
        except Malformed:
            raise
        except ValueError as error:
            raise Malformed(str(error)) from None

    return read


def _object(kind: Any) -> _Decoder:
    hints = get_type_hints(kind)
    known = [
        (item.name, _decoder(hints[item.name]), item.default is MISSING and item.default_factory is MISSING)
        for item in fields(kind)
        if item.init
    ]

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise Malformed(f"an object was expected, not {_shown(data)}")
        given = {}
        for name, inner, required in known:
            if name in data:
                item = data[name]
                try:
                    given[name] = inner(item)
                except Malformed as error:
                    if item is None and not required:
                        continue
                    raise Malformed(f"{name}: {error}") from None
            elif required:
                raise Malformed(f"{name} is missing")
        return kind(**given)

    return read


def _made_by(make: Callable[[Any], Any], kind: type) -> _Decoder:
    def read(data: Any) -> Any:
        try:
            return make(data)
        except (ValueError, TypeError):
            raise Malformed(f"invalid {kind.__name__}: {_shown(data)}") from None

    return read


def _plain(kind: type) -> _Decoder:
    wanted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def read(data: Any) -> Any:
        # A bool is an int, and no number; a `Service` is a str, and as good as one.
        if not isinstance(data, wanted) or (isinstance(data, bool) and kind is not bool):
            raise Malformed(f"{kind.__name__} was expected, not {_shown(data)}")
        return data

    return read


def _at(place: object, inner: _Decoder, item: Any) -> Any:
    try:
        return inner(item)
    except Malformed as error:
        raise Malformed(f"[{place}] {error}") from None


def _shown(data: Any) -> str:
    """The type only: what is malformed may be a secret."""
    return "null" if data is None else type(data).__name__
