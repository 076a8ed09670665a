"""The schema, as SQLAlchemy sees it. `migrations/` builds the same, and a test holds them equal.

Invariants that live here, in the database itself: states are those of the enums; ended means
`finished_at`; PUBLISHING and COMPLETED mean that every task is done (L24); at most one
process holds a lock; one request a key, one name a token. Counters are 64 bits wide (L15). Times are microseconds since 1970, set
by the database's clock.
"""

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

from calve.model.access import AuditOutcome, Role
from calve.model.apply import ALL_DONE, PLANNED
from calve.model.states import (
    PROCESS_TERMINAL,
    TASK_TERMINAL,
    Leftovers,
    PinState,
    ProcessState,
    ReleaseState,
    TaskState,
)
from calve.model.tier import RELEASE_OPEN

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# A prefix of an id is searched as a range, which needs the order of bytes, not of a locale.
_Id = Text().with_variant(Text(collation="C"), "postgresql")
_Sequence = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only by INTEGER


def _one_of(column: str, states: type[StrEnum] | Iterable[StrEnum]) -> str:
    values = sorted({state.value for state in states})
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


_WHERE = "where"


def _partial(name: str, *columns: object, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, info={_WHERE: where})  # type: ignore[arg-type]


@event.listens_for(metadata, "before_create")
def _add_conditions(_: MetaData, connection: Connection, **__: object) -> None:
    """Of partial indexes. `postgresql_where=` where one is made would load PostgreSQL's dialect, twenty
    modules, into every command."""
    for table in metadata.tables.values():
        for index in table.indexes:
            if _WHERE in index.info:
                index.dialect_options[connection.dialect.name]["where"] = text(index.info[_WHERE])


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, default=0)


processes = Table(
    "processes",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),  # age
    Column("id", _Id, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("needs", Text, nullable=False),  # JSON
    Column("request", Text, nullable=False),
    Column("partitions", Text, nullable=False),  # JSON
    Column("locks", Text, nullable=False),  # JSON, as submitted; `locks` says which are held
    Column("batch", _Id),
    Column("priority", Integer, nullable=False),
    Column("retry_of", _Id, ForeignKey("processes.id")),
    Column("adopted", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("deadline_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("owner", Text),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("lease_until", BigInteger),
    Column("planned", Boolean, nullable=False, default=False),
    _count("plan_attempts"),
    _count("publish_attempts"),
    _count("fence_attempts"),
    Column("not_before", BigInteger),
    Column("publish_sent", Boolean, nullable=False, default=False),
    Column("publish_note", Text, nullable=False, default=""),
    _count("tasks_total"),
    _count("tasks_done"),
    _count("tasks_failed"),
    _count("tasks_running"),
    _count("rows"),
    _count("files"),
    _count("bytes"),
    Column("snapshot_id", Text),
    Column("result", Text, nullable=False, default=""),
    Column("error", Text),  # JSON
    Column("leftovers", Text, nullable=False, default=Leftovers.NONE.value),
    Column("cleanup_at", BigInteger),
    _count("cleanup_attempts"),
    Column("uploads_at", BigInteger),  # neither read nor written: an earlier version used it
    CheckConstraint(_one_of("state", ProcessState), name="state"),
    CheckConstraint(_one_of("leftovers", Leftovers), name="leftovers"),
    CheckConstraint(f"({_one_of('state', PROCESS_TERMINAL)}) = (finished_at IS NOT NULL)", name="ended"),
    CheckConstraint(f"NOT ({_one_of('state', ALL_DONE)}) OR tasks_done = tasks_total", name="all_done"),
    CheckConstraint(f"NOT ({_one_of('state', PLANNED)}) OR planned", name="planned"),
    CheckConstraint(f"state <> '{ProcessState.FAILED.value}' OR error IS NOT NULL", name="reason"),
    CheckConstraint("finished_at IS NULL OR tasks_running = 0", name="none_running"),
    CheckConstraint(
        "tasks_done >= 0 AND tasks_failed >= 0 AND tasks_running >= 0"
        " AND tasks_done + tasks_failed + tasks_running <= tasks_total",
        name="counts",
    ),
    CheckConstraint("(owner IS NULL) = (lease_until IS NULL)", name="lease"),
    UniqueConstraint("id", name="uq_processes_id"),
    Index("ix_processes_state", "state", "seq"),
    Index("ix_processes_kind", "kind", "seq"),
    Index("ix_processes_source", "source", "seq"),
    Index("ix_processes_destination", "destination", "seq"),
    Index("ix_processes_created", "created_at"),
    _partial("ix_processes_batch", "batch", "seq", where="batch IS NOT NULL"),
    _partial("ix_processes_retry_of", "retry_of", "seq", where="retry_of IS NOT NULL"),
    _partial("ix_processes_live", text("priority DESC"), "seq", where="finished_at IS NULL"),
    _partial("ix_processes_owner", "owner", where="owner IS NOT NULL"),
    _partial("ix_processes_cleanup", "cleanup_at", where="cleanup_at IS NOT NULL"),
    _partial("ix_processes_uploads", "uploads_at", where="uploads_at IS NOT NULL"),
    _partial("ix_processes_finished", "finished_at", where="finished_at IS NOT NULL"),
    _partial("ix_processes_failed", "state", "finished_at", where=f"state = '{ProcessState.FAILED.value}'"),
)

plans = Table(  # apart, so that rows of processes stay light
    "plans",
    metadata,
    Column("process_id", _Id, ForeignKey("processes.id"), primary_key=True),
    Column("plan", Text, nullable=False),
)

locks = Table(
    "locks",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False),
    Column("process_id", _Id, ForeignKey("processes.id"), nullable=False),
    Column("freed_at", BigInteger),  # held until then: by a live process, or one whose end is unknown
    _partial("uq_locks_held", "name", where="freed_at IS NULL", unique=True),
    Index("ix_locks_process_id", "process_id"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("process_id", _Id, ForeignKey("processes.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("free_attempts", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("not_before", BigInteger),
    Column("spec", Text, nullable=False),
    Column("receipt", Text, nullable=False),
    Column("error", Text),  # JSON
    CheckConstraint(_one_of("state", TaskState), name="state"),
    CheckConstraint(f"({_one_of('state', TASK_TERMINAL)}) = (finished_at IS NOT NULL)", name="ended"),
    CheckConstraint(f"state <> '{TaskState.DONE.value}' OR receipt <> ''", name="receipt"),
    Index("ix_tasks_state", "process_id", "state", "number"),
    _partial("ix_tasks_not_before", "process_id", "not_before", where="not_before IS NOT NULL"),
)

pins = Table(
    "pins",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False),
    Column("process_id", _Id, ForeignKey("processes.id"), nullable=False),
    Column("source", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("not_before", BigInteger),
    Column("release_attempts", BigInteger, nullable=False),
    Column("error", Text),  # JSON
    CheckConstraint(_one_of("state", PinState), name="state"),
    Index("uq_pins_name", "name", unique=True),
    Index("ix_pins_process_id", "process_id"),
    Index("ix_pins_state", "state", "seq"),
)

events = Table(
    "events",
    metadata,
    Column("number", _Sequence, Identity(always=True), primary_key=True),
    Column("process_id", _Id, ForeignKey("processes.id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("position", BigInteger),  # in the feed; NULL: not numbered yet, 0: from before there was a feed
    Index("ix_events_process_id", "process_id", "number"),
    _partial("ix_events_unnumbered", "number", where="position IS NULL"),
    _partial("uq_events_position", "position", where="position > 0", unique=True),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("reach", Text, nullable=False),  # JSON
    Column("slots", Integer, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("error", Text),  # JSON
    Column("version", Text),  # NULL: 0.1.0, which did not say
    Column("granted", Text),  # JSON
)

breakers = Table(
    "breakers",
    metadata,
    Column("lane", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("probe_at", BigInteger, nullable=False),
    Column("probes", BigInteger, nullable=False),
)

schema_version = Table(
    "schema_version",
    metadata,
    Column("single", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    CheckConstraint("single = 1", name="single"),
)

store_state = Table(
    "store_state",
    metadata,
    Column("single", Integer, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),  # random: of this store, and of its copies
    Column("last_position", BigInteger, nullable=False),  # never falls
    Column("forgotten_position", BigInteger, nullable=False),
    CheckConstraint("single = 1", name="single"),
)

requests = Table(
    "requests",
    metadata,
    Column("who", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("verb", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("processes", Text, nullable=False),  # JSON
    Column("answer", Text),
    Column("made_at", BigInteger, nullable=False),
    Index("ix_requests_made", "made_at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    CheckConstraint(_one_of("role", Role), name="role"),
    UniqueConstraint("name", name="uq_tokens_name"),
)

halts = Table(
    "halts",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("source", Text, primary_key=True),  # '': all
    Column("who", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)

servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
)

proofs = Table(
    "proofs",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("process_id", _Id, ForeignKey("processes.id"), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("ok", Boolean, nullable=False),
    Column("depth", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("ix_proofs_process_id", "process_id", "seq"),
)

audit = Table(
    "audit",
    metadata,
    Column("number", _Sequence, Identity(always=True), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("processes", Text, nullable=False),  # JSON
    Column("detail", Text, nullable=False),
    CheckConstraint(_one_of("outcome", AuditOutcome), name="outcome"),
    Index("ix_audit_at", "at"),
)

targets = Table(  # of notices
    "targets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

alarms = Table(
    "alarms",
    metadata,
    Column("target", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("process_id", _Id, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("id", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("process_id", _Id, nullable=False),
    Column("body", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("not_before", BigInteger),
    Column("ended_at", BigInteger),
    Column("error", Text, nullable=False),
    UniqueConstraint("id", name="uq_notices_id"),
    _partial("ix_notices_waiting", "target", "seq", where="ended_at IS NULL"),
    _partial("ix_notices_ended", "ended_at", where="ended_at IS NOT NULL"),
)

actions = Table(
    "actions",
    metadata,
    Column("number", _Sequence, Identity(always=True), primary_key=True),
    Column("id", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("claimed_until", BigInteger),
    Column("done_at", BigInteger),
    Column("processes", Text, nullable=False),  # JSON
    Column("error", Text, nullable=False),
    CheckConstraint(_one_of("role", Role), name="role"),
    UniqueConstraint("id", name="uq_actions_id"),
    _partial("ix_actions_waiting", "number", where="done_at IS NULL"),
    _partial("ix_actions_done", "done_at", where="done_at IS NOT NULL"),
)

attempts = Table(  # narrow, and apart from `tasks`: a scan of those would read every receipt
    "attempts",
    metadata,
    Column("process_id", _Id, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("ending", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("worker", Text, nullable=False),
    _count("rows"),
    _count("bytes"),
    Column("read_ms", BigInteger),
    Column("write_ms", BigInteger),
    Column("upload_ms", BigInteger),
    _partial("ix_attempts_failed", "ended_at", where="code <> ''"),
    sqlite_with_rowid=False,
)

outages = Table(
    "outages",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("service", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    _partial("uq_outages_open", "service", where="closed_at IS NULL", unique=True),
    Index("ix_outages_opened", "opened_at"),
)

sightings = Table(  # the bodies come last: SQLite reads a row up to the column that it needs
    "sightings",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("seen_at", BigInteger),
    Column("tried_at", BigInteger),
    Column("looked_until", BigInteger),
    Column("seen_by", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("pieces", Integer, nullable=False),
    Column("summary", Text, nullable=False),
    Column("body", Text, nullable=False),
    _partial("ix_sightings_tried", "tried_at", where="piece = 0"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("token_id", Text, nullable=False),
    Column("token_hash", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    CheckConstraint(_one_of("role", Role), name="role"),
)

starts = Table(
    "starts",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("policy", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    _count("bytes"),
    Column("day", Text, nullable=False),
    Column("process_id", _Id, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    UniqueConstraint(
        "identity", "destination", "partition", "action", "content", "attempt", name="uq_starts_attempt"
    ),
    Index("ix_starts_day", "policy", "day"),
    Index("ix_starts_made", "made_at"),
)

guards = Table(  # what holds and intents of a table lock; no row: version 0
    "guards",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

holds = Table(
    "holds",
    metadata,
    Column("id", Text, primary_key=True),
    Column("identity", Text, nullable=False),
    Column("uuid", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("until_at", BigInteger),
    Column("released_at", BigInteger),
    Column("released_by", Text, nullable=False),
    _partial("ix_holds_standing", "made_at", where="released_at IS NULL"),
)

intents = Table(
    "intents",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("process_id", _Id, ForeignKey("processes.id"), nullable=False),
    Column("identity", Text, nullable=False),
    Column("uuid", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("query_id", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("done_at", BigInteger),
    Column("result", Text, nullable=False),
    Index("ix_intents_process", "process_id", "seq"),
    _partial("ix_intents_open", "seq", where="done_at IS NULL"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("seq", _Sequence, Identity(always=True), primary_key=True),
    Column("what", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("revoked_by", Text, nullable=False),
    _partial(
        "uq_approvals_standing",
        "what",
        "hash",
        "identity",
        "destination",
        where="revoked_at IS NULL",
        unique=True,
    ),
)

policies = Table(  # what each running program's configuration says
    "policies",
    metadata,
    Column("program", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

releases = Table(
    "releases",
    metadata,
    Column("process_id", _Id, ForeignKey("processes.id"), primary_key=True),
    Column("identity", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("place", Text, nullable=False),
    _count("rows"),
    Column("sums", Text, nullable=False),  # JSON
    Column("parts", Text, nullable=False),  # JSON
    Column("keys", Text, nullable=False),  # JSON
    Column("made_at", BigInteger, nullable=False),
    Column("moved_at", BigInteger),
    Column("settled_at", BigInteger),
    Column("counted_at", BigInteger),
    Column("checked_at", BigInteger),
    Column("backup", Text, nullable=False),
    Column("error", Text, nullable=False),
    CheckConstraint(_one_of("state", ReleaseState), name="state"),
    UniqueConstraint("identity", "attempt", name="uq_releases_attempt"),
    _partial(
        "uq_releases_open",
        "identity",
        "destination",
        "partition",
        where=_one_of("state", RELEASE_OPEN),
        unique=True,
    ),
)
