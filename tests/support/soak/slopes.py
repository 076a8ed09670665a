"""Whether a line is level. Warming up is left out, and single outliers count for nothing (Theil and Sen's estimate)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WARM_UP_SHARE = 1 / 3
FEWEST_SAMPLES = 12

# How much each may grow in an hour, and in a run that is shorter than that. The rest is drawn and not judged.
ALLOWED: Mapping[str, float] = {
    "memory MB": 60.0,
    "handles": 15.0,
    "threads": 10.0,
    "temporary files": 20.0,
    "overdue history": 1.0,
    "connections": 10.0,
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One measure of one program over time: seconds since the beginning, and values."""

    subject: str
    measure: str
    seconds: Sequence[float]
    values: Sequence[float]

    @property
    def settled(self) -> list[tuple[float, float]]:
        points = list(zip(self.seconds, self.values, strict=True))
        return points[int(len(points) * WARM_UP_SHARE) :]

    def slope(self) -> float:
        """An hour's growth."""
        points = self.settled
        slopes = [
            (b - a) / (then - now)
            for number, (now, a) in enumerate(points)
            for then, b in points[number + 1 :]
            if then > now
        ]
        return statistics.median(slopes) * 3600 if slopes else 0.0

    def growth(self) -> float:
        """Over what was watched after warming up."""
        points = self.settled
        return self.slope() * (points[-1][0] - points[0][0]) / 3600 if points else 0.0

    def fault(self) -> str:
        """What is wrong with it; empty if nothing."""
        allowed = ALLOWED.get(self.measure)
        if allowed is None or len(self.settled) < FEWEST_SAMPLES:
            return ""
        hours = (self.settled[-1][0] - self.settled[0][0]) / 3600
        if self.growth() <= allowed * max(hours, 1.0):
            return ""
        return (
            f"{self.subject}: {self.measure} rose by {self.growth():.0f} in {hours * 60:.0f} minutes"
            f" ({self.slope():.0f} an hour), to {self.values[-1]:.0f}"
        )
