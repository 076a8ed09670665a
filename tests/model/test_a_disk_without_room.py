"""A full disk is one error, wherever it is met."""

import errno
from pathlib import Path

import pytest

from calve.clickhouse.errors import translate
from calve.export.task import _refuse_unfinished
from calve.model.errors import TemporaryError
from calve.objects.errors import as_full_disk, is_full


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_the_error_names_the_file_and_what_to_do(tmp_path: Path, number: int) -> None:
    error = OSError(number, "no room", str(tmp_path / "0.parquet"))
    assert is_full(error)
    told = as_full_disk(error, tmp_path)
    assert (told.code, told.retryable) == ("disk_full", True)
    assert str(tmp_path / "0.parquet") in told.message and "MB are free" in told.message
    assert "TMPDIR" in told.hint


def test_other_errors_are_not_taken_for_it() -> None:
    assert not is_full(OSError(errno.EACCES, "no"))
    assert not is_full(ValueError("no"))


@pytest.mark.parametrize(
    "said",
    [
        "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)",
        "Code: 75. DB::Exception: Cannot write to file /x, errno: 28, strerror: No space left on device. (X)",
    ],
)
def test_the_engine_s_words_for_it_are_known(said: str) -> None:
    assert translate(said, "writing").code == "disk_full"
    assert (
        translate("Code: 75. DB::Exception: Cannot write, errno: 5. (X)", "writing").code == "clickhouse_75"
    )


@pytest.mark.parametrize("content", [b"", b"PAR1 and then the disk was full"])
def test_a_file_without_its_end_is_a_full_disk_and_not_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    """The engine reports success, whatever the disk said (tried)."""
    file = tmp_path / "0.parquet"
    file.write_bytes(content)
    with pytest.raises(TemporaryError) as told:
        _refuse_unfinished(file)
    assert told.value.code == "disk_full"
    file.write_bytes(b"PAR1 whole PAR1")
    _refuse_unfinished(file)
