"""For every call of a whole export that changes something outside the store: die before it, die after it, or
have it reported failed. (The store's own calls are broken one by one in `tests/crash`.)

Then a new worker starts, and whatever happened: the process ends, the rows are exact, a process has one
snapshot and one tag, every file that a snapshot names is there, no freeze and no lease is left.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from whole_life import IDS, DyingRunner, Life, local, stray_files

from calve.control.kind import Published
from calve.control.ports import Runner
from calve.model.errors import UnknownOutcomeError
from calve.model.process import Process
from calve.model.states import Leftovers, ProcessState
from calve.testing.faults import STORE_CALLS, Break, Crash, Faults
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

Story = Callable[[Life], None]


def exports_two_partitions(life: Life) -> None:
    """Into a table that does not exist yet."""
    life.submit()


def publishes_two_partitions(life: Life) -> None:
    """The same, whose tasks are done."""
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    life.leave()


def replaces_an_export(life: Life) -> None:
    """By force, in a table that has its rows already; the tasks are done."""
    life.submit()
    life.run(life.worker())
    [process_id] = life.submit(force=True)
    life.run_until(ProcessState.PUBLISHING, process_id)
    life.leave()


def is_cancelled_before_its_commit(life: Life) -> None:
    """Asked to stop after the note and before the send: fenced, and in the end undone."""
    publishes_two_partitions(life)


def cut_short(life: Life) -> None:
    """A cancel, and then a send whose fate nobody knows."""
    really = life.kind.publish

    def publish(
        process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        def noted(text: str) -> None:
            note(text)
            life.store.request_cancel(process.id)
            raise UnknownOutcomeError("the send was cut short", code="injected")

        return really(process, plan, receipts, noted)

    life.kind.publish = publish  # type: ignore[method-assign]


# To die after an effect, or not to know of it, is what can double or lose something; one export shows that a
# call that failed, or that was never made, does not. What comes before publishing is the same in every story.
CASES: list[tuple[Story, Break]] = [
    *((exports_two_partitions, how) for how in Break),
    *((publishes_two_partitions, how) for how in Break),
    *((replaces_an_export, how) for how in (Break.AFTER, Break.REPORTED_FAILED)),
    *((is_cancelled_before_its_commit, how) for how in (Break.AFTER, Break.REPORTED_FAILED)),
]


class Stage:
    """A story's beginning, made once; each life goes on from a copy of it, in the same folder, with the same
    freezes at the source."""

    def __init__(self, story: Story, folder: Path, source: KeptSource, runner: Runner) -> None:
        self.source, self.runner = source, runner
        self.folder, self.before, self.shadow = folder / "life", folder / "before", source.folder / "shadow"
        life = Life(self.folder, source, runner)
        story(life)
        self.ids, self.seconds = life.ids, life.clock.offset_seconds()
        life.close()
        self.folder.rename(self.before)
        self.shadow.mkdir(exist_ok=True)
        shutil.copytree(self.shadow, self.before / "shadow")

    def life(self, faults: Faults) -> Life:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder)
        shutil.rmtree(self.shadow)
        (self.folder / "shadow").rename(self.shadow)
        life = Life(self.folder, self.source, self.runner, faults)
        life.clock.advance(self.seconds)
        life.ids = list(self.ids)
        return life


def live(stage: Stage, story: Story, faults: Faults) -> Life:
    """To the end, with a new worker after the break; the old one, where it lives on, does no more."""
    life = stage.life(faults)
    if story is is_cancelled_before_its_commit:
        cut_short(life)
    faults.armed = True
    with suppress(Crash):
        life.run(life.worker())
    faults.armed = False
    life.leave()
    life.run(life.worker())
    if life.row(life.ids[-1]).leftovers is not Leftovers.NONE:
        life.keep_time_and_undo()
    return life


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("story", "how"), CASES)
def test_whatever_call_breaks_the_export_ends_once_and_nothing_is_left(
    story: Story, how: Break, tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    stage = Stage(story, tmp_path, source, runner)
    whole = Faults(skipping=STORE_CALLS)
    live(stage, story, whole).close()
    calls = whole.calls
    if story is exports_two_partitions:
        assert calls[0] == "take" and "publish" in calls
        calls = calls[: calls.index("publish")]  # the rest is publishes_two_partitions
    else:
        assert calls[0] == "publish"
    assert len(calls) > 7, "the story is too short to say anything"
    for at, call in enumerate(calls, start=1):
        faults = Faults(at=at, how=how, skipping=STORE_CALLS)
        life = live(stage, story, faults)
        try:
            assert faults.calls[at - 1 :][:1] == [call], "the call was never made"
            life.check_settled()
            check_end(story, life)
        except AssertionError as error:
            where = f"{story.__name__}: {how} call {at} ({call})"
            raise AssertionError(f"{where}: {error}") from error
        finally:
            life.close()


def check_end(story: Story, life: Life) -> None:
    row = life.row(life.ids[-1])
    if story is is_cancelled_before_its_commit:
        assert row.state in (ProcessState.CANCELLED, ProcessState.COMPLETED), row.error
    else:
        assert row.state is ProcessState.COMPLETED, row.error
    published = row.state is ProcessState.COMPLETED
    assert life.exported_ids() == (list(IDS) if published else [])
    if published:
        assert row.rows == len(IDS)
    else:
        table = life.table()
        # A tombstone that was written and not sent stays for the orphans' removal: undo deletes no file of
        # a fence, since main may stand on it.
        stray = [] if table is None else [name for name in stray_files(table) if "-calve-fence-" not in name]
        assert stray == []


@pytest.mark.parametrize("how", ["before", "after", "reported_failed"])
def test_an_executor_that_dies_at_any_storage_call_costs_an_attempt_and_nothing_else(
    how: str, tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    calls = 2  # upload one file, put the receipt
    for at in range(1, calls + (2 if how == "before" else 1)):
        life = Life(tmp_path / f"{how}-{at}", source, DyingRunner(runner, at=at, how=how))
        [process_id] = life.submit()
        life.run(life.worker())
        life.check_settled()
        row = life.row(process_id)
        assert row.state is ProcessState.COMPLETED, row.error
        assert life.exported_ids() == list(IDS)
        assert lost_files(life) == [], "T13: what the attempt that lost had written is gone"
        first = life.store.tasks(process_id)[0]
        # The receipt that was put is found: no second export (L25). One call more than there are breaks nothing.
        assert first.attempt == (1 if at > calls or (at == calls and how == "after") else 2), (how, at)
        life.close()


def lost_files(life: Life) -> list[str]:
    table = life.table()
    return [] if table is None else [name for name in stray_files(table) if name.endswith(".parquet")]


def published_files(life: Life) -> list[Path]:
    table = life.table()
    assert table is not None
    return [local(task.file.file_path) for task in table.scan().plan_files()]


def loses_an_attempt(life: Life) -> None:
    """A process in PUBLISHING whose first task was tried twice; both attempts have written."""
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    assert life.store.tasks(process_id)[0].attempt == 2


def test_T13_a_zombie_that_writes_after_the_end_is_swept_once_it_cannot_be_alive(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    life = Life(tmp_path, source, DyingRunner(runner, at=2, how="before"))
    loses_an_attempt(life)
    [process_id] = life.ids
    life.run(life.worker())
    row = life.row(process_id)
    assert (row.state, row.leftovers) == (ProcessState.COMPLETED, Leftovers.KEPT)
    [published, *_] = published_files(life)
    zombie = published.with_name(f"calve-{process_id}-0-1-9.parquet")
    zombie.write_bytes(b"late")
    life.clock.advance(life.limits.task_seconds + 1)
    life.run_until_gone(process_id)
    assert not zombie.exists()
    assert life.exported_ids() == list(IDS)
    life.check_settled()
    life.close()


@pytest.mark.parametrize("how", [Break.BEFORE, Break.REPORTED_FAILED])
def test_T13_whatever_call_breaks_a_sweep_ends_with_what_is_published_and_nothing_else(
    how: Break, tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    """What the attempt that lost wrote is deleted at the publish; what it may write later, by the sweep."""
    stage = Stage(loses_an_attempt, tmp_path, source, DyingRunner(runner, at=2, how="before"))
    whole = Faults(skipping=STORE_CALLS)
    publish_and_sweep(stage, whole).close()
    assert {"publish", "storage.delete", "release", "undo"} <= set(whole.calls)
    for at, call in enumerate(whole.calls, start=1):
        faults = Faults(at=at, how=how, skipping=STORE_CALLS)
        life = publish_and_sweep(stage, faults)
        where = f"{how} call {at} ({call})"
        assert faults.calls[at - 1] == call, where
        assert life.row(life.ids[0]).state is ProcessState.COMPLETED, where
        assert life.exported_ids() == list(IDS), where
        assert lost_files(life) == [], where
        life.check_settled()
        life.close()


def publish_and_sweep(stage: Stage, faults: Faults) -> Life:
    """Broken anywhere on the way, then done again by a new worker."""
    life = stage.life(faults)
    for faults.armed in (True, False):
        with suppress(Crash):
            life.run(life.worker())
            life.clock.advance(life.limits.task_seconds + 1)
            life.run_until_gone(life.ids[0])
        life.leave()
    return life
