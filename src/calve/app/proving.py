"""Proving an export after the fact, from what the store has of it."""

from calve.app.wiring import App
from calve.lake.verify import Proof, verify
from calve.model.errors import RefusedError
from calve.model.ids import ProcessId
from calve.model.plan import ExportPlan
from calve.model.receipt import Receipt
from calve.model.states import ProcessState, TaskState


def prove(app: App, process_id: ProcessId) -> Proof:
    """RefusedError for what published nothing that could be read back."""
    process = app.store.process(process_id)
    plan = app.store.plan(process_id)
    if process.kind != "export" or process.state is not ProcessState.COMPLETED:
        raise RefusedError(
            f"process {process_id} is a {process.kind} and {process.state.value}: only an export that "
            "completed can be verified",
            code="not_verifiable",
            hint=f"calve show {process_id}",
        )
    if plan is None or process.snapshot_id is None:
        raise RefusedError(
            f"process {process_id} published nothing of its own: all was exported already",
            code="not_verifiable",
            hint=f"calve show {process_id} names the process that did; verify that one",
        )
    tasks = app.store.tasks(process_id, frozenset({TaskState.DONE}))
    receipts = [Receipt.from_json(task.receipt) for task in tasks if task.receipt]
    read = ExportPlan.from_json(plan)
    return verify(app.catalog(read.destination.catalog), read, receipts, process.snapshot_id)
