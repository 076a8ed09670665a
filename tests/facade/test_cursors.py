"""Cursors of the feed: each event once and in order, and a reader that may have missed some is told."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.app.feed import START, ResetReason, feed_page
from calve.model.access import FeedState
from calve.model.process import Event, NewProcess, new_process_id
from calve.store import SqlStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    yield opened
    opened.close()


def submit(store: SqlStore, count: int = 1) -> list[str]:
    made = [
        NewProcess(id=new_process_id(), kind="export", source="main:db.t", destination="lake.ns.t", lane="x", needs=(), request="{}")
        for _ in range(count)
    ]  # fmt: skip
    return [store.submit([one])[0].id for one in made]


def test_pages_follow_each_other(store: SqlStore) -> None:
    ids = submit(store, 7)
    cursor, seen = START, []
    while (page := feed_page(store, cursor, limit=3)).events:
        assert len(page.events) <= 3
        seen += [event.process_id for event in page.events]
        cursor = page.cursor
    assert seen == ids
    assert page.reset is None
    assert page.cursor == cursor
    more = submit(store)
    assert [event.process_id for event in feed_page(store, cursor).events] == more


def test_without_a_cursor_it_begins_now(store: SqlStore) -> None:
    empty = feed_page(store).cursor
    old = submit(store, 2)
    now = feed_page(store)
    assert now.events == ()
    new = submit(store)
    assert [event.process_id for event in feed_page(store, now.cursor).events] == new
    assert [event.process_id for event in feed_page(store, empty).events] == old + new


def test_every_event_s_own_cursor_goes_on_after_it(store: SqlStore) -> None:
    ids = submit(store, 4)
    page = feed_page(store, START)
    for at, cursor in enumerate(page.cursors):
        assert [event.process_id for event in feed_page(store, cursor).events] == ids[at + 1 :]
    assert page.to_json()["events"][2]["cursor"] == page.cursors[2]


@pytest.mark.parametrize(
    "text", ["x", "a.b", "a.1", "a.-1.x", "a.1e3.x", "a.١.x", "a." + "9" * 19 + ".x", ".", "..", "a.1."]
)
def test_what_is_not_a_cursor(store: SqlStore, text: str) -> None:
    page = feed_page(store, text)
    assert (page.reset, page.events) == (ResetReason.UNREADABLE, ())
    assert feed_page(store, page.cursor).reset is None


def test_a_cursor_of_another_store_and_of_a_later_state(store: SqlStore, tmp_path: Path) -> None:
    submit(store)
    other = open_store(f"sqlite:///{tmp_path}/other.db")
    submit(other, 2)
    assert feed_page(store, feed_page(other).cursor).reset is ResetReason.FOREIGN
    other.close()
    ours, number, check = feed_page(store).cursor.split(".")
    assert feed_page(store, f"{ours}.{int(number) + 1}.{check}").reset is ResetReason.FOREIGN


def test_a_store_that_was_put_back_from_a_copy_is_found_out_even_after_it_grew(tmp_path: Path) -> None:
    first = open_store(f"sqlite:///{tmp_path}/store.db")
    submit(first, 2)
    kept = feed_page(first).cursor
    first.close()
    shutil.copy(tmp_path / "store.db", tmp_path / "copy.db")
    first = open_store(f"sqlite:///{tmp_path}/store.db")
    submit(first, 3)
    lost = feed_page(first).cursor
    first.close()
    back = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert feed_page(back, lost).reset is ResetReason.FOREIGN
    new = submit(back, 4)
    assert feed_page(back, lost).reset is ResetReason.REWRITTEN
    assert [event.process_id for event in feed_page(back, kept).events] == new
    back.close()


class Forgetting:
    """A feed whose first events were deleted, at once or while a reader reads."""

    def __init__(self, store: SqlStore, upto: int, *, after_looks: int = 0) -> None:
        self._store = store
        self._upto = upto
        self._looks = after_looks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def feed_state(self) -> FeedState:
        self._looks -= 1
        state = self._store.feed_state()
        return state if self._looks >= 0 else replace(state, forgotten_position=self._upto)

    def event_at(self, position: int) -> Event | None:
        return None if position <= self._upto else self._store.event_at(position)


def test_a_cursor_before_what_was_deleted_is_told_so(store: SqlStore) -> None:
    ids = submit(store, 4)
    cursors = feed_page(store, START).cursors
    feed: Any = Forgetting(store, upto=2)
    assert feed_page(feed, cursors[0]).reset is ResetReason.FORGOTTEN
    assert [event.process_id for event in feed_page(feed, cursors[1]).events] == ids[2:]  # it missed nothing
    assert [event.process_id for event in feed_page(feed, START).events] == ids[2:]


def test_what_is_deleted_while_it_is_read_is_not_passed_over(store: SqlStore) -> None:
    submit(store, 4)
    cursors = feed_page(store, START).cursors
    page = feed_page(Forgetting(store, upto=2, after_looks=1), cursors[0])  # type: ignore[arg-type]
    assert (page.reset, page.events) == (ResetReason.FORGOTTEN, ())
