"""The documents of a server become values again, and nothing that a page shows is lost on the way."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calve.app import view
from calve.app.front import (
    CancelAnswer,
    ExportAnswer,
    ProcessDetail,
    Standing,
    Submitted,
    WorkerState,
    WorkerStatus,
)
from calve.client import values
from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import Breaker, Event, Pin, Process, Task, TaskCounts, Worker
from calve.model.states import PinState, ProcessState, TaskState

# However busy the machine is.
law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
text = st.text(max_size=8)
ids = st.text("abcdefgh2345", min_size=1, max_size=6)
number = st.integers(0, 2**62)
times = st.integers(0, 4 * 10**15).map(
    lambda us: datetime(1970, 1, 2, tzinfo=UTC) + timedelta(microseconds=us)
)
maybe_time = st.none() | times
texts = st.lists(text, max_size=3).map(tuple)
# What kinds keep as text: JSON, or a place.
kept = (
    st.just("")
    | text
    | st.dictionaries(text, st.integers() | text | st.lists(text), max_size=3).map(json.dumps)
)
errors = st.none() | st.builds(
    ErrorInfo, code=ids, message=text, hint=text, retryable=st.booleans(), outcome=st.sampled_from(Outcome),
    service=text, refused=st.booleans(),
)  # fmt: skip
processes = st.builds(
    Process, id=ids, kind=st.sampled_from(["export", "backup", "optimize"]), state=st.sampled_from(ProcessState),
    version=number, source=text, destination=text, lane=text, needs=texts, request=kept, partitions=texts,
    batch=st.none() | ids, priority=number, retry_of=st.none() | ids, adopted=st.booleans(), created_at=times,
    deadline_at=times, finished_at=maybe_time, cancel_requested=st.booleans(), owner=st.none() | ids,
    planned=st.booleans(), rows=number, files=number, bytes=number, snapshot_id=st.none() | ids, result=kept,
    tasks=st.builds(TaskCounts, total=number, done=number, failed=number, running=number), error=errors, damaged=text,
)  # fmt: skip
events = st.builds(Event, process_id=ids, at=times, name=ids, message=text, number=number)
breakers = st.builds(Breaker, service=text, reason=text, opened_at=times, probe_at=times, probes=number)
details = st.builds(
    ProcessDetail,
    process=processes,
    plan=st.none() | kept.filter(bool),
    tasks=st.lists(
        st.builds(
            Task, process_id=ids, number=number, state=st.sampled_from(TaskState), attempt=number, spec=kept,
            receipt=kept, error=errors, started_at=maybe_time, finished_at=maybe_time,
        ), max_size=2,
    ).map(tuple),
    pins=st.lists(
        st.builds(
            Pin, name=ids, process_id=ids, source=text, detail=kept, state=st.sampled_from(PinState),
            created_at=maybe_time, release_attempts=number, error=errors,
        ), max_size=2,
    ).map(tuple),
    events=st.lists(events, max_size=2).map(tuple),
)  # fmt: skip
many = st.lists(processes, max_size=2, unique_by=lambda one: one.id).map(tuple)


def sent(document: Any) -> Any:
    """As it arrives: through JSON."""
    return json.loads(json.dumps(document))


@law
@given(processes)
def test_a_process(process: Process) -> None:
    document = sent(view.served_json(process))
    again = values.process(document)
    assert view.served_json(again) == document
    assert view.process_json(again) == sent(view.process_json(process))


@law
@given(details)
def test_what_show_has(detail: ProcessDetail) -> None:
    document = sent(view.served_detail_json(detail))
    again = values.detail(document)
    assert view.served_detail_json(again) == document
    assert view.detail_json(again) == sent(view.detail_json(detail))


@law
@given(many, st.dictionaries(ids, number, max_size=2), st.dictionaries(ids, breakers, max_size=2))
def test_a_standing(processes: Any, sizes: Any, outages: Any) -> None:
    standing = Standing(processes=processes, own_worker=False, sizes=sizes, outages=outages)
    document = sent(view.standing_json(standing))
    again = values.standing(document)
    assert view.standing_json(again) == document
    assert (again.ended, again.pinned) == (standing.ended, standing.pinned)


@law
@given(many, text, texts, st.lists(errors.filter(bool), max_size=2))
def test_answers_to_changes(processes: Any, words: str, unchanged: Any, refused: Any) -> None:
    joined = frozenset(process.id for process in processes[:1])
    for process in processes:
        cancelled = sent(view.cancelled_json(CancelAnswer(process=process, accepted=True, message=words)))
        assert view.cancelled_json(values.cancel_answer(cancelled)) == cancelled
    made = sent(view.submitted_json(Submitted(processes=processes, joined=joined)))
    assert view.submitted_json(values.submitted(made)) == made
    answer = ExportAnswer(
        processes=processes, joined=joined, source=words, destination=words, partitions=unchanged,
        unchanged=unchanged, refused=tuple(refused), unreachable=words, known=({"id": words},),
    )  # fmt: skip
    document = sent(view.export_answer_json(answer))
    assert view.export_answer_json(values.export_answer(document)) == document


@law
@given(st.builds(
    Worker, id=ids, host=text, slots=number, started_at=times, heartbeat_at=times, error=errors,
    reach=st.sets(st.sampled_from(["source:main", "catalog:lake", "kind:export", "kind:backup"])).map(sorted).map(tuple),
), st.sampled_from(WorkerState), number)  # fmt: skip
def test_a_worker(worker: Worker, state: WorkerState, held: int) -> None:
    document = sent(view.worker_json(WorkerStatus(worker=worker, state=state, processes=held)))
    assert view.worker_json(values.worker(document)) == document


@law
@given(events)
def test_an_event(event: Event) -> None:
    document = sent(view.event_json(event))
    assert view.event_json(values.event(document)) == document
