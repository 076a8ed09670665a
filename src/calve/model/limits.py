"""Every bound in one place, each with its default. `[limits]` of the configuration sets them.

Rule 4: everything is bounded. Units stand last in the names.
"""

from dataclasses import dataclass, field


def _limit(default: float, why: str) -> float:
    return field(default=default, metadata={"why": why})


def _count(default: int, why: str) -> int:
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one installation."""

    slots: int = _count(0, "tasks that one worker runs at once; 0 means two for each core Spark has")
    processes_per_worker: int = _count(32, "processes that one worker holds leases on at once")
    task_attempts: int = _count(5, "tries at one task before its process fails")
    task_seconds: float = _limit(3600.0, "how long one attempt at a task may run")
    stall_seconds: float = _limit(
        300.0,
        "how long an attempt may read and write nothing; then it is stopped, and the error names the part",
    )
    driver_seconds: float = _limit(
        60.0, "how long Spark's driver, a JVM beside the worker, may give no answer; then another is started"
    )
    publish_attempts: int = _count(20, "tries at publishing before the process fails")
    plan_attempts: int = _count(5, "tries at pinning and planning before the process fails")
    fence_attempts: int = _count(5, "tries at fencing a publish before the outcome is called unknown")
    process_hours: float = _limit(24.0, "how long a process may take from submission to end")
    backoff_first_seconds: float = _limit(
        1.0, "the first wait after a failed try; doubled each time, with jitter"
    )
    backoff_most_seconds: float = _limit(60.0, "the longest wait between two tries")
    lease_seconds: float = _limit(30.0, "how long a silent worker keeps its processes")
    tick_seconds: float = _limit(0.5, "how often a worker looks at its processes")
    cancel_seconds: float = _limit(5.0, "how long a cancel may take")
    connect_seconds: float = _limit(5.0, "how long connecting to a service may take")
    call_seconds: float = _limit(15.0, "how long one call to a catalog or store may take")
    probe_seconds: float = _limit(5.0, "how often a destination that is down is probed")
    breaker_failures: int = _count(2, "unreachable answers in a row that open a destination's breaker")
    releases_at_once: int = _count(4, "pins that one worker releases at the same time")
    release_attempts: int = _count(
        5, "failed releases of a pin after which `calve doctor` lists it; it is still tried"
    )
    keep_failed_hours: float = _limit(
        24.0, "how long files of a failed or cancelled process wait for a retry"
    )
    keep_history_days: float = _limit(
        90.0,
        "how long events, attempts and released pins of an ended process are kept; the process itself stays",
    )
    keep_requests_hours: float = _limit(
        48.0, "how long an idempotency key is remembered: the same request gets the first answer until then"
    )
    keep_audit_days: float = _limit(365.0, "how long the audit says who asked for a change")
    tag_days: float = _limit(30.0, "how long the tag of a published process is kept in the table")
    commits_per_export: int = _count(50, "partitions beyond which several share one process and commit")
    source_busy_seconds: float = _limit(
        20.0, "how long to wait for an embedded source that is open elsewhere"
    )
    query_seconds: float = _limit(300.0, "how long one statement to a source may take")
    task_memory_mb: int = _count(1000, "memory that the engine may use in one task")
    task_bytes_mb: int = _count(
        256, "the most source bytes that one task reads, about; less where that keeps more cores busy"
    )
    upload_mb_per_second: float = _limit(
        0.0, "what all tasks of one worker upload together, on each machine they run on; 0 means no limit"
    )
    sql_seconds: float = _limit(30.0, "how long a server works on a statement before it says: send it again")
    answer_seconds: float = _limit(
        1.0, "how long a request to a server waits for its answer; then the client is asked to repeat it"
    )
    client_seconds: float = _limit(
        20.0, "how long a client of a server may take to send a request, or go without reading its answer"
    )
    errands: int = _count(16, "requests of one server that ask sources, catalogs and storages at once")
    errands_per_service: int = _count(
        4, "of these, how many ask the same services; twice as many may ask any one"
    )
    errand_keep_seconds: float = _limit(
        30.0, "how long the answer of such a request is kept for those who ask again"
    )
    request_kb: int = _count(1024, "the size of a request to a server")
    requests_per_second: int = _count(
        50, "requests of one address to a server, with bursts of four times as many"
    )
    wrong_tokens_per_minute: int = _count(
        10, "wrong tokens of one address to a server; then tokens that were not right before wait"
    )
    streams: int = _count(200, "streams of events that one server keeps open, 20 of them for one address")
    stream_seconds: float = _limit(0.5, "how often a server looks for new events while somebody watches")
    look_minutes: float = _limit(
        15.0,
        "how often a server looks at sources, catalogs and backups for its pages; 0 means only at what is open",
    )
    guard_hours: float = _limit(24.0, "how often released rows are counted again in the lake")
    guard_mb: int = _count(
        10_000, "of the files that hold released rows, how much one such count reads whole, the oldest first"
    )
    select_seconds: float = _limit(15.0, "how long one SELECT of `calve sql` or a server may take")
    select_memory_mb: int = _count(1024, "memory of the process that runs a SELECT; the engine gets half")
    select_rows: int = _count(100_000, "rows of each table that a SELECT sees, the newest first")
    select_at_once: int = _count(2, "SELECTs that one server runs at the same time")
    file_mb: int = _count(128, "size at which data files roll")
    open_files: int = _count(32, "destination partitions that one task writes at the same time")
