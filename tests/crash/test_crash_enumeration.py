"""For every mutating call of whole lives: die before it, die after it, or have it reported failed.

Then a new worker starts, everything else works, and whatever happened: each process ends, nothing is
published twice, no published file is deleted, no lease and no pin is left.
"""

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from calve.control.client import asked_store, retry, submit_once
from calve.control.ports import Store
from calve.control.registry import ServedStore
from calve.model.access import Asked, Replayed
from calve.model.errors import ErrorInfo, StoreError
from calve.model.limits import Limits
from calve.model.process import ProcessId
from calve.model.states import Leftovers, ProcessState
from calve.notify.delivery import Delivered, Delivery
from calve.notify.notifier import LEASE_SECONDS, Notifier
from calve.notify.targets import Webhook
from calve.store import SqlStore, open_store
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import claimed, move, new
from calve.testing.fake_runner import Ends
from calve.testing.faults import (
    KIND_CALLS,
    RUNNER_CALLS,
    STORE_CALLS,
    Break,
    Crash,
    Faults,
    crashing_store,
)
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import Scene

LIMITS = Limits(slots=2)
Life = Callable[[Scene], None]
OpenStore = Callable[[FakeClock], Store]


def exports_well(scene: Scene) -> None:
    scene.submit(tasks=5, pins=2, key="a")


def releases_pins_early(scene: Scene) -> None:
    scene.submit(tasks=6, pins=3, early=True, key="a")


def loses_attempts(scene: Scene) -> None:
    process_id = scene.submit(tasks=3, key="a")
    failed = ErrorInfo(code="flaky", message="once", retryable=True)
    scene.runner.script[process_id, 0] = [failed]
    scene.runner.script[process_id, 1] = [Ends.DONE_BUT_LOST]
    scene.runner.script[process_id, 2] = [Ends.LOST, Ends.TWICE]


def loses_the_commits_answer(scene: Scene) -> None:
    scene.submit(tasks=2, key="a")
    scene.world.commits = ["dropped", "late", "lost"]


def fails_for_good(scene: Scene) -> None:
    process_id = scene.submit(tasks=2, key="a")
    scene.runner.script[process_id, 1] = [ErrorInfo(code="denied", message="wrong credentials")] * 9


def is_cancelled_while_publishing(scene: Scene) -> None:
    process_id = scene.submit(tasks=2, key="a")
    scene.world.commits = ["late"]
    scene.world.before["send"] = lambda: _cancel(scene, process_id)


def is_down_for_a_while(scene: Scene) -> None:
    scene.submit(tasks=2, key="a")
    scene.world.down.add("catalog:lake")

    def still_down() -> None:  # at the first probe, which confirms the outage; the second finds it over
        scene.world.before["probe"] = scene.world.down.clear

    scene.world.before["probe"] = still_down


def is_undone(scene: Scene) -> None:
    fails_for_good(scene)
    scene.run(scene.worker())
    scene.clock.advance(LIMITS.keep_failed_hours * 3600 + 60)


def _cancel(scene: Scene, process_id: object) -> None:
    scene.store.request_cancel(process_id)  # type: ignore[arg-type]


LIVES: list[Life] = [
    exports_well,
    releases_pins_early,
    loses_attempts,
    loses_the_commits_answer,
    fails_for_good,
    is_cancelled_while_publishing,
    is_down_for_a_while,
    is_undone,
]


def live_and_break(life: Life, at: int, how: Break, opened: OpenStore = MemoryStore) -> tuple[Scene, Faults]:
    clock = FakeClock()
    scene = Scene(store=opened(clock), clock=clock, limits=LIMITS)
    life(scene)
    faults = Faults(at=at, how=how)
    try:
        scene.run(scene.worker(faults=faults))
    except Crash:
        clock.advance(LIMITS.lease_seconds + 1)
    # A new worker; the old one, where it lives on, does no more.
    faults.armed = False
    clock.advance(LIMITS.lease_seconds + 1)
    scene.world.land_late()
    scene.run(scene.worker(), seconds=5.0)
    # Everything had its time: leftovers are undone as well, and then late requests arrive.
    clock.advance(LIMITS.keep_failed_hours * 3600 + 60)
    last = scene.worker()
    for _ in range(10):
        last.tick()
        clock.advance(LIMITS.query_seconds)
    scene.world.land_late()
    return scene, faults


def mutating_calls(life: Life) -> int:
    _, faults = live_and_break(life, 0, Break.BEFORE)
    return len(faults.calls)


def test_the_lives_together_make_every_call_that_changes_something() -> None:
    made = {call for life in LIVES for call in live_and_break(life, 0, Break.BEFORE)[1].calls}
    never = {"submit", "request_cancel"}  # a person's
    never |= {"forget_worker"}  # of a worker that drains
    never |= {"cancel", "renew_releases"}  # of waves and releases that run beside the loop
    assert made == (STORE_CALLS | KIND_CALLS | RUNNER_CALLS) - never


@pytest.mark.parametrize("how", list(Break))
@pytest.mark.parametrize("life", LIVES)
def test_whatever_call_breaks_every_process_ends_once_and_nothing_is_left(life: Life, how: Break) -> None:
    calls = mutating_calls(life)
    assert calls > (3 if life is is_undone else 15), "the life is too short to say anything"
    for at in range(1, calls + 1):
        scene, faults = live_and_break(life, at, how)
        where = f"{life.__name__}: {how} call {at} ({faults.calls[at - 1]})"
        try:
            scene.check_settled()
            _check_end(life, scene)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


def _check_end(life: Life, scene: Scene) -> None:
    (process_id,) = scene.ids
    row = scene.row(process_id)
    if life in (fails_for_good, is_undone):
        assert (row.state, row.leftovers) == (ProcessState.FAILED, Leftovers.GONE)
        assert not scene.world.files
    elif life is is_cancelled_while_publishing:
        assert row.state in (ProcessState.CANCELLED, ProcessState.COMPLETED)
    else:
        assert row.state is ProcessState.COMPLETED, row.error


@pytest.mark.parametrize("how", list(Break))
def test_a_retry_that_adopts_breaks_anywhere_and_still_publishes_once(how: Break) -> None:
    def life(scene: Scene) -> None:
        process_id = scene.submit(tasks=3, key="a")
        scene.runner.script[process_id, 2] = [ErrorInfo(code="denied", message="wrong credentials")] * 9
        scene.run(scene.worker())
        assert scene.state(process_id) is ProcessState.FAILED
        scene.ids.append(retry(scene.store, process_id).process.id)

    for at in range(1, mutating_calls(life) + 1):
        scene, faults = live_and_break(life, at, how)
        scene.check_settled()
        old, again = scene.ids
        where = f"{how} call {at} ({faults.calls[at - 1]})"
        assert scene.state(again) is ProcessState.COMPLETED, where
        assert len(scene.world.snapshots) == 1, where
        assert scene.row(old).leftovers is Leftovers.GONE, where
        # What was adopted was not run again.
        assert scene.world.runs[again, 0] == scene.world.runs[again, 1] == 0, where


@pytest.mark.parametrize("how", list(Break))
@pytest.mark.parametrize(
    "life",
    [exports_well, loses_the_commits_answer, is_cancelled_while_publishing],
    ids=lambda life: str(life.__name__),
)
def test_the_same_holds_over_a_real_database(tmp_path: Path, life: Life, how: Break) -> None:
    """A sample, because each life costs a database: every way to break starts at another call, and
    together they meet every call but few twice."""
    broken = range(1 + list(Break).index(how), mutating_calls(life) + 1, len(Break))
    met = 0
    for at in broken:
        with ExitStack() as closing:

            def opened(clock: FakeClock, at: int = at, closing: ExitStack = closing) -> SqlStore:
                url = f"sqlite:///{tmp_path / f'{at}.db'}"
                return closing.enter_context(open_store(url, clock_offset_seconds=clock.offset_seconds))

            scene, faults = live_and_break(life, at, how, opened)
            # A database has a clock of its own: on a slow machine a life may end some calls earlier.
            met += len(faults.calls) >= at
            where = f"{life.__name__}: {how} call {at} ({faults.calls[at - 1 : at]})"
            try:
                scene.check_settled()
                _check_end(life, scene)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
    assert met >= len(broken) - 2, f"{life.__name__}: {how} met {met} of {len(broken)} calls"


@pytest.mark.parametrize("how", list(Break))
def test_a_request_with_a_key_that_breaks_anywhere_is_accepted_once_and_answered_alike(how: Break) -> None:
    """What a server does: submit, keep the answer; then the client, which saw none, sends it again."""
    asked = Asked(who="anne", verb="export", key="k", hash="h")
    item = new(lock="l")

    def ask(store: ServedStore) -> tuple[ProcessId, ...]:
        try:
            made = submit_once(
                asked_store(store, asked),
                lambda process: process.id == item.id,
                lambda joined: [] if joined else [item],
            )
            ids = tuple(process.id for process in made.processes)
        except Replayed as again:
            ids = again.request.processes
        store.answer_request("anne", "k", " ".join(ids))
        return ids

    for at in (1, 2):
        store, faults = MemoryStore(FakeClock()), Faults(at=at, how=how)
        with contextlib.suppress(Crash, StoreError):
            ask(crashing_store(store, faults))
        assert faults.calls[at - 1] == ("submit", "answer_request")[at - 1]
        assert ask(store) == ask(store) == (item.id,)
        assert [process.id for process in store.live()] == [item.id]
        assert len(store.audited(None, 10)) == 1
        request = store.request("anne", "k")
        assert request is not None and (request.processes, request.answer) == ((item.id,), item.id)


@pytest.mark.parametrize("how", list(Break))
def test_a_notice_whose_notifier_breaks_anywhere_is_added_once_and_sent_at_least_once(how: Break) -> None:
    clock, target = FakeClock(), Webhook(name="ops", url="http://h/hook", on=("failed",))
    sent: list[str] = []

    def live(faults: Faults) -> MemoryStore:
        store = MemoryStore(clock)
        store.follow_target(target.key)
        for _ in range(2):
            move(store, claimed(store), ProcessState.FAILED)

        def take(call: Delivery, _: float) -> Delivered:
            try:
                faults.call("send", StoreError, lambda: sent.append(call.id))
            except StoreError:
                return Delivered(error="no answer")
            return Delivered(status=200)

        sent.clear()
        with contextlib.suppress(Crash, StoreError):
            tell(Notifier(crashing_store(store, faults), target, send=take))
        faults.armed = False
        for _ in range(2):  # the lease of what was claimed is over, and so is every wait
            clock.advance(LEASE_SECONDS + 1)
            tell(Notifier(store, target, send=take))
        return store

    def tell(notifier: Notifier) -> None:
        while notifier.tick():
            pass

    whole = Faults()
    live(whole)
    both = set(sent)
    assert {
        "follow_target",
        "number_events",
        "add_notices",
        "claim_notices",
        "send",
        "record_notices",
    } == set(whole.calls)
    assert len(both) == len(sent) == 2
    for at in range(1, len(whole.calls) + 1):
        store = live(Faults(at=at, how=how))
        assert len(set(sent)) == 2, (at, whole.calls[at - 1])
        assert len(sent) <= 3
        assert store.totals().notices_waiting == 0
        assert store.given_up(10) == []
