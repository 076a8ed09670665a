"""What happened when: spans and counts, for the report. Written by every thread of a run."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Span:
    """Something that lasted, in seconds since the beginning; `end` is None while it does."""

    lane: str  # whose line of the picture it belongs to: "worker 0", "S3", "client 1"
    kind: str  # "kill", "refuse", "up", …
    begin: float
    end: float | None = None
    text: str = ""


@dataclass(kw_only=True)
class Diary:
    began: float = field(default_factory=time.time)
    spans: list[Span] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(
        default_factory=list
    )  # what a reader of the report must know: "no small disk here"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def now(self) -> float:
        return time.time() - self.began

    def at(self, seconds: float) -> float:
        """A time of the wall clock as seconds of this run."""
        return seconds - self.began

    def begin(self, lane: str, kind: str, text: str = "") -> Span:
        span = Span(lane=lane, kind=kind, begin=self.now(), text=text)
        with self._lock:
            self.spans.append(span)
        return span

    def end(self, span: Span) -> None:
        if span.end is None:
            span.end = self.now()

    @contextmanager
    def during(self, lane: str, kind: str, text: str = "") -> Iterator[Span]:
        span = self.begin(lane, kind, text)
        try:
            yield span
        finally:
            self.end(span)

    def count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self.counts[what] += by

    def remark(self, text: str) -> None:
        with self._lock:
            if text not in self.remarks:
                self.remarks.append(text)

    def close(self) -> None:
        for span in self.spans:
            self.end(span)
