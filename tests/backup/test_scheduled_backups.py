"""Backups by rule: one for each occurrence, whoever looks and however often; what was missed runs once."""

import itertools
from datetime import timedelta
from functools import partial

import pytest
from backup_place import BackupPlace
from schedule_scene import MovedStore, finish, look, names, scheduled

from calve.app.backups import schedule_view, schedules
from calve.app.calve import Calve
from calve.app.wiring import App
from calve.backup import deletion
from calve.model.access import Asked, Proof
from calve.model.errors import CalveError
from calve.model.process import Process, ProcessQuery
from calve.model.states import ProcessState
from calve.model.tier import Hold
from calve.policy.schedule import Schedule
from calve.testing.faults import Break, Crash, Faults, crashing_store


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is not too soon after the last one: clocks here are moved, and the database's is not."""
    monkeypatch.setattr(schedules, "_AGAIN_SECONDS", 0.0)


def _states(app: App) -> dict[str, str]:
    found = schedule_view.schedule_show(app, "nightly")["occurrences"]
    return {one["occurrence"]: one["state"] for one in found}


def test_a_schedule_begins_with_its_next_occurrence_and_runs_each_once(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock):
        assert look(place, app, schedule) == []
        assert schedule_view.schedule_list(app)[0]["next"]["backup"] == "nightly-2026-11-19"
        clock.move("2026-11-19 01:00")
        [made] = look(place, app, schedule)
        assert (made.state, names([made])) == (ProcessState.COMPLETED, ["nightly-2026-11-19"])
        assert place.manifest("nightly-2026-11-19").schedule == "nightly"
        assert look(place, app, schedule) == []
        clock.move("2026-11-20 00:59")
        assert look(place, app, schedule) == []
        clock.move("2026-11-20 01:00")
        assert names(look(place, app, schedule)) == ["nightly-2026-11-20"]
        assert schedule_view.schedule_list(app)[0]["last"]["destination"].endswith("nightly-2026-11-20")


def test_a_week_that_was_missed_is_run_once(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock):
        look(place, app, schedule)
        clock.move("2026-11-19 01:00")
        look(place, app, schedule)
        clock.move("2026-11-26 20:00")
        assert names(look(place, app, schedule)) == ["nightly-2026-11-26"]
        assert look(place, app, schedule) == []
        states = _states(app)
        assert [states[f"2026-11-{day}"] for day in range(18, 27)] == [
            "before", "made", *["missed"] * 6, "made",
        ]  # fmt: skip
        clock.move("2026-11-27 01:00")
        assert names(look(place, app, schedule)) == ["nightly-2026-11-27"]


def test_one_at_a_time_and_what_came_meanwhile_is_run_once_after_it(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30", every="1h") as (app, schedule, clock):
        schedules.tick(app, schedule)
        clock.move("2026-11-19 01:00")
        [slow] = schedules.tick(app, schedule)
        clock.move("2026-11-19 04:10")
        assert schedules.tick(app, schedule) == []
        finish(place, [slow])
        assert names(look(place, app, schedule)) == ["nightly-2026-11-19T0400Z"]


def test_one_that_fails_is_tried_again_later_and_later(
    place: BackupPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduled(place, "2026-01-01 00:30") as (app, schedule, clock):
        look(place, app, schedule)
        clock.at = schedule.last(clock.store.now()).begins_at  # processes end by the database's clock
        with monkeypatch.context() as patch:
            patch.setattr(place.open_source.session, "disks", lambda: ())
            [failed] = look(place, app, schedule)
            assert failed.state is ProcessState.FAILED and failed.finished_at is not None
            assert look(place, app, schedule) == []
            [tried] = [one for one in schedules.recent(app, schedule, clock.now()) if one.process]
            assert tried.next_attempt(failed.finished_at + timedelta(minutes=59)) == 0
            assert tried.next_attempt(failed.finished_at + timedelta(minutes=61)) == 2
        assert list(_states(app).values())[:2] == ["failed", "missed"]


def test_a_source_that_is_down_is_told_and_looked_at_again(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock):
        look(place, app, schedule)
        clock.move("2026-11-19 01:00")
        place.open_source.failing = [CalveError("no answer", code="source_down")]
        with pytest.raises(CalveError, match="no answer"):
            schedules.tick(app, schedule)
        assert schedule_view.schedule_list(app)[0]["error"] == "no answer"
        assert names(look(place, app, schedule)) == ["nightly-2026-11-19"]
        assert schedule_view.schedule_list(app)[0]["error"] == ""


def test_who_cancels_a_backup_means_it(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock):
        look(place, app, schedule)
        clock.move("2026-11-19 01:00")
        [begun] = schedules.tick(app, schedule)
        app.store.request_cancel(begun.id)
        finish(place, [begun])
        clock.move("2026-11-19 20:00")
        assert look(place, app, schedule) == []
        assert _states(app)["2026-11-19"] == "cancelled"


def test_a_paused_schedule_begins_nothing_until_it_is_resumed(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock), Calve(app.config) as calve:
        look(place, app, schedule)
        calve.schedule_pause("nightly", reason="a migration")
        assert calve.schedule_show("nightly")["halt"]["reason"] == "a migration"
        assert calve.system()["halts"] == []  # whose buttons start processes again
        clock.move("2026-11-21 12:00")
        assert look(place, app, schedule) == []
        assert calve.schedule_resume("nightly") == {"name": "nightly", "resumed": True}
        assert names(look(place, app, schedule)) == ["nightly-2026-11-21"]


def test_a_person_may_run_it_at_any_time(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 12:34:56") as (app, schedule, _):
        process = schedules.run_now(app, schedule, Asked(who="anne", verb="schedule_run"))
        [made] = finish(place, [process])
        assert names([made]) == ["nightly-2026-11-19T123456Z"]
        assert schedule_view.schedule_list(app)[0]["last"]["id"] == made.id
        assert look(place, app, schedule) == []


def test_workers_that_look_at_once_begin_an_occurrence_once(place: BackupPlace) -> None:
    """Also where each evaluated before the other began: the store refuses the second start."""
    with scheduled(place, "2026-11-19 00:30") as (app, schedule, clock), place.app() as other:
        look(place, app, schedule)
        clock.move("2026-11-19 01:00")
        other.__dict__["store"] = MovedStore(other.store, "2026-11-19 01:00")
        second: list[object] = []
        submit = clock.store.submit

        def after_another(*given: object, **named: object) -> object:
            clock.store.submit = submit  # this once
            second.extend(schedules.start(other, schedule, clock.now(), clock.now()))
            return submit(*given, **named)

        clock.store.submit = after_another
        assert schedules.start(app, schedule, clock.now(), clock.now()) == []
        assert len(second) == 1
        assert len(app.store.processes(ProcessQuery(kind="backup"))) == 1


def test_dying_at_any_call_of_a_look_begins_each_occurrence_once(
    place: BackupPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "_LEASE_SECONDS", 0.0)  # of a worker that died
    broken, days = 0, itertools.count(1)
    with scheduled(place, "2026-11-01 00:30") as (app, schedule, clock):
        look(place, app, schedule)
        for at, how in itertools.product(range(1, 4), Break):
            clock.move(f"2026-11-{next(days):02} 12:00")
            with place.app() as dying:
                faults = Faults(at=at, how=how)
                dying.__dict__["store"] = partial(crashing_store, faults=faults)(clock)
                try:
                    schedules.tick(dying, schedule)
                except (Crash, CalveError):
                    broken += 1
            for process in [*app.store.live(), *schedules.tick(app, schedule)]:
                app.store.request_cancel(process.id)
                finish(place, [process])
        begun = app.store.processes(ProcessQuery(kind="backup"))
        assert broken >= 8
        assert sorted(names(begun)) == [f"nightly-2026-11-{day:02}" for day in range(1, next(days))]


def _make(place: BackupPlace, app: App, schedule: Schedule, clock: MovedStore, *days: int) -> list[Process]:
    """Backups of these days, one after another; nothing is deleted meanwhile."""
    made: list[Process] = []
    for day in days:
        clock.move(f"2026-11-{day} 01:00")
        place.execute(f"INSERT INTO db.users VALUES ({day}, 'new')")
        begun = schedules.start(app, schedule, clock.now(), clock.now())
        made += finish(place, begun)
    return made


def _pruned(app: App) -> dict[str, list[str]]:
    found: dict[str, list[str]] = schedule_view.schedule_show(app, "nightly")["pruned"]
    return found


def _listed(app: App) -> set[str]:
    with Calve(app.config) as calve:
        return {one["name"] for one in calve.backup_list()["backups"]}


def test_its_rules_keep_and_delete_its_own_backups_alone(place: BackupPlace) -> None:
    """With increments: parts that other backups share stay."""
    others = {"by-hand", "nightly-2026-11-10"}
    place.create("by-hand")
    place.create("nightly-2026-11-10", "db.users")  # named like one of it, and made by a person
    with scheduled(place, "2026-11-19 00:30", keep_daily="2") as (app, schedule, clock):
        made = names(_make(place, app, schedule, clock, 19, 20, 21))
        assert _listed(app) == {*others, *made}
        look(place, app, schedule)
        # All were made on one day of the store's clock, which no test moves: its newest is kept.
        assert (_pruned(app)["kept"], _pruned(app)["deleted"]) == (made[-1:], made[:-1])
        assert _listed(app) == {*others, made[-1]}
        assert all(place.verify(name, 1.0).whole for name in _listed(app))
        audit = [(one.who, one.verb, one.subject, one.outcome.value) for one in app.registry.audited(None, 4)]
        assert ("schedule nightly", "backup_delete", made[0], "done") in audit
        pruned = _pruned(app)
        look(place, app, schedule)
        assert _pruned(app) == pruned  # once for each new backup


def test_a_backup_that_somebody_needs_or_that_is_damaged_is_never_deleted(place: BackupPlace) -> None:
    with scheduled(place, "2026-11-19 00:30", keep_last="1") as (app, schedule, clock):
        made = _make(place, app, schedule, clock, 19, 20, 21)
        # The newest is damaged, as somebody found: then the one before it is the last that is whole.
        app.registry.record_proof(Proof(process_id=made[2].id, ok=False, depth="restored"))
        anne = Asked(who="anne", verb="hold_add")
        app.registry.add_hold(Hold(id="hold-1", name="main:db.users", who="anne", reason="an audit"), anne)
        look(place, app, schedule)
        assert _pruned(app)["kept"] == names(made[1:2])
        assert sorted(_pruned(app)["spared"]) == names([made[0], made[2]])  # held; damaged
        app.registry.release_hold("hold-1", Asked(who="anne", verb="hold_release"))
        made += _make(place, app, schedule, clock, 22)
        place.submit_restore(app, names(made)[0], into="db2")  # it reads the oldest
        look(place, app, schedule)
        assert _pruned(app)["kept"] == names(made[3:])
        assert _pruned(app)["deleted"] == names(made[1:2])
        assert sorted(_pruned(app)["spared"]) == names([made[0], made[2]])


def test_dying_while_it_deletes_is_taken_up_by_the_next_look(
    place: BackupPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduled(place, "2026-11-19 00:30", keep_last="1") as (app, schedule, clock):
        made = names(_make(place, app, schedule, clock, 19, 20))
        with monkeypatch.context() as patch:
            patch.setattr(deletion, "remove_parts", lambda *_: (_ for _ in ()).throw(Crash("delete")))
            patch.setattr(schedules, "_LEASE_SECONDS", 0.0)
            with pytest.raises(Crash):
                schedules.tick(app, schedule)
        assert _listed(app) == {made[-1]}  # marked: nobody reads it any more
        assert deletion.unfinished(place.location) != []
        look(place, app, schedule)
        assert deletion.unfinished(place.location) == []
        assert place.verify(made[-1], 1.0).whole
