"""The token of this host: its owner's alone, the same for all who make it at once, proven without being said."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from calve.app.token_file import hello, keep_token, make_token, read_token, token_id
from calve.model.errors import UsageError


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        keep_token(path)
    assert caught.value.code == "token_file"
    return caught.value.message


def test_it_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "calve.token"
    before = os.umask(0)
    try:
        text = keep_token(file)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_id(text) == "local"
    assert keep_token(file) == read_token(file) == text
    assert [one.name for one in tmp_path.iterdir()] == ["calve.token"]


def test_of_many_who_make_it_at_once_all_get_the_same(tmp_path: Path) -> None:
    barrier = Barrier(16)

    def make(_: int) -> str:
        barrier.wait(30)
        return keep_token(tmp_path / "calve.token")

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(make, range(16)))) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["calve.token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o644])
def test_one_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "calve.token"
    keep_token(file)
    file.chmod(mode)
    assert f"mode {mode:o}" in refusal(file)


def test_a_link_is_refused_even_to_a_good_file(tmp_path: Path) -> None:
    keep_token(tmp_path / "good")
    (tmp_path / "calve.token").symlink_to(tmp_path / "good")
    assert "link" in refusal(tmp_path / "calve.token")


def test_a_dangling_link_is_refused_and_what_it_names_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "calve.token").symlink_to(tmp_path / "elsewhere")
    assert "link" in refusal(tmp_path / "calve.token")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_one_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calve.token"
    keep_token(file)
    os.chown(file, 65534, 65534)
    assert "another user" in refusal(file)


def test_a_pipe_does_not_hold_up_who_reads_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "calve.token", 0o600)
    assert "not a file" in refusal(tmp_path / "calve.token")


@pytest.mark.parametrize("content", ["", "secret", "calve_local_short", "calve_LOCAL_" + "a" * 43])
def test_what_is_not_a_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    file = tmp_path / "calve.token"
    file.write_text(content)
    file.chmod(0o600)
    said = refusal(file)
    assert "does not contain a token" in said
    assert not content or content not in said


def test_a_proof_fits_one_token_one_port_and_one_question() -> None:
    token, other = make_token()[1], make_token()[1]
    proofs = {hello(t, port, nonce) for t in (token, other) for port in (8180, 8181) for nonce in ("a", "b")}
    assert len(proofs) == 8
    assert all(token not in proof for proof in proofs)
