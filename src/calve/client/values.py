"""Documents of a server as values of the model: the inverse of `app.view`.

Law: `view(value(document)) == document`. What a document lacks (locks, the lane, the request) is blank.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from calve.app.front import (
    CancelAnswer,
    ExportAnswer,
    Json,
    ProcessDetail,
    Reason,
    Standing,
    Submitted,
    WorkerState,
    WorkerStatus,
)
from calve.client.tables import Process
from calve.model import process as model
from calve.model.errors import ErrorInfo
from calve.model.process import (
    BatchId,
    Breaker,
    Event,
    Granted,
    Pin,
    ProcessId,
    Task,
    TaskCounts,
    Worker,
    WorkerId,
)
from calve.model.reach import with_kinds
from calve.model.states import PinState, ProcessState, TaskState

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def process(document: Json) -> Process:
    counts = document["tasks"]
    created = time(document["created_at"]) or _LONG_AGO
    return Process(
        id=ProcessId(document["id"]),
        kind=document["kind"],
        state=ProcessState(document["state"]),
        version=0,
        source=document["source"],
        destination=document["destination"],
        lane="",
        needs=tuple(document["needs"]),
        request="",
        partitions=tuple(document["partitions"]),
        batch=BatchId(document["batch"]) if document["batch"] else None,
        priority=0,
        retry_of=ProcessId(document["retry_of"]) if document["retry_of"] else None,
        adopted=False,
        created_at=created,
        deadline_at=time(document["deadline_at"]) or created,
        finished_at=time(document["finished_at"]),
        cancel_requested=document["cancel_requested"],
        owner=WorkerId(document["owner"]) if document["owner"] else None,
        planned=document["planned"],
        tasks=TaskCounts(
            total=counts["total"],
            done=counts["done"],
            failed=counts["failed"],
            running=document["running_tasks"],
        ),
        rows=document["rows"],
        files=document["files"],
        bytes=document["bytes"],
        snapshot_id=document["snapshot_id"],
        result=_text(document["result"]),
        error=error(document["error"]),
        damaged=document.get("damaged", ""),
    )


def detail(document: Json) -> ProcessDetail:
    found = process(document | {"tasks": document["task_counts"]})
    return ProcessDetail(
        process=found,
        plan=_text(document["plan"]) or None,
        tasks=tuple(_task(found.id, one) for one in document["tasks"]),
        pins=tuple(_pin(found.id, one) for one in document["pins"]),
        events=tuple(event(one) for one in document["events"]),
    )


def _task(process_id: ProcessId, document: Json) -> Task:
    return Task(
        process_id=process_id,
        number=document["number"],
        state=TaskState(document["state"]),
        attempt=document["attempts"],
        spec="",
        started_at=time(document["started_at"]),
        finished_at=time(document["finished_at"]),
        receipt=_text(document["receipt"]),
        error=error(document["error"]),
    )


def _pin(process_id: ProcessId, document: Json) -> Pin:
    return Pin(
        name=document["name"],
        process_id=process_id,
        source=document["source"],
        detail="",
        state=PinState(document["state"]),
        created_at=time(document["created_at"]),
        release_attempts=document["release_attempts"],
        error=error(document["error"]),
    )


def event(document: Json) -> Event:
    return Event(
        process_id=ProcessId(document["process"]),
        number=document["number"],
        at=time(document["at"]) or _LONG_AGO,
        name=document["name"],
        message=document["message"],
    )


def reason(document: Json, of: model.Process) -> Reason:
    return Reason(process=of, why=document["why"])


def worker(document: Json) -> WorkerStatus:
    state = WorkerState(document["state"])
    reach = with_kinds(frozenset(document["reach"]), document["kinds"])
    return WorkerStatus(
        worker=Worker(
            id=WorkerId(document["id"]),
            host=document["host"],
            reach=tuple(sorted(reach)),
            slots=document["slots"],
            started_at=time(document["started_at"]) or _LONG_AGO,
            heartbeat_at=time(document["heartbeat_at"]) or _LONG_AGO,
            draining=state is WorkerState.DRAINING,
            error=error(document["error"]),
            version=document.get("version", ""),  # a server of before it was shown
            granted=Granted(**granted) if (granted := document.get("granted")) else None,
        ),
        state=state,
        processes=document["processes"],
    )


def breaker(document: Json) -> Breaker:
    return Breaker(
        service=document["service"],
        reason=document["reason"],
        opened_at=time(document["opened_at"]) or _LONG_AGO,
        probe_at=time(document["probe_at"]) or _LONG_AGO,
        probes=document["probes"],
    )


def outages(document: Mapping[str, Json]) -> dict[ProcessId, Breaker]:
    return {ProcessId(key): breaker(one) for key, one in document.items()}


def standing(document: Json) -> Standing:
    return Standing(
        processes=tuple(process(one) for one in document["processes"]),
        own_worker=False,
        sizes={ProcessId(key): size for key, size in document["sizes"].items()},
        outages=outages(document["outages"]),
    )


def submitted(document: Json) -> Submitted:
    return Submitted(
        processes=tuple(process(one) for one in document["processes"]),
        joined=frozenset(ProcessId(one) for one in document["joined"]),
    )


def export_answer(document: Json) -> ExportAnswer:
    made = submitted(document)
    return ExportAnswer(
        processes=made.processes,
        joined=made.joined,
        source=document["source"],
        destination=document["destination"],
        partitions=tuple(document["partitions"]),
        known=tuple(document["known"]),
        unchanged=tuple(document["unchanged"]),
        refused=tuple(ErrorInfo.from_json(one) for one in document["refused"]),
        unreachable=document["unreachable"],
        unaware_workers=tuple(document.get("unaware_workers", ())),
    )


def cancel_answer(document: Json) -> CancelAnswer:
    return CancelAnswer(
        process=process(document["process"]), accepted=document["accepted"], message=document["message"]
    )


def error(document: Mapping[str, Any] | None) -> ErrorInfo | None:
    return ErrorInfo.from_json(document) if document else None


def time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value)
