"""Whether schedules of backups do what they say."""

from collections.abc import Iterator
from datetime import timedelta

from calve.app.backups import schedule_view, schedules
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.model.process import Process
from calve.policy.schedule import Schedule

_TAKES = timedelta(hours=2)  # a backup or a drill, before it is late


def schedule(app: App, given: Schedule) -> Iterator[Finding]:
    part = f"schedule:{given.name}"
    now, made = app.store.now(), schedules.made(app, given)
    [listed] = [one for one in schedule_view.schedule_list(app) if one["name"] == given.name]
    said = (
        f"the last backup is of {made.finished_at:%Y-%m-%d %H:%M} UTC" if made else "there is no backup yet"
    )
    late = made is None or (made.finished_at or now) < now - given.longest_gap - _TAKES
    show = f"calve backup schedule show {given.name}"
    if listed["paused"]:
        remedy = f"calve backup schedule resume {given.name}"
        yield Finding(part=part, ok=True, warning=True, words=f"paused; {said}", remedy=remedy)
    elif listed["error"]:
        yield Finding(
            part=part, ok=False, words=f"the last look failed: {listed['error']}; {said}", remedy=show
        )
    else:
        remedy = show if listed["seen_at"] else "run a worker with this configuration: calve worker"
        yield Finding(part=part, ok=True, warning=late, words=said, remedy=remedy if late else "")
    if made is not None:
        yield from _damaged(app, made)
    if given.drill_every:
        yield _drill(app, given, part)


def _damaged(app: App, made: Process) -> Iterator[Finding]:
    """What a proof said of the newest backup."""
    newest = next(iter(app.registry.proofs([made.id])), None)
    if newest is not None and not newest.ok:
        name = made.destination.rpartition("/")[2]
        words = f"the newest backup was found damaged: {newest.detail}"
        remedy = f"calve backup verify {name} --read-data 100%; then make another one"
        yield Finding(part=f"backup:{name}", ok=False, words=words, remedy=remedy)


def _drill(app: App, given: Schedule, part: str) -> Finding:
    last, every = schedules.last_restore(app, given), given.drill_every or timedelta()
    late = last is None or last < app.store.now() - every - given.longest_gap - _TAKES
    words = f"a restore was last proven {last:%Y-%m-%d %H:%M} UTC" if last else "no restore is proven yet"
    remedy = f"calve ps --all --kind drill, then: calve backup schedule show {given.name}" if late else ""
    return Finding(part=f"{part}:drill", ok=True, warning=late, words=words, remedy=remedy)
