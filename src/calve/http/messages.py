"""What a stream of events says: its messages as text, and where in the feed each stands."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calve.app.feed import START
from calve.app.view import Json


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which processes a subscriber wants; none named: all."""

    ids: frozenset[str] = frozenset()
    kind: str = ""

    def has(self, process: Json) -> bool:
        return (not self.ids or process["id"] in self.ids) and self.kind in ("", process["kind"])


@dataclass(frozen=True, kw_only=True)
class StreamMessage:
    """`cursor`: after this event; "" for what may be lost. `process`: of an event."""

    text: bytes
    cursor: str = ""
    process: Json | None = None
    progress: tuple[Json, ...] = ()

    def of(self, wanted: Filter) -> bytes:
        if self.process is not None:
            return self.text if wanted.has(self.process) else b""
        if not self.progress or wanted == Filter():
            return self.text
        left = [one for one in self.progress if wanted.has(one)]
        return block("progress", {"processes": left}) if left else b""


@dataclass(frozen=True, kw_only=True)
class StreamPage:
    """One look at the store."""

    cursor: str
    reset: str
    events: tuple[StreamMessage, ...]
    live: Mapping[str, Json] | None = None  # processes that have not ended; None: not looked at
    sightings: tuple[Json, ...] = ()
    down: tuple[str, ...] | None = None  # services with an open breaker; None: not looked at


def block(name: str, data: Any, cursor: str = "") -> bytes:
    """One message of the stream. JSON has no line breaks of its own."""
    head = f"id: {cursor}\n" if cursor else ""
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def reset(reason: str, cursor: str) -> bytes:
    return block("reset", {"reason": reason, "cursor": cursor}, cursor)


def event_message(event: Json, process: Json) -> StreamMessage:
    cursor = str(event["cursor"])
    plain = {name: value for name, value in event.items() if name != "cursor"}
    return StreamMessage(
        text=block("process", {"event": plain, "process": process}, cursor), cursor=cursor, process=process
    )


def standing(cursor: str) -> bytes:
    """A message of an id alone: the client keeps it, and shows nothing."""
    return f"id: {cursor}\n\n".encode() if cursor else b"\n"


def position(cursor: str) -> int:
    return int(cursor.split(".")[1]) if cursor != START else -1
