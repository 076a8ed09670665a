"""Who gets the free slots: by priority first, then fairly between lanes, then between processes.

One slot at a time to the one that has least, so a lane with a thousand processes gets no more than a
lane with one (L3, L6). Pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from calve.model.ids import ProcessId


@dataclass(frozen=True, kw_only=True)
class Want:
    """What one process could use."""

    process_id: ProcessId
    lane: str
    priority: int
    created_at: datetime
    in_flight: int
    ready: int


def share(free: int, wants: Sequence[Want]) -> dict[ProcessId, int]:
    """How many slots each process may use; those with none are left out."""
    in_lane: Counter[str] = Counter()
    for want in wants:
        in_lane[want.lane] += want.in_flight
    granted: Counter[ProcessId] = Counter()
    open_wants = [want for want in wants if want.ready > 0]
    while free > 0 and open_wants:
        chosen = min(
            open_wants,
            key=lambda want: (
                -want.priority,
                in_lane[want.lane],
                want.in_flight + granted[want.process_id],
                want.created_at,
                want.process_id,
            ),
        )
        granted[chosen.process_id] += 1
        in_lane[chosen.lane] += 1
        free -= 1
        if granted[chosen.process_id] >= chosen.ready:
            open_wants.remove(chosen)
    return dict(granted)
