"""Attaching staged parts: each exactly once, also after a crash between an attach and its record.

What is attached is asked of the table itself: the receiver is ours and merges nothing, so a part
that was attached is there with its content, under whatever name. As often as a content is there,
so many of the parts that have it are attached already; the others are not.
"""

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from calve.clickhouse.parts.content import content_hash
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.model.errors import PermanentError, TemporaryError
from calve.restore import distant
from calve.restore import plan as targets
from calve.restore.plan import RestorePart, RestorePlan, Target
from calve.restore.receiver import drop_gathering, let_move, refuse_moving

_ATTACHING = "attaching_"  # what ClickHouse calls a folder while it attaches it


def attach(session: Session, plan: RestorePlan, staged: Mapping[int, Path]) -> int:
    """Bring every target to its end; the parts that this call attached. `staged` is by part number."""
    attached = 0
    for number, target in enumerate(plan.targets):
        if target.finished_mark.exists():
            continue
        mine = [(at, part) for at, part in enumerate(plan.parts) if part.target == number]
        _note_restored(target, {part.entry.partition_id for _, part in mine})
        if not target.attached_mark.exists():
            attached += _attach_all(session, plan, target, mine, staged)
            _mark(target.attached_mark)
        if target.into == targets.NEW:
            if target.gathers:
                _refuse_stopped(plan, target)
                distant.copy(session, target, [part.entry for _, part in mine])
                drop_gathering(session, [target])
                distant.check(session, target, [part.entry for _, part in mine])
            let_move(session, target)
        else:
            _refuse_stopped(plan, target)
            _hand_over(session, target, {part.entry.partition_id for _, part in mine})
        # if we die here, the next try finds the target without anything left to do
        _mark(target.finished_mark)
        _remove_but(Path(target.state), target.attached_mark, target.finished_mark)
    return attached


def _note_restored(target: Target, partitions: set[str]) -> None:
    """So that a later restore knows what the table has, whatever store it runs with."""
    path = Path(target.restored)
    if target.restored and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # if we die here, the note is there or not; it counts only for partitions that have rows
        half = path.with_suffix(".half")
        half.write_text("\n".join(sorted(partitions)))
        half.replace(path)


def _attach_all(
    session: Session,
    plan: RestorePlan,
    target: Target,
    parts: Sequence[tuple[int, RestorePart]],
    staged: Mapping[int, Path],
) -> int:
    receiver = f"{quoted(target.receiver_database)}.{quoted(target.receiver_name)}"
    refuse_moving(session, target)
    there = _contents(session, target)
    _refuse_unclear(target, there, {part.entry.content for _, part in parts})
    attached = 0
    for at, part in parts:
        if there[part.entry.content] > 0:
            there[part.entry.content] -= 1
            continue
        _refuse_stopped(plan, target)
        put_into_detached(target, part, staged.get(at))
        # if we die here, the part is in the table or in `detached`: the next try looks at both
        session.execute(
            f"ALTER TABLE {receiver} ATTACH PART {string(part.name)}",
            what=f"attaching part {part.entry.name} to {target}",
        )
        attached += 1
    return attached


def _refuse_unclear(target: Target, there: Mapping[str, int], expected: set[str]) -> None:
    """What is there and is not as it was attached may be a merge of what was."""
    strangers = [content for content in there if content not in expected]
    if strangers and not target.still:
        raise PermanentError(
            f"table {target} merged parts while it was being restored, so it is unknown which of them it holds",
            code="restore_unclear",
            hint=f"drop {target} and restore it again: tables of the old syntax cannot be held still",
        )


def _contents(session: Session, target: Target) -> Counter[str]:
    """How often the receiver has each content now."""
    rows = session.rows(
        "SELECT name FROM system.parts WHERE active "
        f"AND database = {string(target.receiver_database)} AND table = {string(target.receiver_name)}",
        what=f"table {target}",
    )
    return Counter(content_hash(Path(target.data_path) / row["name"]) for row in rows)


def put_into_detached(target: Target, part: RestorePart, staged: Path | None) -> None:
    place = target.detached / part.name
    half = target.detached / f"{_ATTACHING}{part.name}"
    try:
        if place.exists():
            return  # an earlier try came as far as this
        if half.exists():
            half.rename(place)  # the engine died while it attached
            return
        if staged is None or not staged.exists():
            raise PermanentError(
                f"part {part.entry.name} of {target} was staged and is neither there nor attached",
                code="staged_part_lost",
                hint="it was removed from the disk: run the command again to fetch it",
            )
        # if we die here, the part is in `detached` under a name of ours
        staged.rename(place)
    except OSError as error:
        raise TemporaryError(
            f"part {part.entry.name} of {target} cannot be put into {place}: {error.strerror}",
            code="target_unwritable",
            hint="the user that runs Calve needs to write to the table's folder",
        ) from None


def _hand_over(session: Session, target: Target, partitions: set[str]) -> None:
    """Whole partitions, to a table that existed before. A partition that went over is no longer in the
    receiver, so that repeating this moves nothing twice; replacing twice is replacing once."""
    receiver = f"{quoted(target.receiver_database)}.{quoted(target.receiver_name)}"
    table = f"{quoted(target.database)}.{quoted(target.name)}"
    for partition_id in sorted(partitions & _partitions(session, target)):
        which = f"PARTITION ID {string(partition_id)}"
        statement = (
            f"ALTER TABLE {receiver} MOVE {which} TO TABLE {table}"
            if target.into == targets.APPEND
            else f"ALTER TABLE {table} REPLACE {which} FROM {receiver}"
        )
        # if we die here, the partition went over or did not: the receiver tells
        session.execute(statement, what=f"partition {partition_id} of {target}")
    drop_gathering(session, [target])


def _partitions(session: Session, target: Target) -> set[str]:
    rows = session.rows(
        "SELECT DISTINCT partition_id FROM system.parts WHERE active "
        f"AND database = {string(target.receiver_database)} AND table = {string(target.receiver_name)}"
    )
    return {row["partition_id"] for row in rows}


def stop(plan: RestorePlan) -> None:
    """A worker of this process that was stopped and wakes up attaches nothing more."""
    for target in plan.targets:
        _mark(target.stopped_mark(plan.process_id))


def is_finished(plan: RestorePlan) -> bool:
    return all(target.finished_mark.exists() for target in plan.targets)


def _refuse_stopped(plan: RestorePlan, target: Target) -> None:
    if target.stopped_mark(plan.process_id).exists():
        raise PermanentError(
            f"the restore of {target} was ended in the meantime",
            code="restore_stopped",
            hint=f"calve show {plan.process_id}",
        )


def remove_state(plan: RestorePlan, *, completed: bool) -> list[str]:
    """The staged files. Of a restore that was given up after partitions may have gone over, a mark
    stays, so that nobody moves them again; says which targets."""
    given_up = []
    for target in plan.targets:
        began = target.into == targets.APPEND and target.attached_mark.exists()
        # if we die here, some of it is left; removing again takes the rest
        if began and not completed and not target.finished_mark.exists():
            _mark(target.given_up_mark)
            given_up.append(str(target))
            _remove_but(Path(target.state), target.given_up_mark)
            continue
        shutil.rmtree(target.state, ignore_errors=True)
        for folder in (Path(target.state).parent, Path(target.state).parent.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
    return given_up


def _remove_but(folder: Path, *kept: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry not in kept:
            entry.unlink(missing_ok=True)


def refuse_given_up(target: Target) -> None:
    """A restore that moved partitions, was given up and cleaned away cannot be taken up again."""
    if target.given_up_mark.exists():
        raise PermanentError(
            f"an earlier run of this restore moved partitions to {target} and was given up: taken up "
            "again, it would move them twice",
            code="restore_given_up",
            hint="restore into another database with --as, and compare",
        )


def _mark(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.flush()
        os.fsync(file.fileno())
