"""Watching processes until they end, for a progress bar. Reads only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from calve.control.ports import StoreReader
from calve.model.errors import StoreError
from calve.model.ids import ProcessId
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL

_READS_THAT_MAY_FAIL = 10  # in a row: a store that blinks ends no watching


@dataclass(frozen=True, kw_only=True)
class Progress:
    processes: tuple[Process, ...]

    @property
    def tasks_done(self) -> int:
        return sum(process.tasks.done for process in self.processes)

    @property
    def tasks_total(self) -> int:
        """Known once all are planned; grows until then."""
        return sum(process.tasks.total for process in self.processes)

    @property
    def rows(self) -> int:
        return sum(process.rows for process in self.processes)

    @property
    def bytes(self) -> int:
        return sum(process.bytes for process in self.processes)

    @property
    def ended(self) -> bool:
        return all(process.state in PROCESS_TERMINAL for process in self.processes)


def follow(
    reader: StoreReader,
    ids: Sequence[ProcessId],
    *,
    wait: Callable[[float], object],
    poll_seconds: float = 0.5,
) -> Iterator[Progress]:
    """Where the processes stand, at once and after each wait, until all have ended. Processes that
    ended are not read again. `wait` is `time.sleep`, or anything that can be interrupted."""
    known: dict[ProcessId, Process] = {}
    failed = 0
    while True:
        try:
            for process_id in ids:
                last = known.get(process_id)
                if last is None or last.state not in PROCESS_TERMINAL:
                    known[process_id] = reader.process(process_id)
            failed = 0
        except StoreError:
            failed += 1
            if failed >= _READS_THAT_MAY_FAIL:
                raise
        else:
            progress = Progress(processes=tuple(known[process_id] for process_id in ids))
            yield progress
            if progress.ended:
                return
        wait(poll_seconds)
