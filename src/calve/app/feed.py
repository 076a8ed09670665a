"""The feed of all events by cursors, for readers that come back: nothing is missed, or the reader is told so.

A cursor is `<store id>.<position>.<check>`. The check is of the event at that position, so a cursor of a store that
was since put back from a copy is found out, even after the store has grown past it again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from calve.app.view import Json, event_json
from calve.control.registry import Feed
from calve.model.access import FeedState
from calve.model.process import Event

START = "start"  # as a cursor: before the oldest event that is kept
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CHECK_DIGITS = 5
_NO_EVENT = "0"  # the check of a position whose event is gone, or never was
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PIECES = 20  # of a thousand: what one reader numbers at most


class ResetReason(StrEnum):
    """Why a cursor cannot be used: read what is there, and go on from the new one."""

    FOREIGN = "foreign"  # of another store, or of a later state of this one
    FORGOTTEN = "forgotten"  # events after it were deleted
    REWRITTEN = "rewritten"  # another event is there: the store was put back from a copy
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    events: tuple[Event, ...]
    cursors: tuple[str, ...]  # of each event
    cursor: str  # to go on from
    reset: ResetReason | None = None

    def to_json(self) -> Json:
        return {
            "events": [
                event_json(event) | {"cursor": cursor}
                for event, cursor in zip(self.events, self.cursors, strict=True)
            ],
            "cursor": self.cursor,
            "reset": self.reset.value if self.reset else None,
        }


def feed_page(feed: Feed, after: str = "", *, limit: int = 100) -> FeedPage:
    """Events after a cursor, in order. Without one: none, and the cursor of now."""
    for _ in range(_PIECES):
        if not feed.number_events():
            break
    state = feed.feed_state()
    if not after:
        return FeedPage(events=(), cursors=(), cursor=end_cursor(feed, state))
    position = state.forgotten_position if after == START else resume(feed, state, after)
    if isinstance(position, ResetReason):
        return FeedPage(events=(), cursors=(), cursor=end_cursor(feed, state), reset=position)
    events = tuple(feed.feed(position, limit))
    # Asked after the events were read: what was deleted meanwhile may be missing among them.
    now = feed.feed_state()
    if now.forgotten_position > max(position, state.forgotten_position):
        return FeedPage(events=(), cursors=(), cursor=end_cursor(feed, now), reset=ResetReason.FORGOTTEN)
    cursors = tuple(cursor_of(state.store_id, event) for event in events)
    standing = _bare(state, position) if after == START else after  # where nothing is new
    return FeedPage(events=events, cursors=cursors, cursor=cursors[-1] if cursors else standing)


def resume(feed: Feed, state: FeedState, text: str) -> int | ResetReason:
    """The position of a cursor, or why it cannot be used."""
    store_id, _, rest = text.partition(".")
    number, _, check = rest.partition(".")
    if not (number.isascii() and number.isdigit() and len(number) <= 18 and check):
        return ResetReason.UNREADABLE
    position = int(number)
    if store_id != state.store_id or position > state.last_position:
        return ResetReason.FOREIGN
    if position < state.forgotten_position:
        return ResetReason.FORGOTTEN
    if position in (0, state.forgotten_position):
        return position  # there is no event to compare with
    found = feed.event_at(position)
    if found is None:
        return ResetReason.FORGOTTEN
    return position if check == check_of(found) else ResetReason.REWRITTEN


def cursor_of(store_id: str, event: Event) -> str:
    return f"{store_id}.{event.position}.{check_of(event)}"


def check_of(event: Event) -> str:
    """The last digits of the event's time in microseconds."""
    left, digits = (event.at - _EPOCH) // timedelta(microseconds=1), ""
    for _ in range(_CHECK_DIGITS):
        left, digit = divmod(left, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def end_cursor(feed: Feed, state: FeedState) -> str:
    """Of the newest event that is numbered. Numbers none itself."""
    last = feed.event_at(state.last_position) if state.last_position else None
    return cursor_of(state.store_id, last) if last else _bare(state, state.last_position)


def _bare(state: FeedState, position: int) -> str:
    return f"{state.store_id}.{position}.{_NO_EVENT}"
