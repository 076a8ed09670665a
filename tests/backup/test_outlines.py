"""Parts whose files are objects of a bucket are described without their data; what the source tells of them is checked."""

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyarrow import Codec

from calve.archive.location import address_of, part_files
from calve.archive.parts import INLINE_BYTES
from calve.backup.outline import Buckets, PartObjects, bringing, outline
from calve.clickhouse.parts import checksums
from calve.clickhouse.parts.links import FileObject
from calve.model.errors import CalveError, DamagedError, PermanentError

COMPRESSED = {"s.bin"}  # files of which ClickHouse says too what they decompress to


def number(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def written(sizes: Mapping[str, int], codec: int = 0x82) -> bytes:
    """As ClickHouse writes them, hashes aside."""
    plain = number(len(sizes))
    for name, size in sizes.items():
        plain += number(len(name)) + name.encode() + number(size) + bytes(16)
        plain += b"\1" + number(size * 3) + bytes(16) if name in COMPRESSED else b"\0"
    packed = (
        plain if codec == 2 else Codec({0x82: "lz4_raw", 0x90: "zstd"}[codec]).compress(plain, asbytes=True)
    )
    return (
        b"checksums format version: 4\n" + struct.pack("<16xBII", codec, len(packed) + 9, len(plain)) + packed
    )


class Bucket:
    """A folder that stands in for one: each file under a name that says nothing of it."""

    def __init__(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self.folder, self.room = folder, folder / "room"
        self.room.mkdir()
        self.files = tuple(self.put(name, data) for name, data in files.items() if data)
        self.buckets = Buckets()

    def put(self, name: str, data: bytes) -> FileObject:
        path = self.folder / f"object-{len(list(self.folder.iterdir()))}"
        path.write_bytes(data)
        return FileObject(name=name, bytes=len(data), uri=f"file://{path}")

    def outline(self, *files: FileObject) -> PartObjects:
        return outline(self.buckets, files or self.files, self.folder / "part")


def part() -> dict[str, bytes]:
    data = {"s.bin": b"s" * (INLINE_BYTES + 1), "e.bin": b"", "count.txt": b"3"}
    inner = {"m.bin": b"m" * 9, "void.bin": b""}
    sizes = {name: len(one) for name, one in data.items()} | {"p.proj": 99}
    return data | {
        "columns.txt": b"columns format version: 1\n",  # which no checksums name
        "checksums.txt": written(sizes),
        **{f"p.proj/{name}": one for name, one in inner.items()},
        "p.proj/checksums.txt": written({name: len(one) for name, one in inner.items()}),
    }


@pytest.mark.parametrize("codec", [2, 0x82, 0x90])
def test_checksums_are_read_in_each_codec(codec: int) -> None:
    sizes = {"s.bin": 1 << 40, "a b.cmrk2": 0, "p.proj": 12345}
    assert checksums.sizes(written(sizes, codec)) == sizes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"checksums format version: 2\n1 files\n",
        written({"a": 1})[:-3],
        written({"a": 1}, 2)[:-1] + b"\1",
    ],
)
def test_what_is_no_checksums_is_said(data: bytes) -> None:
    with pytest.raises(PermanentError, match="checksums") as error:
        checksums.sizes(data)
    assert error.value.code == "part_unreadable"


def test_an_outline_has_the_address_of_the_part_and_brings_its_files(tmp_path: Path) -> None:
    files = part()
    whole = tmp_path / "whole"
    for name, data in files.items():
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / name).write_bytes(data)
    (tmp_path / "bucket").mkdir()
    bucket = Bucket(tmp_path / "bucket", files)
    listed = bucket.outline()
    folder = bucket.folder / "part"
    assert address_of(folder) == address_of(whole)
    assert {file.name for file in listed.files} == set(files)
    bring = bringing(bucket.buckets, PartObjects.from_json(listed.to_json()), bucket.room)
    for file in part_files(folder):
        with bring(file) as path:
            assert path.read_bytes() == files[file.name]
    assert not list(bucket.room.iterdir())
    assert (folder / "s.bin").read_bytes() == bytes(INLINE_BYTES + 1), "no data comes with the outline"


@pytest.mark.parametrize("lost", ["s.bin", "p.proj/m.bin"])
def test_a_file_without_an_object_is_named(tmp_path: Path, lost: str) -> None:
    bucket = Bucket(tmp_path, part())
    with pytest.raises(PermanentError, match=lost) as error:
        bucket.outline(*(file for file in bucket.files if file.name != lost))
    assert error.value.code == "object_differs"


def test_an_object_of_another_size_is_named(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, part())
    listed = bucket.outline()
    for name in ("s.bin", "columns.txt"):
        [file] = [file for file in bucket.files if file.name == name]
        Path(file.uri.removeprefix("file://")).write_bytes(b"another's")
        with pytest.raises(CalveError, match=name) as error:
            bucket.buckets.read(file)
        assert error.value.code == "object_differs"
    [data] = [file for file in part_files(bucket.folder / "part") if file.name == "s.bin"]
    with (
        pytest.raises(PermanentError, match=r"9 bytes where the server says 4097"),
        bringing(bucket.buckets, listed, bucket.room)(data),
    ):
        pass
    assert not list(bucket.room.iterdir())


@pytest.mark.parametrize("name", ["../s.bin", "/s.bin", "p.proj/../../s.bin"])
def test_T9_no_name_from_the_source_leads_out_of_the_outline(tmp_path: Path, name: str) -> None:
    bucket = Bucket(tmp_path, part())
    with pytest.raises(DamagedError):
        bucket.outline(bucket.put(name, b"x"))
    with pytest.raises(DamagedError):
        bucket.outline(bucket.put("checksums.txt", written({name: 0})))
