"""Every metric there is: its name, its type, its labels and what it says.

Instruments, the collector, the dashboard, the rules and the page of the docs all use these names; tests compare
them. No label holds an id, a partition or free text.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Told(StrEnum):
    """By whom."""

    PROGRAM = "server and worker"
    WORKER = "worker"
    SERVER = "server"
    STORE = "server, of the store"


@dataclass(frozen=True, kw_only=True)
class Metric:
    name: str
    type: MetricType
    told: Told
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.type is MetricType.HISTOGRAM:
            return tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
        return (self.name,)


_QUICK = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0)
_LONG = (0.5, 2.0, 10.0, 30.0, 120.0, 600.0, 3600.0)


def _one(
    type: MetricType, told: Told, name: str, labels: str, about: str, buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(name=name, type=type, told=told, labels=tuple(labels.split()), about=about, buckets=buckets)


_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_P, _W, _S, _F = Told.PROGRAM, Told.WORKER, Told.SERVER, Told.STORE
METRICS: tuple[Metric, ...] = (
    _one(_G, _P, "calve_build_info", "version", "1, with the version of the program"),
    _one(_H, _P, "calve_store_call_seconds", "call outcome", "calls of the store; outcome ok, error or unknown", _QUICK),
    _one(_H, _W, "calve_task_seconds", "kind outcome", "attempts of tasks; outcome done, failed or lost", _LONG),
    _one(_H, _W, "calve_publish_seconds", "kind outcome", "publishes; outcome done, failed or unknown", _LONG),
    _one(_C, _W, "calve_rows_total", "kind", "rows that attempts wrote"),
    _one(_C, _W, "calve_bytes_total", "kind", "bytes that attempts wrote"),
    _one(_C, _W, "calve_retries_total", "kind code", "tries of tasks and publishes that failed and may be tried again, by error code"),
    _one(_C, _W, "calve_leases_lost_total", "", "processes that another worker took from this one"),
    _one(_G, _W, "calve_slots", "state", "attempts that run (used), and that could run besides (free)"),
    _one(_C, _S, "calve_http_requests_total", "route method status", "requests that were answered; status 0 if the peer left"),
    _one(_H, _S, "calve_http_request_seconds", "route", "how long answers took", _QUICK),
    _one(_G, _S, "calve_errands", "service_type state", "work beside requests: running, and services that do not answer (down)"),
    _one(_G, _S, "calve_streams", "", "event streams that are open"),
    _one(_H, _S, "calve_select_seconds", "outcome", "SELECTs; outcome done, refused or failed", _QUICK),
    _one(_C, _S, "calve_auth_failures_total", "reason", "requests without a token (token_missing) or with a wrong one (token_wrong)"),
    _one(_G, _S, "calve_store_up", "", "1 if the store answered; the facts below are there only then"),
    _one(_G, _F, "calve_processes", "kind state", "processes"),
    _one(_G, _F, "calve_tasks", "state", "tasks of live processes that run (running) or wait (waiting)"),
    _one(_G, _F, "calve_unknown_outcomes", "", "ended processes that may or may not have published"),
    _one(_G, _F, "calve_breakers_open", "type", "services that are down, by type"),
    _one(_G, _F, "calve_pins_held", "", "pins (freezes, clones) that are held on sources"),
    _one(_G, _F, "calve_oldest_pin_seconds", "", "age of the oldest of them; 0 for none"),
    _one(_G, _F, "calve_oldest_waiting_seconds", "kind", "age of the oldest process that nobody has begun"),
    _one(_G, _F, "calve_workers", "state", "workers: live, draining, or silent for longer than a lease"),
    _one(_G, _F, "calve_workers_old_version", "", "live workers of another version than this server"),
    _one(_G, _F, "calve_halts", "", "kinds of work that somebody stopped"),
    _one(_G, _F, "calve_notices_waiting", "", "notices that are not delivered yet"),
    _one(_G, _F, "calve_last_success_timestamp_seconds", "kind table", "when work on the table last completed"),
    _one(_G, _F, "calve_last_failure_timestamp_seconds", "kind table", "when work on the table last failed"),
    _one(_G, _F, "calve_last_proven_timestamp_seconds", "kind table", "when what was published, or a backup, was last verified and found right"),
    _one(_G, _F, "calve_released_rows_missing", "table", "rows that were released into a lake table, and were not all found there when they were last counted"),
    _one(_G, _F, "calve_released_rows_counted_timestamp_seconds", "table", "when the released rows of a lake table were last counted"),
    _one(_G, _F, "calve_expected", "kind table", "1 for what `[expect]` names"),
    _one(_G, _F, "calve_tables_dropped", "", "tables above the bound of 500, counted together as `other`"),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}
