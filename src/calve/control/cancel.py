"""Asking a process to stop. The worker that owns it carries it out; a terminal state never turns (L18)."""

from dataclasses import dataclass

from calve.control.ports import Store
from calve.model.ids import ProcessId
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState


@dataclass(frozen=True, kw_only=True)
class CancelAnswer:
    process: Process
    accepted: bool  # it was asked to stop, now or before; False: it had ended already
    message: str


def cancel(store: Store, process_id: ProcessId) -> CancelAnswer:
    process = store.request_cancel(process_id)
    if process.state is ProcessState.CANCELLED:
        return CancelAnswer(process=process, accepted=True, message="it is already cancelled")
    if process.state in PROCESS_TERMINAL:
        return CancelAnswer(
            process=process, accepted=False, message=f"too late: it is already {process.state}"
        )
    if process.state is ProcessState.PUBLISHING:
        message = "it is publishing; the publish is stopped if it has not happened yet"
    else:
        message = "it is being stopped"
    return CancelAnswer(process=process, accepted=True, message=message)
