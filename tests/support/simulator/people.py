"""What people and other programs do in a history: decided by the seed beforehand, so that each can be left out."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Action:
    name: str  # "a7"
    at: float
    verb: str
    chance: int  # what it draws its details from

    @property
    def random(self) -> random.Random:
        return random.Random(self.chance)


EXPORTS = (
    "export",
    "export",
    "export",
    "export_all",
    "export_parts",
    "force",
    "cancel",
    "retry",
    "new_parts",
)
DATA = ("insert", "insert", "merge", "merge", "mutate", "drop")
FOREIGN = ("append", "append", "expire")
# One of the two in a history: both at once are not promised to be harmless (`formal/README.md`).
RUDE = ("sweep_tags", "rollback")


@dataclass(frozen=True, kw_only=True)
class Script:
    actions: tuple[Action, ...]
    kept: frozenset[str] | None = None
    done: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        source: random.Random,
        verbs: Sequence[str],
        count: int,
        seconds: float,
        kept: frozenset[str] | None,
    ) -> "Script":
        times = sorted(source.uniform(0.0, seconds) for _ in range(count))
        actions = tuple(
            Action(name=f"a{number}", at=at, verb=source.choice(verbs), chance=source.getrandbits(32))
            for number, at in enumerate(times)
        )
        return cls(actions=actions, kept=kept)

    def to_do(self) -> tuple[Action, ...]:
        return tuple(one for one in self.actions if self.kept is None or one.name in self.kept)
