"""What the end of a process means for the exit code of the command that ran it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from calve.cli import output
from calve.model.errors import CalveError, ErrorInfo, PermanentError, RefusedError, TemporaryError
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ended(state: ProcessState, error: CalveError | None = None) -> Process:
    return Process(
        id=ProcessId("p"), kind="export", state=state, version=1, source="main:db.t", destination="lake.ns.t",
        lane="lake", needs=(), request="{}", partitions=(), batch=None, priority=0, retry_of=None, adopted=False,
        created_at=NOW, deadline_at=NOW, error=error.info if error else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [
        (ProcessState.COMPLETED, None, output.DONE),
        (ProcessState.COMPLETED, RefusedError("an earlier try", code="x"), output.DONE),
        (ProcessState.FAILED, RefusedError("row policies", code="row_policies"), output.REFUSED),
        (ProcessState.FAILED, PermanentError("damaged", code="part_damaged"), output.FAILED),
        (ProcessState.FAILED, TemporaryError("down", code="storage_failed"), output.FAILED),
        (ProcessState.CANCELLED, RefusedError("row policies", code="row_policies"), output.FAILED),
        (ProcessState.CANCELLED, None, output.FAILED),
        (ProcessState.RUNNING, None, output.DONE),
    ],
    ids=["done", "done-after-refusal", "refused", "damaged", "down", "cancelled-after-refusal", "cancelled", "running"],
)  # fmt: skip
def test_a_refusal_is_4_and_every_other_bad_end_is_1(
    state: ProcessState, error: CalveError | None, code: int
) -> None:
    assert output.of_process(ended(state, error)) == code


def test_a_refusal_stays_one_in_the_store_and_an_older_error_is_none() -> None:
    refusal = RefusedError("row policies", code="row_policies").info
    assert ErrorInfo.from_json(refusal.to_json()) == refusal and refusal.refused
    older = {name: value for name, value in refusal.to_json().items() if name != "refused"}
    assert ErrorInfo.from_json(older) == replace(refusal, refused=False)
