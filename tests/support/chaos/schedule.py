"""What will be broken, written and asked for, and when: all of it from the seed, before anything starts.

The seed repeats the plan of a run, not its history: programs and services are real, and take the time they take.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

NETWORKS = ("s3", "catalog", "clickhouse", "postgres")
WAYS = ("refuse", "delay", "half_open", "lost_answers", "cut")
_STRIKES = (
    ("kill_worker", 4),
    ("kill_machine", 3),
    ("stop_worker", 3),
    ("stop_machine", 2),
    ("terminate_worker", 1),
    ("kill_server", 2),
    ("stop_server", 1),
    ("network", 12),
    ("restart_s3", 2),
    ("restart_postgres", 2),
    ("restart_clickhouse", 2),
    ("full_disk", 2),
    ("clock_jump", 2),
)
_ASKED = (
    ("export", 6),
    ("export_all", 2),
    ("sql_export", 2),
    ("force", 4),
    ("new_parts", 3),
    ("cancel", 3),
    ("retry", 3),
    ("backup", 3),
    ("restore", 2),
    ("optimize", 1),
    ("read", 3),
)
_WRITTEN = (("insert", 6), ("merge", 3), ("update", 2))
_FOREIGN = (("append", 4), ("delete", 2), ("compact", 2), ("expire", 2))

# Strikes come in storms: between them work gets done, and what was struck has to heal by itself.
_CYCLE_SECONDS, _STORM_SHARE = 30.0, 0.6
SECONDS_BETWEEN = {"strikes": 2.5, "asked": 1.2, "written": 1.2, "foreign": 4.0}


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing to do, and what its details are drawn from."""

    at: float
    verb: str
    chance: int

    @property
    def random(self) -> random.Random:
        return random.Random(self.chance)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    seed: int
    seconds: float
    strikes: tuple[Act, ...]
    asked: tuple[Act, ...]
    written: tuple[Act, ...]
    foreign: tuple[Act, ...]

    @classmethod
    def of(cls, seed: int, seconds: float) -> "Schedule":
        source = random.Random(seed)
        return cls(
            seed=seed,
            seconds=seconds,
            # The first strike comes when there is work to break; each kind comes before any comes twice.
            strikes=_in_storms(
                _acts(source, _STRIKES, seconds, SECONDS_BETWEEN["strikes"], first=4.0, every=True)
            ),
            asked=_acts(source, _ASKED, seconds, SECONDS_BETWEEN["asked"]),
            written=_acts(source, _WRITTEN, seconds, SECONDS_BETWEEN["written"]),
            foreign=_acts(source, _FOREIGN, seconds, SECONDS_BETWEEN["foreign"]),
        )


def _acts(
    source: random.Random,
    verbs: Sequence[tuple[str, int]],
    seconds: float,
    between: float,
    *,
    first: float = 0.0,
    every: bool = False,
) -> tuple[Act, ...]:
    count = max(1, round((seconds - first) / between))
    times = sorted(source.uniform(first, seconds) for _ in range(count))
    names, weights = zip(*verbs, strict=True)
    chosen = source.choices(names, weights, k=count)
    if every:
        each = source.sample(names, len(names))
        chosen = (each + chosen)[:count]
    return tuple(
        Act(at=at, verb=verb, chance=source.getrandbits(32)) for at, verb in zip(times, chosen, strict=True)
    )


def _in_storms(acts: Sequence[Act]) -> tuple[Act, ...]:
    return tuple(replace(act, at=act.at - act.at % _CYCLE_SECONDS * (1 - _STORM_SHARE)) for act in acts)
