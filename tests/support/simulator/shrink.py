"""A failing history made small: actions and faults are left out, as long as it still fails in the same way."""

import re
from collections.abc import Callable
from dataclasses import replace

from support.simulator.run import Verdict, run
from support.simulator.world import Case

_NAMES = re.compile(r"\b[a-z0-9]{13}\b|\d+")


def symptom(verdict: Verdict) -> str:
    """The first problem without ids and numbers: what makes two failures the same."""
    return _NAMES.sub("…", verdict.problems[0])[:80] if verdict.problems else ""


def _with(case: Case, kind: str, kept: frozenset[str]) -> Case:
    return replace(case, actions=kept) if kind == "actions" else replace(case, faults=kept)


def shrunk(verdict: Verdict, tries: int = 60, tell: Callable[[str], None] = lambda _: None) -> Verdict:
    """Actions first, then faults: in halves, then in quarters, down to one by one."""
    wanted = symptom(verdict)
    best = verdict
    left = tries
    for kind in ("actions", "faults"):
        size = len(getattr(best, kind))
        while size >= 1 and left > 0:
            for start in range(0, len(getattr(best, kind)), size):
                names = getattr(best, kind)
                kept = frozenset(names[:start] + names[start + size :])
                if left <= 0 or len(kept) == len(names):
                    break
                left -= 1
                tried = run(_with(best.case, kind, kept))
                if symptom(tried) == wanted:
                    best = tried
                    tell(f"{len(best.actions)} actions and {len(best.faults)} faults are left")
                    break
            else:
                size //= 2
    return best
