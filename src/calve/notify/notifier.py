"""One target, from the feed to its receiver. Several notifiers may serve it at once, and any may die anywhere:
a notice is added once, by the compare-and-set of the target's position, and sent at least once.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache

from calve.control.registry import ServedStore
from calve.control.why import why
from calve.model.access import Notice
from calve.model.process import Event, Process, ProcessQuery
from calve.notify.delivery import SEND_SECONDS, Delivered, Delivery, Send, calls, is_whole, send
from calve.notify.notices import News, Waits, WantedNotice, news, past, stuck, wanted
from calve.notify.pings import pings
from calve.notify.targets import Ping, Target, Topic, Webhook

LEASE_SECONDS = 90.0  # of claimed notices; sending them ends well before
ROUND_SECONDS = 60.0
STUCK_EVERY = timedelta(minutes=1)
WANTED_EVERY = timedelta(minutes=5)
MOST_ATTEMPTS = 20
LEAST_ATTEMPTS = 5  # also of a notice that waited for a day because no program ran
MOST_AGE = timedelta(hours=24)
FIRST_BACKOFF_SECONDS = 10.0
MOST_BACKOFF_SECONDS = 1800.0
DAMAGED = "its row in the store is damaged"
_CLAIMED = 500  # at most this many in one digest
_PAGE = 500
_PIECES = 20  # of a thousand: what one look numbers at most
_BATCH = 10_000
_log = logging.getLogger(__name__)


class Notifier:
    """Not for two threads at once."""

    def __init__(
        self,
        store: ServedStore,
        target: Target,
        *,
        wants: Callable[[], Sequence[WantedNotice]] = tuple,
        send: Send = send,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target = target
        self._store = store
        self._wants = wants
        self._send = send
        self._monotonic = monotonic
        self._waits = Waits()
        self._look_at: dict[Topic, datetime] = {}
        self._said: set[str] = set()  # of what has no event, by this program: the store keeps the ids too

    def drain(self, seconds: float) -> None:
        """Until nothing is due, or the time is up."""
        until = self._monotonic() + seconds
        while (left := until - self._monotonic()) > 0 and self.tick(left):
            pass

    def tick(self, seconds: float = ROUND_SECONDS) -> bool:
        """Read what is new and send what is due; whether there may be more. StoreError."""
        read = self._read()
        return self._deliver(seconds) or read

    def _read(self) -> bool:
        key, position = self.target.key, self._store.follow_target(self.target.key)
        for _ in range(_PIECES):
            if not self._store.number_events():
                break
        events = self._store.feed(position, _PAGE)
        made = self._news(events) if events else News(notices=[*self._stuck(), *self._wanted()])
        if not events and not made.notices:
            return False
        # If we die here, nothing was added, or all of it with the position.
        added = self._store.add_notices(
            key,
            after=position,
            upto=events[-1].position if events else position,
            notices=made.notices,
            alarms=made.alarms,
            cleared=made.cleared,
        )
        if added and not events:
            self._said |= {notice.id for notice in made.notices}
        return bool(events)

    def _news(self, events: Sequence[Event]) -> News:
        store_id, process_of = self._store.feed_state().store_id, cache(self._store.process)
        if isinstance(self.target, Webhook):
            return news(self.target, store_id, events, process_of, self._store.alarms(self.target.key))
        return pings(self.target, store_id, events, process_of, self._batch_of)

    def _batch_of(self, process: Process) -> Sequence[Process]:
        if process.batch is None:
            return (process,)
        return self._store.processes(ProcessQuery(batch=process.batch, limit=_BATCH))

    def _stuck(self) -> list[Notice]:
        now = self._due(Topic.STUCK, STUCK_EVERY)
        if now is None or not isinstance(target := self.target, Webhook):
            return []
        store_id = self._store.feed_state().store_id
        waits = past(target, self._waits.look(self._store.live(), now), now)
        return self._fresh(
            stuck(target, store_id, process, since, why(self._store, process)) for process, since in waits
        )

    def _wanted(self) -> list[Notice]:
        if self._due(Topic.WANTED, WANTED_EVERY) is None or not isinstance(target := self.target, Webhook):
            return []
        store_id = self._store.feed_state().store_id
        return self._fresh(
            wanted(target, store_id, one)
            for one in self._wants()
            if target.hears_of(one.kind, one.source, one.destination)
        )

    def _due(self, topic: Topic, every: timedelta) -> datetime | None:
        """Now, if the target wants it and it is time to look."""
        if not isinstance(self.target, Webhook) or topic not in self.target.on:
            return None
        now = self._store.now()
        if topic in self._look_at and now < self._look_at[topic]:
            return None
        self._look_at[topic] = now + every
        return now

    def _fresh(self, notices: Iterable[Notice]) -> list[Notice]:
        return [notice for notice in notices if notice.id not in self._said]

    def _deliver(self, seconds: float) -> bool:
        claimed = self._store.claim_notices(self.target.key, limit=_CLAIMED, lease_seconds=LEASE_SECONDS)
        until = self._monotonic() + min(seconds, ROUND_SECONDS)
        for call in calls(self.target, self._whole(claimed)):
            left = until - self._monotonic()
            if left <= 0:
                break
            answer = self._send(call, min(left, SEND_SECONDS))
            self._record(call, answer)
            if answer.is_away:
                break  # the others come back when their lease is over, with no attempt counted
        return bool(claimed)

    def _whole(self, claimed: Sequence[Notice]) -> list[Notice]:
        """A damaged one is given up, so that it holds up no other."""
        damaged = [notice.id for notice in claimed if not is_whole(self.target, notice)]
        if damaged:
            _log.error("%s: %d notices are given up: %s", self.target.key, len(damaged), DAMAGED)
            self._store.record_notices(damaged, DAMAGED)
        return [notice for notice in claimed if notice.id not in damaged]

    def _record(self, call: Delivery, answer: Delivered) -> None:
        ids = [notice.id for notice in call.notices]
        if not answer.error:
            self._store.record_notices(ids)
            return
        now = self._store.now()
        # A start that came after its end would begin an alarm: it is tried once.
        once = isinstance(self.target, Ping) and call.event == "start"
        ends = answer.is_final or once
        over = [notice.id for notice in call.notices if ends or _is_spent(notice, now)]
        rest = [notice for notice in call.notices if not ends and not _is_spent(notice, now)]
        if over:
            _log.error("%s: %d notices are given up: %s", self.target.key, len(over), answer.error)
            self._store.record_notices(over, answer.error)
        if rest:
            wait = backoff(min(notice.attempts for notice in rest))
            _log.warning("%s: %s; trying again in %.0f s", self.target.key, answer.error, wait)
            self._store.record_notices(
                [notice.id for notice in rest], answer.error, retry_seconds=wait, ends=False
            )


def backoff(attempts: int) -> float:
    """Seconds, after so many attempts before this one."""
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(attempts, 20), MOST_BACKOFF_SECONDS))


def _is_spent(notice: Notice, now: datetime) -> bool:
    tried = notice.attempts + 1
    old = notice.made_at is not None and now - notice.made_at >= MOST_AGE
    return tried >= MOST_ATTEMPTS or (old and tried >= LEAST_ATTEMPTS)
