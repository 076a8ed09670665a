"""A part's `checksums.txt`: every file that ClickHouse wrote into the part, with its size.

Disks in object storage need it: a file without a byte has no object there, so no listing of objects names it.
"""

import struct
from collections.abc import Iterator

from calve.model.errors import PermanentError

_HEADER = b"checksums format version: "
_BLOCK = struct.Struct("<16xBII")  # a hash, the codec, bytes with this header, bytes of the content
_AFTER_HASH = 9  # of the header: what the compressed size counts
_NONE, _CODECS = 0x02, {0x82: "lz4_raw", 0x90: "zstd"}
_HASH_BYTES = 16
_MOST_BYTES = 1 << 30  # of one block


def sizes(data: bytes) -> dict[str, int]:
    """Bytes by name, those of a projection as one entry. PermanentError for what is no such file."""
    head, _, body = data.partition(b"\n")
    version = head.removeprefix(_HEADER)
    if not head.startswith(_HEADER) or version not in (b"3", b"4"):
        raise _unknown(f"it begins with {head[:40]!r}")
    try:
        return dict(_entries(_content(body) if version == b"4" else body))
    except (IndexError, struct.error, OSError, ValueError) as error:
        raise _unknown(str(error) or type(error).__name__) from None


def _content(body: bytes) -> bytes:
    from pyarrow import Codec

    found, at = [], 0
    while at < len(body):
        method, compressed, size = _BLOCK.unpack_from(body, at)
        start, at = at + _BLOCK.size, at + _BLOCK.size - _AFTER_HASH + compressed
        if compressed <= _AFTER_HASH or at > len(body) or size > _MOST_BYTES:
            raise ValueError("a block of it is cut short")
        if method == _NONE:
            found.append(body[start:at])
        elif method in _CODECS:
            found.append(Codec(_CODECS[method]).decompress(body[start:at], size, asbytes=True))
        else:
            raise ValueError(f"codec {method:#x} is not known")
    return b"".join(found)


def _entries(data: bytes) -> Iterator[tuple[str, int]]:
    count, at = _number(data, 0)
    for _ in range(count):
        length, at = _number(data, at)
        name, at = data[at : at + length], at + length
        size, at = _number(data, at)
        at += _HASH_BYTES
        if data[at]:  # of what it decompresses to: a size and a hash
            _, at = _number(data, at + 1)
            at += _HASH_BYTES
        else:
            at += 1
        if at > len(data):
            raise ValueError("it is cut short")
        yield name.decode("utf-8", "surrogateescape"), size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    found = shift = 0
    while True:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return found, at


def _unknown(why: str) -> PermanentError:
    return PermanentError(
        f"a part's checksums.txt cannot be read: {why}",
        code="part_unreadable",
        hint="run CHECK TABLE at the source",
    )
