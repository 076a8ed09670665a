"""What a process of one kind does: the base class of every kind, with defaults for what few kinds need.

Every call is bounded by a timeout of its own and raises only `CalveError`s. Any call may be made twice,
by another worker, after a crash, or while an earlier call of a stopped worker is still under way: each
docstring says how that ends. A kind sees no SQL and keeps no state between calls.

Wrappers around the ports: an exception that is not ours is a defect, and becomes an error of ours.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from calve.control.ports import Runner, TaskOrder, TaskResult
from calve.model.change import NewPin, PinChange, Result
from calve.model.errors import CalveError, PermanentError, TemporaryError
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AdoptedWork:
    """What a retry may rely on: the plan of the process it retries and the receipts that stand."""

    plan: str
    receipts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    plan: str
    tasks: tuple[NewTask, ...]
    spent_pins: tuple[str, ...] = ()  # that no task needs: released at once, not at the process's end


@dataclass(frozen=True, kw_only=True)
class NothingToDo:
    """Planning found that the work is done already. The process completes."""

    result: Result
    message: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """The process's work is visible, now or since an earlier try. `message` is for people."""

    result: Result
    message: str
    unused: bool = False  # another process published this already: what this one wrote is undone


@dataclass(frozen=True, kw_only=True)
class Fenced:
    """No commit of this process can land any more."""


class Kind(ABC):
    name: str

    # -- pins: most kinds have them; the defaults are for those that need none ----------------------

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        """Name the pins of this planning attempt. No effect: they are journaled next."""
        return ()

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        """Take journaled pins, in their order. Called once for a pin; a crash here leads to the release
        of all of them and to another attempt with other names, never to a second take under one
        name (D5)."""
        for pin in pins:
            raise self._no_pins(pin)
        return []

    def release(self, pin: Pin) -> None:
        """Let go of a pin that may or may not have been taken, whose table may be gone.
        Idempotent. Touches only what bears the pin's name."""
        raise self._no_pins(pin)

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        """The pin that a task reads and the numbers of all tasks that read it, where that pin can be
        released before the process ends (L29). Pure."""
        return None

    def _no_pins(self, pin: Pin) -> PermanentError:
        return PermanentError(f"processes of kind {self.name} have no pins: {pin.name}", code="pin_name")

    # -- planning and tasks -------------------------------------------------------------------------

    @abstractmethod
    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        """List the work from what the pins hold. The destination may be created here
        (idempotent). Nothing later asks the source again."""

    @abstractmethod
    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        """What to ship for this attempt. Changes nothing; may ask for keys that are lent for a while."""

    @abstractmethod
    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        """The receipt of `task.attempt`, if that attempt left one. Read-only."""

    # -- publishing ---------------------------------------------------------------------------------

    @abstractmethod
    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """One attempt: search for our marks first, then check, build, `note`, send once, look
        again. `note` is a fenced write that must succeed right before the send; if it raises, stop.
        `note("")` takes it back where the send was refused for certain and no other is owed."""

    @abstractmethod
    def fence(self, process: Process, plan: str) -> Fenced | Published:
        """Make sure that nothing of this process can be published from now on, or find that it
        was. UnknownOutcomeError or UnavailableError where neither is possible now."""

    @abstractmethod
    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        """Delete what the process wrote and nobody uses, proven by a fresh look; says what was left
        though nobody is known to use it, and why ("" when nothing). `used` are receipts of retries
        that were published, or may have been: what they name stays, whatever the look shows (T2).
        Of a process that published, what its publish does not list goes: files of attempts that
        lost (T13). Idempotent; never called before `fence` answered Fenced or the process
        completed."""

    @abstractmethod
    def probe(self, service: Service, process: Process) -> None:
        """Return if the service answers, with everything behind it that the process needs; raise if not. A catalog that
        answers while the storage behind it is dead must not close the breaker. Cheap."""


class WrappedKind(Kind):
    """A kind around another: every call passes through `around`. A test holds this class complete."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.name = kind.name

    @abstractmethod
    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        """Make the call. `of` is the id or name of what it is about."""

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        return self.around("pins", process.id, lambda: self._kind.pins(process, attempt))

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        return self.around("take", process.id, lambda: self._kind.take(process, pins))

    def release(self, pin: Pin) -> None:
        self.around("release", pin.name, lambda: self._kind.release(pin))

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        return self.around("pin_tasks", process.id, lambda: self._kind.pin_tasks(process, plan, number))

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        return self.around("plan", process.id, lambda: self._kind.plan(process, pins, adopted))

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        return self.around("order", process.id, lambda: self._kind.order(process, plan, task, attempt))

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        return self.around("find_receipt", process.id, lambda: self._kind.find_receipt(process, plan, task))

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        return self.around("publish", process.id, lambda: self._kind.publish(process, plan, receipts, note))

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        return self.around("fence", process.id, lambda: self._kind.fence(process, plan))

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return self.around("undo", process.id, lambda: self._kind.undo(process, plan, receipts, used))

    def probe(self, service: Service, process: Process) -> None:
        self.around("probe", service, lambda: self._kind.probe(service, process))


def ours(doing: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except CalveError:
        raise
    except Exception as error:
        raise TemporaryError(
            f"{doing}: {type(error).__name__}: {error}",
            code="internal",
            hint="this is a defect in Calve; please report it with the worker's log",
        ) from error


class GuardedKind(WrappedKind):
    """A kind that raises only our errors."""

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        return ours(f"{call} of {of}", work)


class Kinds(Mapping[str, Kind]):
    """Kinds by name, each made when it is first asked for: a worker imports only what its work needs."""

    def __init__(self, makers: Mapping[str, Callable[[], Kind]]) -> None:
        self._makers = makers
        self._made: dict[str, Kind] = {}
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> Kind:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._makers[name]()
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers


def guarded(kinds: Mapping[str, Kind]) -> Kinds:
    def maker(name: str) -> Callable[[], Kind]:
        return lambda: GuardedKind(kinds[name])

    return Kinds({name: maker(name) for name in kinds})


class GuardedRunner:
    """A runner that raises only our errors."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def slots(self) -> int:
        return self._runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        ours(f"running {group}", lambda: self._runner.run(group, orders, on_result))

    def cancel(self, group: str) -> None:
        ours(f"stopping {group}", lambda: self._runner.cancel(group))

    def close(self) -> None:
        self._runner.close()
