"""The words between a visit and its host process: length, then bytes."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Self

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Request:
    sql: str
    settings: Mapping[str, str]

    def pack(self) -> bytes:
        return json.dumps({"sql": self.sql, "settings": dict(self.settings)}).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(**json.loads(data))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rows as the engine wrote them, or its error's message."""

    ok: bool
    data: bytes

    def pack(self) -> bytes:
        return (b"+" if self.ok else b"-") + self.data

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(ok=data[:1] == b"+", data=data[1:])


def header(data: bytes) -> bytes:
    return _LENGTH.pack(len(data))


def length_of(head: bytes) -> int:
    size: int = _LENGTH.unpack(head)[0]
    return size


HEADER_BYTES = _LENGTH.size


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(header(data))
    stream.write(data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream, also in the middle of a frame."""
    head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    size = length_of(head)
    data = stream.read(size)
    return data if len(data) == size else None
