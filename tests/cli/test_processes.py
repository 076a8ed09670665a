"""`ps`, `show`, `events`, `why`, `wait`, `cancel`, `retry` over a store with processes in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from calve.model.change import Change, MoveTo, NewEvent, NewPin, Result, TaskChange, WritePlan
from calve.model.errors import ErrorInfo
from calve.model.process import (
    Lease,
    NewProcess,
    NewTask,
    Process,
    ProcessId,
    WorkerId,
    new_batch_id,
    new_process_id,
)
from calve.model.states import Leftovers, ProcessState, TaskState
from calve.store import SqlStore, open_store
from support.calve_command import Run

PROCESS_KEYS = [
    "id", "batch", "kind", "state", "source", "destination", "partitions", "tasks", "rows", "files", "bytes",
    "snapshot_id", "retry_of", "error", "created_at", "finished_at",
]  # fmt: skip
REACH = ("source:main", "catalog:lake")


@dataclass(frozen=True, kw_only=True)
class Folder:
    path: Path
    store: SqlStore

    def submit(self, count: int = 1) -> list[Process]:
        batch = new_batch_id() if count > 1 else None
        return self.store.submit(
            [
                NewProcess(
                    id=new_process_id(), kind="export", source="main:db.events", destination="lake.ns.events",
                    lane="catalog:lake", needs=REACH, request="{}", partitions=(f"20240{number + 1}",),
                    batch=batch,
                )
                for number in range(count)
            ]
        )  # fmt: skip

    def lease(self, process_id: ProcessId) -> Lease:
        worker = WorkerId("test")
        claimed = self.store.claim(worker, frozenset(REACH), lease_seconds=60, limit=100)
        fence = next(process.fence for process in claimed if process.id == process_id)
        return Lease(process_id=process_id, worker=worker, fence=fence)

    def end(self, process: Process, state: ProcessState, error: ErrorInfo | None = None) -> None:
        """By the transitions a worker would make."""
        lease = self.lease(process.id)
        row = self.store.apply(
            lease,
            Change(
                MoveTo(ProcessState.RUNNING),
                WritePlan('{"version": 1}'),
                NewTask(number=0, spec="{}"),
                NewPin(name=f"calve-{process.id}-1", source="main", detail="{}"),
                NewEvent(name="planned", message="1 task"),
                expect_version=self.store.process(process.id).version,
            ),
        )
        if state is not ProcessState.COMPLETED:
            self.store.apply(lease, Change(MoveTo(state, error), expect_version=row.version))
            return
        for before, after in ((TaskState.PENDING, TaskState.RUNNING), (TaskState.RUNNING, TaskState.DONE)):
            receipt = '{"task": 0}' if after is TaskState.DONE else ""
            change = TaskChange(
                number=0, before=before, after=after, attempt=1, receipt=receipt, rows=7, files=1, bytes=99
            )
            row = self.store.apply(lease, Change(change))
        row = self.store.apply(lease, Change(MoveTo(ProcessState.PUBLISHING), expect_version=row.version))
        result = Result(rows=7, files=1, bytes=99, snapshot_id="3378215527053790124")
        self.store.apply(lease, Change(MoveTo(state), result, expect_version=row.version))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "calve.toml").write_text(
        '[source.main]\nurl = "chdb://clickhouse"\n[catalog.lake]\ntype = "sql"\n'
        'uri = "sqlite:///lake.db"\nwarehouse = "lake"\n'
    )
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        yield Folder(path=tmp_path, store=store)


def test_a_process_in_JSON_has_exactly_the_fixed_keys_in_their_order(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.COMPLETED)
    (document,) = run_both("ps", "--all", "--json").json
    assert list(document) == PROCESS_KEYS
    assert document["id"] == process.id
    assert document["state"] == "COMPLETED"
    assert document["tasks"] == {"total": 1, "done": 1, "failed": 0}
    assert document["snapshot_id"] == "3378215527053790124"
    assert (document["rows"], document["files"], document["bytes"]) == (7, 1, 99)
    assert document["created_at"].endswith("Z") and len(document["created_at"]) == 20


def test_ps_shows_what_is_under_way_and_with_all_also_what_has_ended(folder: Folder, run_both: Run) -> None:
    ended, live = folder.submit(2)
    folder.end(ended, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke"))
    assert [item["id"] for item in run_both("ps", "--json").json] == [live.id]
    assert {item["id"] for item in run_both("ps", "--all", "--json").json} == {ended.id, live.id}
    assert [item["id"] for item in run_both("ps", "--state", "failed", "--json").json] == [ended.id]
    assert run_both("ps", "--kind", "backup", "--all", "--json").json == []


def test_ps_is_a_table_on_stdout_for_people(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    answer = run_both("ps")
    head, row = answer.out.splitlines()
    assert head.split()[:3] == ["ID", "KIND", "STATE"]
    assert row.startswith(process.id)
    assert answer.err == ""


def test_ps_watch_looks_again_until_it_is_interrupted(
    folder: Folder, run_both: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [folder.submit()[0].id]
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        made.append(folder.submit()[0].id)

    monkeypatch.setattr("calve.cli.ps.sleep", wait)
    answer = run_both("ps", "--watch", "--ids")
    assert answer.code == 130
    assert answer.out.split() == [made[0], made[1], made[0]]
    assert waits == [2.0, 2.0]
    refused = run_both("ps", "--watch", "--json")
    assert refused.code == 2


def test_an_error_in_JSON_has_the_five_fixed_keys(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke", hint="fix it"))
    assert run_both("show", process.id, "--json").json["error"] == {
        "code": "boom", "message": "it broke", "hint": "fix it", "retryable": False, "outcome": "not_applied",
    }  # fmt: skip


def test_show_adds_plan_tasks_and_pins(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.COMPLETED)
    document = run_both("show", process.id, "--json").json
    assert document["plan"] == {"version": 1}
    assert [(task["number"], task["state"], task["attempts"]) for task in document["tasks"]] == [
        (0, "DONE", 1)
    ]
    assert document["tasks"][0]["receipt"] == {"task": 0}
    assert [(pin["name"], pin["state"]) for pin in document["pins"]] == [
        (f"calve-{process.id}-1", "RELEASING")
    ]


def test_show_for_people_is_a_page_with_tasks_pins_and_events(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.COMPLETED)
    page = run_both("show", process.id).out
    for words in (process.id, "COMPLETED", "TASK", "PIN", "EVENT", "planned", "3378215527053790124"):
        assert words in page


def test_a_unique_prefix_and_a_batch_are_ids_too(folder: Folder, run_both: Run) -> None:
    first, second = folder.submit(2)
    assert run_both("show", first.id[:8], "--json").json["id"] == first.id
    assert {item["id"] for item in run_both("show", str(first.batch), "--json").json} == {first.id, second.id}


@pytest.mark.parametrize("name", ["show", "events", "why", "wait", "cancel", "retry", "verify"])
def test_an_id_that_is_not_there_is_not_found(folder: Folder, run_both: Run, name: str) -> None:
    run_both(name, "zzzz").is_error(3, "zzzz", "calve ps --all")


@pytest.mark.parametrize("name", ["show", "wait"])
def test_with_json_an_error_is_a_document_too(folder: Folder, run_both: Run, name: str) -> None:
    answer = run_both(name, "zzzz", "--json")
    assert answer.code == 3
    assert "zzzz" in answer.json["error"]["message"]


def test_events_are_in_order(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.COMPLETED)
    events = run_both("events", process.id, "--json").json
    assert [event["number"] for event in events] == sorted(event["number"] for event in events)
    assert "planned" in [event["name"] for event in events]


def test_why_says_in_one_sentence_that_no_worker_is_there(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    answer = run_both("why", process.id)
    assert "calve worker" in answer.out
    assert len(answer.out.splitlines()) == 1


def test_the_worst_exit_code_wins(folder: Folder, run_both: Run) -> None:
    good, bad = folder.submit(2)
    folder.end(good, ProcessState.COMPLETED)
    folder.end(bad, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke", hint="fix it"))
    assert run_both("wait", good.id).code == 0
    run_both("wait", str(good.batch)).is_error(1, "it broke", "fix it")


def test_a_cancel_ends_a_process_even_where_no_worker_runs(folder: Folder, run_both: Run) -> None:
    first, second = folder.submit(2)
    answer = run_both("cancel", first.id, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["state"] == "CANCELLED"
    assert folder.store.process(second.id).owner is None, "a cancel must not begin other work"


def without_its_catalog(folder: Folder) -> None:
    file = folder.path / "calve.toml"
    file.write_text(file.read_text().replace("[catalog.lake]", "[catalog.renamed]"))


def test_a_cancel_ends_what_nobody_ever_held_though_nobody_reaches_it(folder: Folder, run_both: Run) -> None:
    first, second = folder.submit(2)
    without_its_catalog(folder)
    answer = run_both("cancel", first.id)
    assert answer.code == 0, answer.err
    assert folder.store.process(first.id).state is ProcessState.CANCELLED
    assert folder.store.process(second.id).owner is None, "a cancel must not begin other work"


def test_L1_a_cancel_that_nobody_can_carry_out_is_noted_and_does_not_wait(
    folder: Folder, run_both: Run
) -> None:
    """A worker had it, so there may be pins and files, which only a worker that reaches them can clear."""
    (process,) = folder.submit()
    folder.store.yield_(folder.lease(process.id))
    without_its_catalog(folder)
    answer = run_both("cancel", process.id)
    assert answer.code == 1
    assert "the cancel is recorded" in answer.err and "catalog:lake" in answer.err
    assert folder.store.process(process.id).cancel_requested


def test_L18_a_cancel_that_comes_too_late_says_so_and_changes_nothing(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.COMPLETED)
    answer = run_both("cancel", process.id)
    assert answer.code == 4
    assert "too late" in answer.err
    assert folder.store.process(process.id).state is ProcessState.COMPLETED


def test_a_retry_is_a_new_process_and_says_that_no_worker_is_there(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    folder.end(process, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke"))
    answer = run_both("retry", process.id, "--no-wait=queued", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["retry_of"] == process.id
    assert answer.json["id"] != process.id
    assert "calve worker" in answer.err
    assert folder.store.process(process.id).state is ProcessState.FAILED
    assert folder.store.process(process.id).leftovers in (Leftovers.NONE, Leftovers.ADOPTED)


def test_a_batch_with_nothing_to_retry_says_so(folder: Folder, run_both: Run) -> None:
    for process in (made := folder.submit(2)):
        folder.end(process, ProcessState.COMPLETED)
    answer = run_both("retry", str(made[0].batch))
    assert (answer.code, answer.out.strip()) == (0, "")
    assert f"nothing to retry: all of {made[0].batch} is COMPLETED" in answer.err


def test_what_completed_or_is_under_way_is_not_retried(folder: Folder, run_both: Run) -> None:
    done, live = folder.submit(2)
    folder.end(done, ProcessState.COMPLETED)
    run_both("retry", done.id).is_error(4, "COMPLETED")
    run_both("retry", live.id).is_error(4, "has not ended", f"calve wait {live.id}")


def test_what_did_not_complete_cannot_be_verified(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    run_both("verify", process.id).is_error(4, process.id, "calve show")


def test_ps_filters_by_table_destination_batch_and_age(folder: Folder, run_both: Run) -> None:
    first, second = folder.submit(2)
    (other,) = folder.store.submit(
        [
            NewProcess(
                id=new_process_id(), kind="export", source="main:db.other", destination="lake.ns.other",
                lane="catalog:lake", needs=REACH, request="{}",
            )
        ]
    )  # fmt: skip

    def listed(*filters: str) -> list[str]:
        return [item["id"] for item in run_both("ps", "--json", *filters).json]

    assert listed("--table", "db.other") == listed("--table", "main:db.other") == [other.id]
    assert listed("--to", "lake.ns.events") == [second.id, first.id]
    assert listed("--batch", str(first.batch)) == [second.id, first.id]
    assert listed("--since", "1h") == [other.id, second.id, first.id]
    assert run_both("ps", "--ids", "--to", "lake.ns.other").out == f"{other.id}\n"
    run_both("ps", "--since", "soon").is_error(2, "invalid age 'soon'", "12h")


def test_ps_shows_an_age_a_duration_when_it_ended_and_the_batch(folder: Folder, run_both: Run) -> None:
    ended, _ = folder.submit(2)
    folder.end(ended, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke"))
    head, live_row, ended_row = run_both("ps", "--all").out.splitlines()
    assert head.split()[-4:] == ["AGE", "DURATION", "ENDED", "BATCH"]
    assert live_row.split()[-2:] == ["-", str(ended.batch)]
    assert ended_row.split()[-1] == str(ended.batch) and ":" in ended_row.split()[-2]


def test_a_timeout_stops_waiting_and_says_how_to_go_on(folder: Folder, run_both: Run) -> None:
    (process,) = folder.submit()
    answer = run_both("wait", process.id, "--timeout", "0s")
    assert answer.code == 130
    assert "timed out waiting" in answer.err and f"calve wait {process.id}" in answer.err
    assert folder.store.process(process.id).state is ProcessState.PENDING
    run_both("wait", process.id, "--timeout", "soon").is_error(2, "invalid timeout 'soon'", "30m")


def test_a_batch_is_named_when_it_is_queued_and_summed_up_when_it_ended(
    folder: Folder, run_both: Run
) -> None:
    good, bad = folder.submit(2)
    folder.end(good, ProcessState.COMPLETED)
    folder.end(bad, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke"))
    waited = run_both("wait", str(good.batch))
    assert "total: 2 processes (1 completed, 1 failed), 7 rows, 1 file, 99 B" in waited.err
    (again,) = folder.submit()
    folder.end(again, ProcessState.FAILED, ErrorInfo(code="boom", message="it broke"))
    queued = run_both("retry", bad.id, again.id, "--no-wait=queued")
    batch = folder.store.process(ProcessId(queued.out.split()[0])).batch
    assert f"batch {batch}: 2 processes" in queued.err and f"follow with: calve wait {batch}" in queued.err
