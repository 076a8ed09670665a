"""A wrapper that forgets a method of its port would hide it from the worker or from the crash tests: so
the wrappers are held complete here."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from calve.control.kind import GuardedKind, Kind, WrappedKind
from calve.control.ports import StoreReader, StoreWriter
from calve.control.registry import Registry
from calve.model.errors import CalveError
from calve.testing.faults import (
    KIND_CALLS,
    KIND_READS,
    REGISTRY_CALLS,
    STORE_CALLS,
    Break,
    Faults,
    crashing_kind,
)
from calve.testing.scene import Scene

T = TypeVar("T")
REGISTRY_READS = frozenset(
    {
        "feed", "feed_state", "event_at", "request", "keys", "token", "tokens", "audited", "proofs", "servers", "totals",
        "alarms", "actions", "attempt_counts", "attempts", "slowest_attempts", "failed_attempts", "task_page", "task",
        "newest_events", "plan_size", "outages", "ended", "ends", "work_done", "unknown_outcomes", "retried", "old_pins",
        "ids_from", "with_partition", "sighting", "sightings", "sightings_of", "releases_in", "sighting_body", "session", "sessions", "given_up",
        "needed", "audited_about", "guard", "holds", "intents", "approvals", "announced", "releases",
    }
)  # fmt: skip


def methods(port: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")]


def arguments(scene: Scene, name: str) -> list[Any]:
    """Something for each parameter; processes and pins are real, because wrappers read their names."""
    process = scene.row(scene.submit())
    (pin,) = scene.kind.pins(process, 1)
    known = {"process": process, "pin": pin}
    parameters = list(inspect.signature(getattr(Kind, name)).parameters)[1:]
    return [known.get(parameter, f"the {parameter}") for parameter in parameters]


class Answering(WrappedKind):
    """Answers every call itself, and says which it was."""

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        return f"{call} of {of}"  # type: ignore[return-value]


class Recording(WrappedKind):
    calls: list[str]

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        self.calls.append(call)
        return work()


@pytest.mark.parametrize("name", methods(Kind))
def test_a_wrapped_kind_passes_every_call_through_its_wrapper_and_on_as_it_came(
    scene: Scene, name: str
) -> None:
    given = arguments(scene, name)
    received: list[tuple[Any, ...]] = []

    class Inner(Answering):
        pass

    setattr(Inner, name, lambda _self, *args: received.append(args) or "the answer")
    wrapped = Recording(Inner(scene.kind))
    wrapped.calls = []
    getattr(wrapped, name)(*given)
    assert wrapped.calls == [name]
    assert received == [tuple(given)]


@pytest.mark.parametrize("name", methods(Kind))
def test_a_defect_in_any_call_of_a_kind_becomes_an_error_of_ours(scene: Scene, name: str) -> None:
    class Broken(Answering):
        def around(self, call: str, of: str, work: Callable[[], T]) -> T:
            raise ZeroDivisionError(call)

    with pytest.raises(CalveError, match=f"{name} of .*ZeroDivisionError") as met:
        getattr(GuardedKind(Broken(scene.kind)), name)(*arguments(scene, name))
    assert met.value.code == "internal"


def test_every_call_of_a_kind_is_either_counted_by_the_crash_tests_or_changes_nothing() -> None:
    assert frozenset(methods(Kind)) == KIND_CALLS | KIND_READS
    assert not KIND_CALLS & KIND_READS


def test_every_writing_call_of_a_store_is_counted_by_the_crash_tests() -> None:
    assert frozenset(methods(StoreWriter)) == STORE_CALLS
    assert frozenset(methods(Registry)) == REGISTRY_CALLS | REGISTRY_READS
    assert not (REGISTRY_READS | frozenset(methods(StoreReader))) & (STORE_CALLS | REGISTRY_CALLS)


@pytest.mark.parametrize("name", sorted(KIND_CALLS))
def test_a_counted_call_breaks_when_told_and_the_others_do_not(scene: Scene, name: str) -> None:
    faults = Faults(at=1, how=Break.FAILED)
    with pytest.raises(CalveError, match="on purpose"):
        getattr(crashing_kind(Answering(scene.kind), faults), name)(*arguments(scene, name))
    assert faults.calls == [name]
