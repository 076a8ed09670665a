"""Sealing what is stored in a location: compressed (zstd), encrypted (AES-256-GCM), or both.

A sealed object, version 1:

    8 bytes   CALVESL1
    1 byte    what was done: 1 encrypted, 2 compressed, 3 compressed and then encrypted
    8 bytes   the id of the key       } only if encrypted
    32 bytes  random salt             }
    rest      the zstd stream; or chunks of 1 MiB, each encrypted, with 16 bytes of tag

Every object has a key of its own, derived from the configured one and its salt, so that no nonce is
used twice: a chunk's is its number and whether it is the last. Header and name of the object go into
every tag. So a chunk that was changed, moved, left out or taken from elsewhere is found, and so is an
object that was cut short or put in place of another.

The address of a part is a hash of its content. In an encrypted backup it is keyed: equal parts are
still stored once, and who lists the objects cannot tell whether a known file is among them.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from calve.model.errors import RefusedError, UsageError

MAGIC = b"CALVESL1"
CHUNK_BYTES = 1 << 20
_STEP_BYTES = 1 << 13
_ENCRYPTED, _COMPRESSED = 1, 2
_ID_BYTES, _SALT_BYTES, _TAG_BYTES = 8, 32, 16
_KEYS, _COMPRESSION, _LEVEL = (
    "calve.backup.encryption-keys",
    "calve.backup.compression",
    "calve.backup.compression-level",
)
ZSTD = "zstd"
_ENVELOPE = "calve_encrypted"


class BrokenSeal(Exception):
    """What was read is not what was sealed; says how."""


class KeyMissingError(RefusedError):
    """Encrypted with a key that is not configured. Nothing is wrong with what is stored."""


@dataclass(frozen=True)
class Secret:
    """One configured key, and what is derived from it."""

    master: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """32 bytes in hex or base64: what `openssl rand` prints, never a password."""
        try:
            raw = bytes.fromhex(text) if len(text) == 64 else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            raw = b""
        if len(raw) != 32:
            raise UsageError(
                "invalid encryption key: it is not 32 bytes in hex or base64",
                code="encryption_key",
                hint="make one with: openssl rand -hex 32; several, one a line, may be given: the first encrypts",
            )
        return cls(raw)

    @cached_property
    def id(self) -> bytes:
        return self._derived(b"calve backup key id", b"")[:_ID_BYTES]

    def name(self, plain: str) -> str:
        """A name that only who has the key can compute."""
        key = self._derived(b"calve backup names", b"")
        return hmac.new(key, plain.encode(), hashlib.sha256).hexdigest()

    def for_object(self, salt: bytes) -> bytes:
        return self._derived(b"calve backup object", salt)

    def _derived(self, purpose: bytes, salt: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(algorithm=SHA256(), length=32, salt=salt or None, info=purpose).derive(self.master)


@dataclass(frozen=True, kw_only=True)
class Vault:
    """How a location is written, and what can be read from it: the first of the keys encrypts."""

    keys: tuple[Secret, ...] = ()
    compression: str = ""
    level: int = 3

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Vault":
        """They travel with the properties of the storage, to executors too, and are as secret."""
        return _vault(
            properties.get(_KEYS, ""), properties.get(_COMPRESSION, ""), int(properties.get(_LEVEL, 3))
        )

    @property
    def encrypts(self) -> bool:
        return bool(self.keys)

    @property
    def seals(self) -> bool:
        return self.encrypts or bool(self.compression)

    def address(self, plain: str) -> str:
        """The name of a content."""
        return self.keys[0].name(plain)[: len(plain)] if self.keys else plain

    def was_address(self, address: str, plain: str) -> bool:
        """Whether it was the content's name under another key, or without one."""
        return address in (plain, *(key.name(plain)[: len(plain)] for key in self.keys))

    # ---- objects

    def seal(self, chunks: Iterable[bytes], context: str) -> Iterator[bytes]:
        """The bytes to store. `context` is the object's name below the location."""
        flags = (_ENCRYPTED if self.encrypts else 0) | (_COMPRESSED if self.compression else 0)
        header = MAGIC + bytes([flags])
        if self.compression:
            chunks = _compressed(chunks, self.level)
        if not self.encrypts:
            yield header
            yield from chunks
            return
        salt = secrets.token_bytes(_SALT_BYTES)
        header += self.keys[0].id + salt
        yield header
        yield from _encrypted(chunks, self.keys[0].for_object(salt), header + context.encode())

    def open(self, chunks: Iterable[bytes], context: str, *, most: int) -> Iterator[bytes]:
        """What was sealed. BrokenSeal, at the latest at the end, if it is not; KeyMissingError; never more
        than `most` bytes. Nothing of it counts before the end was reached."""
        reader = _Reader(chunks)
        head = reader.take(len(MAGIC) + 1)
        if head[: len(MAGIC)] != MAGIC or head[len(MAGIC) :] not in (b"\1", b"\2", b"\3"):
            raise BrokenSeal("it is not a sealed object")
        flags, found = head[-1], reader.rest()
        if flags & _ENCRYPTED:
            head += reader.take(_ID_BYTES + _SALT_BYTES)
            if len(head) < len(MAGIC) + 1 + _ID_BYTES + _SALT_BYTES:
                raise BrokenSeal("it was cut short")
            key = self._key(head[9 : 9 + _ID_BYTES]).for_object(head[-_SALT_BYTES:])
            found = _decrypted(reader, key, head + context.encode())
        if flags & _COMPRESSED:
            found = _decompressed(found)
        size = 0
        for piece in found:
            size += len(piece)
            if size > most:
                raise BrokenSeal(f"it holds more than the {most} bytes that were written")
            yield piece

    def _key(self, key_id: bytes) -> Secret:
        for key in self.keys:
            if key.id == key_id:
                return key
        raise KeyMissingError(
            f"encrypted with key {key_id.hex()}, which is not among the {len(self.keys)} configured",
            code="backup_key_missing",
            hint="add that key to [backup] encryption_key_file, one a line: the first encrypts, all decrypt",
        )

    # ---- texts

    def seal_text(self, text: str, context: str) -> str:
        """A manifest: JSON, so that a reader without the key knows what it has before it."""
        if not self.encrypts:
            return text
        sealed = b"".join(self.seal([text.encode()], context))
        return json.dumps(
            {_ENVELOPE: 1, "key": self.keys[0].id.hex(), "sealed": base64.b64encode(sealed).decode()}
        )

    def open_text(self, text: str, context: str) -> str:
        """The text as it is where it was not encrypted."""
        try:
            document = json.loads(text)
            if not isinstance(document, dict) or _ENVELOPE not in document:
                return text
            sealed = base64.b64decode(document["sealed"], validate=True)
        except (ValueError, KeyError, TypeError, RecursionError):
            if f'"{_ENVELOPE}"' not in text:
                return text
            raise BrokenSeal("it does not read as an encrypted manifest") from None
        return b"".join(self.open([sealed], context, most=1 << 40)).decode()


def is_sealed(data: bytes) -> bool:
    return data.startswith(MAGIC)


def properties(*, keys: str, compression: str = "", level: int = 3) -> dict[str, str]:
    """What `Vault.of` reads; nothing where nothing is sealed. UsageError for a key that is none."""
    for text in keys.split():
        Secret.parse(text)
    found = {_KEYS: " ".join(keys.split())} if keys.split() else {}
    if compression == ZSTD:
        found |= {_COMPRESSION: ZSTD, _LEVEL: str(level)}
    return found


@lru_cache(maxsize=16)
def _vault(keys: str, compression: str, level: int) -> Vault:
    return Vault(keys=tuple(map(Secret.parse, keys.split())), compression=compression, level=level)


class _Reader:
    """Pieces of any size as pieces of one's own choosing."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = bytearray()

    def take(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        while len(self._held) < size and (chunk := next(self._chunks, None)) is not None:
            if not self._held and len(chunk) == size:
                return chunk  # as it comes, without a copy
            self._held += chunk
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def rest(self) -> Iterator[bytes]:
        while piece := self.take(CHUNK_BYTES):
            yield piece


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _encrypted(chunks: Iterable[bytes], key: bytes, bound: bytes) -> Iterator[bytes]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher, reader, number = AESGCM(key), _Reader(chunks), 0
    piece = reader.take(CHUNK_BYTES)
    while True:
        following = reader.take(CHUNK_BYTES) if len(piece) == CHUNK_BYTES else b""
        yield cipher.encrypt(_nonce(number, not following), piece, bound)
        if not following:
            return
        piece, number = following, number + 1


def _decrypted(reader: _Reader, key: bytes, bound: bytes) -> Iterator[bytes]:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher, number, size = AESGCM(key), 0, CHUNK_BYTES + _TAG_BYTES
    piece = reader.take(size)
    while True:
        following = reader.take(size) if len(piece) == size else b""
        try:
            yield cipher.decrypt(_nonce(number, not following), piece, bound)
        except InvalidTag:
            where = f"chunk {number}" if following else f"chunk {number}, its last"
            raise BrokenSeal(f"its content does not match its seal ({where})") from None
        if not following:
            return
        piece, number = following, number + 1


def _compressed(chunks: Iterable[bytes], level: int) -> Iterator[bytes]:
    import zstandard

    stream = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
    for chunk in chunks:
        if piece := stream.compress(chunk):
            yield piece
    yield stream.flush()


def _decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """In small steps: a few bytes may stand for very many."""
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    reader = _Reader(chunks)
    try:
        while not stream.eof and (piece := reader.take(_STEP_BYTES)):
            yield stream.decompress(piece)
    except zstandard.ZstdError as error:
        raise BrokenSeal(f"it does not decompress ({error})") from None
    if not stream.eof:
        raise BrokenSeal("it was cut short")
    if stream.unused_data or reader.take(1):
        raise BrokenSeal("something was added to it")
