"""Folders that workers of a machine share: filled once, never seen half, swept when idle."""

import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from calve.clickhouse.engine.folders import IDLE_SECONDS, shared, sweep
from calve.model.errors import PermanentError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"calve-shared-{os.getuid()}"


def _fill(folder: Path) -> None:
    folder.mkdir()
    (folder / "data").write_text("all of it")


def test_many_who_want_it_at_once_fill_it_once() -> None:
    fills: list[Path] = []
    together = threading.Barrier(8)

    def fill(folder: Path) -> None:
        fills.append(folder)
        _fill(folder)

    def use(_: int) -> str:
        together.wait()
        with shared("part", fill) as folder:
            return (folder / "data").read_text()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(8))) == ["all of it"] * 8
    assert len(fills) == 1


def test_a_later_one_finds_it_filled() -> None:
    with shared("part", _fill):
        pass
    with shared("part", lambda folder: pytest.fail("filled twice")) as folder:
        assert (folder / "data").exists()


def test_what_failed_leaves_nothing_and_the_next_fills_it() -> None:
    def broken(folder: Path) -> None:
        _fill(folder)
        raise PermanentError("the backup is damaged", code="backup_damaged")

    with pytest.raises(PermanentError, match="damaged"), shared("part", broken):
        pass
    with shared("part", _fill) as folder:
        assert [entry.name for entry in folder.parent.iterdir()] == ["whole"]


def test_what_one_left_that_died_while_filling_is_not_taken_for_whole(root: Path) -> None:
    with shared("part", _fill) as folder:
        folder.rename(folder.parent / "half-dead")
    with shared("part", _fill) as folder:
        assert [entry.name for entry in folder.parent.iterdir()] == ["whole"]


def test_only_what_is_idle_and_unused_is_swept(root: Path) -> None:
    with shared("unused", _fill):
        pass
    with shared("used", _fill) as used:
        for folder in root.iterdir():
            os.utime(folder, (0, 0))
        assert [folder.name for folder in sweep()] == ["unused"]
        assert (used / "data").exists()
    assert sweep() == []  # its use has only just ended
    assert [folder.name for folder in sweep(idle_seconds=-1.0)] == ["used"]
    assert list(root.iterdir()) == [] and IDLE_SECONDS > 0


def test_a_folder_that_others_can_use_is_refused(root: Path) -> None:
    root.mkdir(mode=0o700)
    root.chmod(0o777)
    with pytest.raises(PermanentError, match="only this user"), shared("part", _fill):
        pass
