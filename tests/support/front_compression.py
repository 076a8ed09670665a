"""Content encodings of HTTP bodies: gzip, deflate, zstd, lz4, br. zstd, lz4 and br by pyarrow."""

import zlib
from collections.abc import Iterator

_ARROW = {"zstd": "zstd", "lz4": "lz4", "br": "brotli"}
_ZLIB = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
KNOWN = ("zstd", "lz4", "gzip", "br", "deflate")


def choose(accepted: str) -> str:
    """The first encoding of an Accept-Encoding header that we have; "" for none."""
    for word in accepted.split(","):
        name = word.partition(";")[0].strip().lower()
        if name in KNOWN:
            return name
    return ""


def decompressed(data: bytes, encoding: str) -> bytes:
    if not encoding or encoding == "identity":
        return data
    if encoding in _ZLIB:
        return zlib.decompress(data, _ZLIB[encoding])
    if encoding not in _ARROW:
        raise ValueError(f"Unknown compression method: {encoding}")
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), _ARROW[encoding]) as stream:
        return bytes(stream.read())


def compressed(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The same pieces, encoded. What the encoder holds back comes with a later one."""
    if not encoding:
        yield from pieces
    elif encoding in _ZLIB:
        packer = zlib.compressobj(wbits=_ZLIB[encoding])
        for piece in pieces:
            yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield packer.flush()
    else:
        yield from _by_arrow(pieces, _ARROW[encoding])


class _Sink:
    """Collects what an encoder writes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _by_arrow(pieces: Iterator[bytes], codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    sink = _Sink()
    stream = pa.CompressedOutputStream(pa.PythonFile(sink, "w"), codec)
    for piece in pieces:
        stream.write(piece)
        stream.flush()
        yield sink.take()
    stream.close()
    yield sink.take()
