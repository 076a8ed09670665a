"""Pictures of the pages: small, in both themes, and what makes them small keeps what they show."""

import re
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from screenshots import decoded, smaller  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def test_every_picture_is_small_and_shown_in_both_themes() -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text() + (ROOT / "README.md").read_text()
    there = {path.name for path in IMAGES.iterdir()}
    assert there == set(re.findall(r"images/([\w-]+\.png)", text))
    names = {name.rsplit("-", 1)[0] for name in there}
    assert there == {f"{name}-{theme}.png" for name in names for theme in ("light", "dark")}
    assert {
        path.name: path.stat().st_size for path in IMAGES.iterdir() if path.stat().st_size > 150_000
    } == {}


def png(rows: list[bytes], width: int) -> bytes:
    """With a filter of its own for each row."""
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def test_every_filter_of_a_png_is_undone() -> None:
    first = bytes([0, 10, 20, 30, 40, 50, 60])
    others = [bytes([kind, 1, 2, 3, 4, 5, 6]) for kind in (1, 2, 3, 4)]
    found = decoded(png([first, *others], 2)).reshape(5, 6).tolist()
    assert found[0] == [10, 20, 30, 40, 50, 60]
    assert found[1] == [1, 2, 3, 5, 7, 9]  # and what is left of it
    assert found[2] == [2, 4, 6, 9, 12, 15]  # and what is above it
    assert found[3] == [2, 4, 6, 9, 13, 16]  # and the mean of both
    assert found[4] == [3, 6, 9, 13, 18, 22]  # and the nearest of three


def test_a_picture_with_few_colours_stays_as_it_is() -> None:
    colours = [(255, 255, 255), (11, 92, 173), (179, 38, 30), (17, 107, 58)]
    rows = [b"\0" + b"".join(bytes(colours[(at + row) % 4]) for at in range(8)) for row in range(4)]
    made = smaller(png(rows, 8))
    body = made[made.index(b"IDAT") + 4 :]
    palette = np.frombuffer(made[made.index(b"PLTE") + 4 : made.index(b"IDAT") - 8], dtype=np.uint8).reshape(
        -1, 3
    )
    lines = np.frombuffer(zlib.decompressobj().decompress(body), dtype=np.uint8).reshape(4, 9)
    assert palette[lines[:, 1:]].tolist() == decoded(png(rows, 8)).tolist()
