"""Whether the time of a partition is over for good: only then may it leave its table. Pure.

`now` is the earlier of two clocks: the store's and the source's.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from calve.policy.bounds import NoTimeKey, TimeKey
from calve.policy.stand import SKEW_AT_MOST


def not_over(
    key: TimeKey | NoTimeKey, value: str, others: Iterable[str], now: datetime, skew: timedelta
) -> tuple[str, str] | None:
    """A code and words, or None. `others` are the values of all partitions that the table has."""
    if abs(skew) > SKEW_AT_MOST:
        return "clock_skew", "the clocks of the source and the store differ by more than five minutes"
    if key is NoTimeKey.CYCLIC:
        return "cyclic_key", "its partition key repeats, as months without a year do"
    if not isinstance(key, TimeKey):
        return "no_time_key", "its partition key gives no time that Calve can read"
    bounds = key.bounds(value)
    if bounds is None:
        return (
            "no_bounds",
            f"its value {value!r} is no time, or one in 1970, where values that were never set end up",
        )
    if bounds.closed_at > now:
        return "not_over", f"its time range ends only at {bounds.closed_at:%Y-%m-%d %H:%M} UTC"
    begins = [found.lower for one in others if (found := key.bounds(one)) is not None]
    if bounds.lower >= max(begins, default=bounds.lower):
        return "newest_partition", "it is the newest partition of the table"
    return None
