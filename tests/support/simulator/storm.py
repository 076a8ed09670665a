"""What a history is exposed to, drawn once from its seed.

A storm of everything finds what takes one fault. What takes two at the same place is found by storms that are aimed:
few kinds of faults, in few kinds of calls, but often; and somebody who acts while a call's fate is open.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from support.simulator.optimizes import PROPERTIES
from support.simulator.people import DATA, EXPORTS, FOREIGN, RUDE
from support.simulator.schedule import Schedule
from support.simulator.weather import Fault


@dataclass(frozen=True, kw_only=True)
class Storm:
    name: str
    rate: float = 0.0  # of a fault in any call, weighed by its kind
    rates: Mapping[str, float] = field(default_factory=dict)  # in place of it, by kind of call
    faults: frozenset[Fault] = frozenset()
    spark: float = 0.0  # of an attempt that goes wrong
    outages: bool = False
    rivals: tuple[str, ...] = ()  # what somebody does while a commit's fate is open
    verbs: tuple[str, ...]  # what people do
    actions: int
    seconds: float
    workers: int
    keep_failed_seconds: float = 360.0
    format_version: int = 2  # of the table that is exported to
    pond_is_gone: bool = False  # one catalog of two never answers
    archives: bool = False  # backups and restores are made
    folders: bool = False  # exports go into a folder of plain Parquet
    upkeep: bool = False  # tables are optimized
    process_seconds: float = 540.0

    @property
    def properties(self) -> dict[str, str]:
        """Of the tables that are made in the catalogs."""
        return {"format-version": str(self.format_version)} | (PROPERTIES if self.upkeep else {})

    @property
    def quiet(self) -> bool:
        return self.name == "quiet"


def storm_of(nature: random.Random) -> Storm:
    chance = nature.random()
    if chance < 0.15:
        return _quiet(nature)
    if chance < 0.4:
        return _mixed(nature)
    if chance < 0.75:
        return nature.choice(AIMED)(nature)
    if chance < 0.88:
        return _archives(nature) if chance < 0.87 else _manifests(nature)
    if chance < 0.92:
        return _folders(nature)
    if chance < 0.95:
        return _tables(nature)
    return _upkeep(nature)


def _verbs(nature: random.Random) -> tuple[str, ...]:
    return (*EXPORTS, *DATA, *FOREIGN, nature.choice(RUDE))


def _quiet(nature: random.Random) -> Storm:
    """No fault, and more work: faults keep worlds small."""
    return Storm(name="quiet", verbs=_verbs(nature), actions=60, seconds=240.0, workers=nature.choice((1, 2)))


def _mixed(nature: random.Random) -> Storm:
    return Storm(
        name="mixed",
        rate=nature.choice((0.004, 0.01, 0.02)),
        faults=frozenset(fault for fault in Fault if nature.random() < 0.7),
        spark=nature.choice((0.0, 0.05, 0.2)),
        outages=nature.random() < 0.5,
        rivals=nature.choice(((), ("cancel",), ("force",))),
        verbs=_verbs(nature),
        actions=nature.choice((10, 16, 24)),
        seconds=nature.choice((40.0, 80.0, 120.0)),
        workers=nature.choice((1, 2, 2, 3)),
        keep_failed_seconds=nature.choice((360.0, 150.0)),
        format_version=nature.choice((1, 2, 2)),
        pond_is_gone=nature.random() < 0.2,
    )


_SECOND = (
    Fault.LOST,
    Fault.DROPPED,
    Fault.FAILED,
    Fault.REFUSED,
    Fault.REFUSED,
    Fault.REPEATED,
    Fault.REPEATED,
)


def _commits(nature: random.Random) -> Storm:
    """Commits that land late, and one other answer, again and again; main is moved by few others."""
    return Storm(
        name="commits",
        rates={"catalog.commit": nature.choice((0.5, 0.75))},
        faults=frozenset({Fault.LATE, nature.choice(_SECOND)}),
        rivals=nature.choice(((), ("cancel",))),
        verbs=("export", "export", "export_all", "insert", "retry"),
        actions=nature.choice((2, 3, 6)),
        seconds=60.0,
        workers=nature.choice((1, 2)),
        format_version=nature.choice((1, 2)),
    )


def _sleepers(nature: random.Random) -> Storm:
    """Workers that are stopped for longer than a lease, and go on with what they thought they had."""
    return Storm(
        name="sleepers",
        rates={"catalog.commit": 0.3, "store.write": 0.06, "objects.write": 0.05},
        faults=frozenset({Fault.STOPS, nature.choice((Fault.SLOW, Fault.LATE))}),
        rivals=("cancel",),
        verbs=("export", "export", "export_all", "force", "retry"),
        actions=8,
        seconds=100.0,
        workers=nature.choice((2, 3)),
    )


def _rollbacks(nature: random.Random) -> Storm:
    """Main goes back to where a late commit expects it."""
    return Storm(
        name="rollbacks",
        rates={"catalog.commit": 0.6},
        faults=frozenset({Fault.LATE, Fault.LOST}),
        rivals=("rollback",),
        verbs=("export", "export_all", "append", "cancel"),
        actions=8,
        seconds=60.0,
        workers=nature.choice((1, 2)),
        format_version=nature.choice((1, 1, 2)),  # a catalog refuses an old sequence number by itself
    )


def _forces(nature: random.Random) -> Storm:
    """A forced export beside the one that it is to replace."""
    return Storm(
        name="forces",
        rates={"catalog.commit": 0.5},
        faults=frozenset({Fault.SLOW, Fault.FAILED, nature.choice((Fault.LATE, Fault.DROPPED))}),
        rivals=("force",),
        verbs=("export", "export", "insert", "force", "append"),
        actions=8,
        seconds=60.0,
        workers=2,
        format_version=nature.choice((1, 2)),
    )


def _lags(nature: random.Random) -> Storm:
    """Reads of a catalog that are some seconds behind, and retries beside the undo of what they adopted."""
    return Storm(
        name="lags",
        rates={"catalog.load": nature.choice((0.3, 0.6)), "catalog.commit": 0.1},
        faults=frozenset({Fault.STALE, Fault.SLOW}),
        rivals=("give_up_and_retry",),
        verbs=("export", "export", "export_all", "cancel", "retry"),
        actions=8,
        seconds=120.0,
        workers=nature.choice((1, 2)),
        keep_failed_seconds=60.0,
        format_version=nature.choice((1, 2)),
    )


_ARCHIVING = ("backup", "backup", "backup", "delete_backup", "prune", "restore", "restore", "verify_backup")


def _archives(nature: random.Random) -> Storm:
    """Backups that share parts, while others are deleted; restores from them."""
    quiet = nature.random() < 0.2
    return Storm(
        name="archives",
        rates={
            "objects.write": 0.04, "objects.read": 0.01, "objects.delete": 0.04, "source.execute": 0.05,
            "source.pin": 0.05, "store.write": 0.01,
        } if not quiet else {"none": 1.0},
        faults=frozenset(fault for fault in Fault if nature.random() < 0.6),
        spark=nature.choice((0.0, 0.1, 0.25)),
        rivals=nature.choice(((), ("cancel",), ("delete_backup",), ("delete_backup", "prune"))),
        verbs=(*_ARCHIVING, "insert", "insert", nature.choice(("merge", "mutate", "insert")), "cancel", "retry"),
        actions=20 if quiet else nature.choice((12, 16)),
        seconds=nature.choice((60.0, 120.0)),
        workers=nature.choice((1, 2, 2)),
        keep_failed_seconds=nature.choice((360.0, 150.0)),
        archives=True,
    )  # fmt: skip


def _manifests(nature: random.Random) -> Storm:
    """A backup's manifest is put late, and somebody cancels meanwhile."""
    return Storm(
        name="manifests",
        rates={"objects.manifest": 0.5},
        faults=frozenset({Fault.LATE, Fault.LATE, nature.choice((Fault.LOST, Fault.FAILED, Fault.SLOW))}),
        rivals=("cancel",),
        verbs=("backup", "backup", "insert", "retry", "verify_backup"),
        actions=nature.choice((4, 8)),
        seconds=60.0,
        workers=nature.choice((1, 2)),
        keep_failed_seconds=60.0,
        archives=True,
    )


def _upkeep(nature: random.Random) -> Storm:
    """Rewrites, expiry and the removal of orphans beside exports and another writer."""
    return Storm(
        name="upkeep",
        rates=nature.choice((
            {"catalog.commit": 0.3, "catalog.load": 0.02},
            {"catalog.commit": 0.1, "objects.write": 0.03, "objects.delete": 0.1, "store.write": 0.02},
            {"none": 1.0},
        )),
        faults=frozenset(fault for fault in Fault if nature.random() < 0.6),
        spark=nature.choice((0.0, 0.1)),
        rivals=nature.choice(((), ("append",), ("cancel",))),
        verbs=("export", "export_all", "export", "force", "optimize", "optimize", "optimize_full", "append",
               "append", "insert", "cancel", "retry", "new_parts"),
        actions=nature.choice((16, 24)),
        seconds=240.0,
        workers=nature.choice((1, 2)),
        keep_failed_seconds=150.0,
        process_seconds=100.0,
        format_version=nature.choice((1, 2, 2)),
        upkeep=True,
    )  # fmt: skip


def _tables(nature: random.Random) -> Storm:
    """The table that is exported to is dropped, renamed and given its name back."""
    return Storm(
        name="tables",
        rates={"catalog.commit": 0.4, "catalog.load": 0.05, "store.write": 0.01},
        faults=frozenset(fault for fault in Fault if nature.random() < 0.6),
        spark=nature.choice((0.0, 0.1)),
        rivals=nature.choice((("rename_table",), ("drop_table",), ("cancel", "rename_table"))),
        verbs=(
            "export",
            "export",
            "export_all",
            "force",
            "rename_table",
            "drop_table",
            "append",
            "cancel",
            "retry",
        ),
        actions=nature.choice((10, 16)),
        seconds=100.0,
        workers=nature.choice((1, 2)),
        keep_failed_seconds=150.0,
        format_version=nature.choice((1, 2, 2)),
    )


def storm_of_seed(seed: int) -> Storm:
    return storm_of(Schedule(seed=seed).random("nature"))


def _folders(nature: random.Random) -> Storm:
    """Plain Parquet: a commit is one object, which is put late, twice, or not at all."""
    return Storm(
        name="folders",
        rates={"objects.write": nature.choice((0.1, 0.25)), "objects.read": 0.02, "objects.delete": 0.1,
               "store.write": 0.02},
        faults=frozenset(fault for fault in Fault if nature.random() < 0.6),
        spark=nature.choice((0.0, 0.1)),
        rivals=nature.choice((("cancel",), ("force",), ())),
        verbs=(*EXPORTS, *DATA),
        actions=nature.choice((12, 20)),
        seconds=80.0,
        workers=nature.choice((1, 2, 2)),
        keep_failed_seconds=nature.choice((360.0, 150.0)),
        folders=True,
    )  # fmt: skip


AIMED: tuple[Callable[[random.Random], Storm], ...] = (_commits, _sleepers, _rollbacks, _forces, _lags)
