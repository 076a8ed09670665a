"""Exit codes, and which of several wins."""

from collections.abc import Iterable

from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState

DONE = 0  # or nothing to do
FAILED = 1  # the work failed or was cancelled
WRONG = 2  # wrong in the command or the configuration
NOT_FOUND = 3
REFUSED = 4  # because of the state of the data
INTERRUPTED = 130  # safely

# A failure hides a refusal, never the other way round: whoever reads 4 may take it that
# nothing was tried in vain.
_BEST_FIRST = (DONE, WRONG, NOT_FOUND, REFUSED, FAILED, INTERRUPTED)


def worst(codes: Iterable[int]) -> int:
    return max(codes, key=_BEST_FIRST.index, default=DONE)


def of_process(process: Process) -> int:
    """What the end of a process means for the command that ran it."""
    if process.state is ProcessState.COMPLETED:
        return DONE
    if process.state not in PROCESS_TERMINAL:
        return DONE
    # What only planning could find out is no failure of the work.
    if process.state is ProcessState.FAILED and process.error is not None and process.error.refused:
        return REFUSED
    return FAILED
