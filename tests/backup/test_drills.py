"""Drills: a sample of a backup is restored into an engine of a worker, compared by value, and removed."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from backup_place import TABLES, BackupPlace
from schedule_scene import finish, look, names, scheduled

from calve.app.backups import drills, schedule_view, schedules
from calve.app.calve import Calve
from calve.app.doctor.examine import examine
from calve.archive.manifest import Manifest
from calve.backup.drill_plan import DrillPayload, DrillReceipt, DrillRequest, sample, spans_of
from calve.backup.drill_task import digest
from calve.model.errors import DamagedError, NotFoundError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.testing.faults import Break, Crash, Faults, crashing_kind
from support.local_runner import LocalRunner

ODD = (
    "CREATE TABLE db.odd (id UInt64, at DateTime, state AggregateFunction(sum, UInt64), tags Map(String, Array(UInt8)),"
    " note Nullable(String), INDEX at at TYPE minmax, PROJECTION p (SELECT id, count() GROUP BY id))"
    " ENGINE = MergeTree ORDER BY id TTL at + INTERVAL 1 DAY SETTINGS min_bytes_for_wide_part = 0",
    "SYSTEM STOP TTL MERGES db.odd",
    "INSERT INTO db.odd SELECT number, now() - 864000, arrayReduce('sumState', [number]), map('a', [1, 2]), NULL"
    " FROM numbers(1000)",
    "CREATE VIEW db.view AS SELECT count() FROM db.odd",
    "CREATE TABLE db.log (id UInt64) ENGINE = Log",
    "DELETE FROM db.events WHERE id % 7 = 0 SETTINGS mutations_sync = 2",
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where engines of tasks have their folders."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def runner(engines: Path) -> Iterator[LocalRunner]:
    made = LocalRunner(slots=1, environment=os.environ | {"TMPDIR": str(engines)})
    yield made
    made.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[BackupPlace]:
    """One backup `b` for tests that change nothing."""
    place = BackupPlace(tmp_path_factory.mktemp("drills"))
    place.execute(*TABLES, *ODD)
    place.create("b")
    place.runner = runner  # type: ignore[assignment]
    yield place
    place.close()


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "_AGAIN_SECONDS", 0.0)


def _drill(place: BackupPlace, name: str, restore_bytes: int = 10**9) -> Process:
    with place.app() as app, Calve(app.config) as calve:
        queued = calve.backup_drill(name, restore_bytes=restore_bytes)
        return finish(place, list(queued.processes))[0]


@contextmanager
def damaged(place: BackupPlace, manifest: Manifest) -> Iterator[None]:
    """One bit of one object of the backup."""
    stored = next(iter(manifest.places.values())).place
    [file, *_] = sorted((place.backups / "parts" / stored).iterdir())
    before = file.read_bytes()
    file.write_bytes(bytes([before[0] ^ 1]) + before[1:])
    try:
        yield
    finally:
        file.write_bytes(before)


def test_a_drill_restores_tables_of_parts_compares_every_row_and_leaves_nothing(
    kept: BackupPlace, engines: Path
) -> None:
    before = kept.checksum("db.events", "db.odd", "db.users")
    done = _drill(kept, "b")
    assert (done.state, done.rows) == (ProcessState.COMPLETED, kept.manifest("b").rows), done.error
    assert (
        done.files == kept.manifest("b").parts
    )  # rows past their TTL too; no view, and no table of another engine
    assert kept.checksum("db.events", "db.odd", "db.users") == before
    assert _scratch(engines) == []
    with kept.app() as app, Calve(app.config) as calve:
        [listed] = calve.backup_list()["backups"]
        assert listed["restored_at"] is not None
        proofs = app.registry.proofs([app.store.process(done.id).id, kept.manifest("b").process_id])  # type: ignore[list-item]
        assert [(one.ok, one.depth) for one in proofs] == [(True, "restored")]
        [shown] = calve.vault(name="b")["backups"] if calve.vault()["total"] else [{}]
        assert not shown or shown["proven"]["how"] == "restored"


def _scratch(folder: Path) -> list[Path]:
    """What engines that restored something have left there."""
    return [path for path in folder.rglob("*") if path.name == "checksums.txt"]


def test_a_drill_asks_the_backup_alone_whatever_became_of_the_source(
    kept: BackupPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those of the manifest, the values those of the checksums that were backed up with them."""
    monkeypatch.setattr(kept, "open_source", None)  # whoever visits it fails
    done = _drill(kept, "b")
    assert (done.state, done.rows) == (ProcessState.COMPLETED, kept.manifest("b").rows), done.error


def test_a_sample_stays_within_its_quota_and_one_that_fits_nothing_says_so(kept: BackupPlace) -> None:
    manifest = kept.manifest("b")
    sizes = sorted(part.bytes for table in manifest.tables for part in table.parts)
    for quota, seed in itertools.product((sizes[0], sizes[1], sum(sizes) // 2, sum(sizes)), "abc"):
        chosen = [
            manifest.tables[one.table].parts[at] for one in sample(manifest, quota, seed) for at in one.parts
        ]
        assert 0 < sum(part.bytes for part in chosen) <= quota
        assert sample(manifest, quota, seed) == sample(manifest, quota, seed)
    assert {sample(manifest, sizes[1], str(seed)) for seed in range(20)} != {sample(manifest, sizes[1], "0")}
    refused = _drill(kept, "b", 10)
    assert refused.state is ProcessState.FAILED and refused.error is not None
    assert refused.error.code == "drill_quota"
    with kept.app() as app, Calve(app.config) as calve, pytest.raises(NotFoundError):
        calve.backup_drill("nobody")


def test_damage_is_found_told_and_kept_as_a_proof(kept: BackupPlace) -> None:
    manifest = kept.manifest("b")
    with damaged(kept, manifest):
        failed = _drill(kept, "b")
        assert failed.state is ProcessState.FAILED and failed.error is not None
        assert failed.error.code == "drill_failed"
        assert "does not match its checksum" in failed.error.message
        with kept.app() as app:
            newest = app.registry.proofs([manifest.process_id])[0]  # type: ignore[list-item]
            assert (newest.ok, newest.depth) == (False, "restored")
    assert _drill(kept, "b").state is ProcessState.COMPLETED


def test_what_is_read_back_is_divided_among_tasks(kept: BackupPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    from calve.backup import drill_plan

    monkeypatch.setattr(drill_plan, "_PARTS_AT_ONCE", 2)
    manifest = kept.manifest("b")
    spans = spans_of(manifest)
    assert [at for first, end in spans for at in range(first, end)] == list(range(len(manifest.places)))
    assert len(spans) > 1
    request = DrillRequest(
        backup="b", backup_process=manifest.process_id, location=kept.location.url, read_share=1.0
    )
    with kept.app() as app:
        [queued] = app.store.submit([request.process(deadline_seconds=3600)])
        [done] = finish(kept, [queued])
        assert (done.state, done.files) == (ProcessState.COMPLETED, len(manifest.places))
        assert done.tasks.total == len(spans)
        with damaged(kept, manifest):
            [queued] = app.store.submit([request.process(deadline_seconds=3600)])
            [failed] = finish(kept, [queued])
        assert failed.error is not None and failed.error.code == "drill_failed"


def test_a_schedule_reads_back_drills_now_and_then_and_deletes_only_after_it(
    empty: BackupPlace, runner: LocalRunner
) -> None:
    empty.execute(*TABLES)
    empty.runner = runner  # type: ignore[assignment]
    rules = {"verify": "100%", "drill": "7d", "keep_last": "1"}
    with scheduled(empty, "2026-01-01 00:30", **rules) as (app, schedule, clock):
        look(empty, app, schedule)
        clock.at = schedule.last(clock.store.now()).begins_at
        made = look(empty, app, schedule)
        proofs = look(empty, app, schedule)
        assert [(one.kind, one.state) for one in proofs] == [("drill", ProcessState.COMPLETED)] * 2
        assert [one.rows for one in proofs] == [0, empty.manifest(names(made)[0]).rows]
        assert schedule_view.schedule_show(app, "nightly")["drilled_at"] is not None
        assert look(empty, app, schedule) == []
        findings = {one.part: one for one in examine(app, spark=False)}
        assert not findings["schedule:nightly"].warning
        assert "a restore was last proven" in findings["schedule:nightly:drill"].words
        # The next one is damaged: it is told, no other drill is due, and what was whole stays.
        clock.at += timedelta(days=1)
        made += look(empty, app, schedule)
        with damaged(empty, empty.manifest(names(made)[1])):
            [failed] = look(empty, app, schedule)
            assert failed.error is not None and failed.error.code == "drill_failed"
            clock.at += timedelta(hours=5)
            assert look(empty, app, schedule) == []  # it has its answer
            damage = {one.part: one for one in examine(app, spark=False)}[f"backup:{names(made)[1]}"]
            assert not damage.ok and "found damaged" in damage.words
        assert {one["name"] for one in Calve(app.config).backup_list()["backups"]} == set(names(made))
        clock.at += timedelta(days=7)
        begun = look(empty, app, schedule)  # a backup; and a drill of the one before it, which is whole again
        assert [one.kind for one in begun] == ["backup", "drill"]
        made += begun[:1]
        assert {one.state for one in look(empty, app, schedule)} == {ProcessState.COMPLETED}
        look(empty, app, schedule)
        left = {one["name"] for one in Calve(app.config).backup_list()["backups"]}
        assert left == set(names(made[1:]))  # the last, and the one that was found damaged


def test_a_drill_is_begun_once_by_workers_that_look_at_once(place: BackupPlace) -> None:
    with scheduled(place, "2026-01-01 00:30", drill="7d") as (app, schedule, clock), place.app() as other:
        look(place, app, schedule)
        clock.at = schedule.last(clock.store.now()).begins_at
        [made] = look(place, app, schedule)
        unread = replace(made, request='{"schedule": "nightly"}')
        with pytest.raises(DamagedError):  # which a look notes, and goes on
            drills.prove(app, schedule, unread, clock.now())
        second: list[Process] = []
        submit = clock.store.submit

        def after_another(*given: object, **named: object) -> object:
            clock.store.submit = submit
            second.extend(drills.prove(other, schedule, made, clock.now()))
            return submit(*given, **named)

        clock.store.submit = after_another
        assert drills.prove(app, schedule, made, clock.now()) == []
        assert len(second) == 1
        app.store.request_cancel(second[0].id)


def test_drills_that_die_at_any_call_end_with_one_answer_and_leave_nothing(
    place: BackupPlace, runner: LocalRunner, engines: Path
) -> None:
    """The kind's own calls; that a process is begun once is the schedule's test."""
    place.create("b")
    place.runner = runner  # type: ignore[assignment]
    broken = 0
    for at, how in itertools.product(range(1, 3), Break):
        with place.app() as app, Calve(app.config) as calve:
            queued = list(calve.backup_drill("b").processes)
            faults = Faults(at=at, how=how)
            kinds = {"drill": crashing_kind(app.kinds["drill"], faults)}
            app.__dict__["kinds"] = kinds
            worker = app.worker()
            with contextlib.suppress(Crash):
                for _ in range(400):
                    worker.tick()
                    if app.store.process(queued[0].id).finished_at:
                        break
            broken += len(faults.calls) >= at
        [done] = finish(place, queued)
        assert done.state is ProcessState.COMPLETED, (at, how, done.error)
    assert broken == 8
    with place.app() as app:
        proofs = app.registry.proofs([place.manifest("b").process_id])  # type: ignore[list-item]
        assert {one.ok for one in proofs} == {True}
    assert _scratch(engines) == []


@pytest.mark.programs
def test_what_a_killed_drill_restored_is_swept_by_the_next_engine(kept: BackupPlace, tmp_path: Path) -> None:
    manifest = kept.manifest("b")
    payload = DrillPayload(
        key=f"b@{manifest.number}",
        backup_process=manifest.process_id,
        location=kept.location.url,
        manifest=digest(manifest),
        sample=sample(manifest, 10**9, "x")[0],
    )
    program = (
        "import os, signal, sys\n"
        "from calve.backup import drill_task\n"
        "def dies(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if sys.argv[2] == 'dies': drill_task._compared = dies\n"
        "print(drill_task.run(sys.argv[1]))\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def run(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, payload.to_json(), how]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)

    assert run("dies").returncode == -signal.SIGKILL
    assert _scratch(tmp_path) != []
    lived = run("lives")
    assert lived.returncode == 0, lived.stderr
    receipt = DrillReceipt.from_json(json.loads(lived.stdout)["receipt"])
    assert receipt.flaws == () and receipt.rows > 0
    assert _scratch(tmp_path) == []
