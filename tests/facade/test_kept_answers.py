"""What is dear to make is kept in memory: not made by every page, made again beside them, and whole once work ended."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.pages import answers as module
from calve.app.pages import sheet
from calve.app.pages.answers import Kept
from calve.model.errors import StoreError
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.testing.contracts.contract import finish_task, move, running, start_task


@pytest.fixture
def calve(tmp_path: Path) -> Iterator[Calve]:
    (tmp_path / "calve.toml").write_text("")
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as made:
        yield made


def test_many_attempts_are_counted_anew_once_the_process_has_ended(
    calve: Calve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheet, "MANY", 1)
    store = calve.registry
    assert isinstance(store, SqlStore)
    row = finish_task(store, start_task(store, running(store, tasks=2), number=1), number=1)
    assert calve.sheet(row.id)["attempts"]["count"] == 1
    row = finish_task(store, start_task(store, row, number=2), number=2)
    assert calve.sheet(row.id)["attempts"]["count"] == 1  # of a moment ago
    move(store, row, ProcessState.FAILED)
    assert calve.sheet(row.id)["attempts"]["count"] == 2


def settled() -> None:
    """Until what is made in the background is there."""
    for thread in threading.enumerate():
        if thread.name == "test":
            thread.join(60)


def test_an_old_answer_is_given_while_a_new_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_SECONDS", -1.0)
    monkeypatch.setattr(module, "_SHARE", 0)
    go, made, answers = threading.Event(), threading.Event(), iter(range(9))

    def make() -> int:
        number = next(answers)
        if number:
            assert go.wait(60)
            made.set()
        return number

    kept = Kept(make, "test")
    assert [kept.get(), kept.get(), kept.get()] == [0, 0, 0]
    go.set()
    assert made.wait(60)
    settled()
    assert kept.get() == 1


def test_a_store_that_does_not_answer_leaves_the_old_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_SECONDS", -1.0)
    monkeypatch.setattr(module, "_SHARE", 0)
    fails: list[bool] = []

    def make() -> str:
        if fails:
            raise StoreError("the store is down", code="store_down")
        return "first"

    kept = Kept(make, "test")
    assert kept.get() == "first"
    fails.append(True)
    kept.get()
    settled()
    assert kept.get() == "first"
