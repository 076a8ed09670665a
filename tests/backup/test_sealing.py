"""What is sealed opens with its key and under its name, whole, or not at all."""

import base64
import secrets
from collections.abc import Iterator

import pytest

from calve.archive.vault import (
    CHUNK_BYTES,
    MAGIC,
    BrokenSeal,
    KeyMissingError,
    Secret,
    Vault,
    properties,
)
from calve.model.errors import UsageError

GOLDEN = (
    "Q0FMVkVTTDED6JkVMo7P1GEDeJLX3hr4C7O3DRBG5cN/8KTtp5fit8WW+b7gmf2NBOtgYXxDbGJcM1Z1aB2WfxGO4N"
    "GNnQHtBtJC+jPJmfvD4otoFt8GYJbEiYoKlwbWg6gd8Gw="
)
ADDRESS = "21725953202ce1a829f905144f86cf0233d5f003"
KEY, OTHER = secrets.token_hex(32), secrets.token_hex(32)


def vault(*keys: str, compression: str = "") -> Vault:
    return Vault.of(properties(keys="\n".join(keys), compression=compression, level=3))


VAULTS = [vault(KEY), vault(compression="zstd"), vault(KEY, compression="zstd")]
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]


def sealed(one: Vault, data: bytes, name: str = "parts/a") -> bytes:
    return b"".join(one.seal([data], name))


def opened(one: Vault, data: bytes, name: str = "parts/a", most: int = 1 << 30) -> bytes:
    return b"".join(one.open([data], name, most=most))


@pytest.mark.parametrize("one", VAULTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_size_comes_back_however_it_is_cut_into_pieces(one: Vault, size: int) -> None:
    data = secrets.token_bytes(size)
    pieces = [data[at : at + 70_000] for at in range(0, size, 70_000)]
    stored = b"".join(one.seal(iter(pieces), "parts/a"))
    again = [stored[at : at + 33_333] for at in range(0, len(stored), 33_333)]
    assert b"".join(one.open(iter(again), "parts/a", most=size)) == data
    assert size < 100 or not one.encrypts or data[:100] not in stored


@pytest.mark.parametrize("one", VAULTS)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_cut_short_or_longer_is_found(one: Vault, size: int) -> None:
    stored = sealed(one, secrets.token_bytes(size))
    step = CHUNK_BYTES + 16
    for end in {0, 3, 8, 9, 20, 49, 49 + step, 49 + 2 * step, len(stored) // 2, len(stored) - 1}:
        if end < len(stored):
            with pytest.raises(BrokenSeal):
                opened(one, stored[:end])
    with pytest.raises(BrokenSeal):
        opened(one, stored + b"\0")


@pytest.mark.parametrize("one", [VAULTS[0], VAULTS[2]])
def test_every_flipped_bit_is_found(one: Vault) -> None:
    stored = sealed(one, b"some text" * 20)
    for at in range(len(stored)):
        changed = bytearray(stored)
        changed[at] ^= 1
        with pytest.raises((BrokenSeal, KeyMissingError)):
            opened(one, bytes(changed))


def chunks(stored: bytes) -> tuple[bytes, list[bytes]]:
    step = CHUNK_BYTES + 16
    return stored[:49], [stored[at : at + step] for at in range(49, len(stored), step)]


def test_chunks_cannot_be_moved_repeated_or_left_out() -> None:
    head, [a, b, c] = chunks(sealed(VAULTS[0], secrets.token_bytes(3 * CHUNK_BYTES)))
    for order in ([b, a, c], [a, c], [b, c], [a, b], [a, a, b, c], [a, b, b, c], [c], [a, c, b], [c, b, a]):
        with pytest.raises(BrokenSeal):
            opened(VAULTS[0], head + b"".join(order))
    _, [_, other, _] = chunks(sealed(VAULTS[0], secrets.token_bytes(3 * CHUNK_BYTES)))
    with pytest.raises(BrokenSeal):
        opened(VAULTS[0], head + a + other + c)


def test_an_object_opens_under_its_own_name_alone() -> None:
    stored = sealed(VAULTS[0], b"one", "parts/p/0-1/aa/0")
    with pytest.raises(BrokenSeal):
        opened(VAULTS[0], stored, "parts/p/0-1/aa/1")


def test_the_same_bytes_are_never_sealed_to_the_same() -> None:
    first, second = (sealed(VAULTS[0], b"same" * 100) for _ in range(2))
    assert first[:17] == second[:17] and first[17:49] != second[17:49]
    blocks = [{one[at : at + 8] for at in range(49, 400, 8)} for one in (first, second)]
    assert not blocks[0] & blocks[1]


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    old = sealed(vault(KEY), b"old")
    rotated = vault(OTHER, KEY)
    assert opened(rotated, old) == b"old"
    new = sealed(rotated, b"new")
    assert opened(vault(OTHER), new) == b"new"
    with pytest.raises(KeyMissingError) as missing:
        opened(vault(KEY), new)
    assert (
        missing.value.code == "backup_key_missing" and Secret.parse(OTHER).id.hex() in missing.value.message
    )
    with pytest.raises(KeyMissingError):
        opened(Vault(), new)
    for text in (KEY, OTHER):
        assert text not in repr(rotated) and text not in missing.value.message + missing.value.hint


def test_names_are_keyed_and_equal_content_has_equal_names() -> None:
    plain = "ab" * 20
    assert Vault().address(plain) == plain
    assert vault(KEY).address(plain) == vault(KEY, OTHER).address(plain) != vault(OTHER).address(plain)
    assert len(vault(KEY).address(plain)) == 40 and vault(KEY).address(plain) != plain
    assert vault(OTHER, KEY).was_address(vault(KEY).address(plain), plain)
    assert not vault(OTHER).was_address(vault(KEY).address(plain), plain)


def test_a_few_bytes_that_stand_for_very_many_are_refused_before_they_are_many() -> None:
    one = vault(compression="zstd")
    bomb = b"".join(one.seal((b"\0" * CHUNK_BYTES for _ in range(500)), "a"))
    assert len(bomb) < 100_000
    made = 0
    with pytest.raises(BrokenSeal, match="more than the 10 bytes"):
        for piece in one.open([bomb], "a", most=10):
            made += len(piece)
    assert made == 0


def test_memory_does_not_grow_with_the_object() -> None:
    held: list[int] = []

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"\1" * CHUNK_BYTES

    for piece in vault(KEY).seal(endless(), "a"):
        held.append(len(piece))
    assert max(held) == CHUNK_BYTES + 16 and len(held) == 65


@pytest.mark.parametrize("text", ["password", "ab" * 31, "zz" * 32, base64.b64encode(b"x" * 31).decode()])
def test_a_password_is_not_a_key(text: str) -> None:
    with pytest.raises(UsageError, match="32 bytes") as refused:
        vault(text)
    assert "openssl rand -hex 32" in refused.value.hint and text not in refused.value.message


def test_hex_and_base64_are_the_same_key() -> None:
    raw = secrets.token_bytes(32)
    assert Secret.parse(raw.hex()) == Secret.parse(base64.b64encode(raw).decode())


def test_a_text_without_a_seal_stays_as_it_is() -> None:
    for text in ("", "{}", "not json", '{"sha256": 1}'):
        assert vault(KEY).open_text(text, "a") == text
    secret = vault(KEY).seal_text("a manifest", "backups/a@1.json")
    assert "a manifest" not in secret and vault(KEY).open_text(secret, "backups/a@1.json") == "a manifest"
    with pytest.raises(BrokenSeal):
        vault(KEY).open_text(secret, "backups/b@1.json")
    with pytest.raises(BrokenSeal):
        vault(KEY).open_text(secret[:-30], "backups/a@1.json")
    assert MAGIC == b"CALVESL1", "what is stored is read by every later version"


def test_what_this_version_sealed_is_opened_by_every_later_one() -> None:
    """Written once, when the format was made. If this fails, old backups can no longer be read."""
    one = vault("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", compression="zstd")
    stored = base64.b64decode(GOLDEN)
    assert opened(one, stored, "parts/p/0-1/aa/0") == b"a part's bytes, " * 8
    assert one.address("ab" * 20) == ADDRESS
