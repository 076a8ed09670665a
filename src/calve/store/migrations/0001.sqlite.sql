CREATE TABLE breakers (
  lane TEXT NOT NULL,
  reason TEXT NOT NULL,
  opened_at BIGINT NOT NULL,
  probe_at BIGINT NOT NULL,
  probes BIGINT NOT NULL,
  CONSTRAINT pk_breakers PRIMARY KEY (lane)
);

CREATE TABLE processes (
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  version BIGINT NOT NULL,
  source TEXT NOT NULL,
  destination TEXT NOT NULL,
  lane TEXT NOT NULL,
  needs TEXT NOT NULL,
  request TEXT NOT NULL,
  partitions TEXT NOT NULL,
  locks TEXT NOT NULL,
  batch TEXT,
  priority INTEGER NOT NULL,
  retry_of TEXT,
  adopted BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  deadline_at BIGINT NOT NULL,
  finished_at BIGINT,
  cancel_requested BOOLEAN NOT NULL,
  owner TEXT,
  fence BIGINT NOT NULL,
  lease_until BIGINT,
  planned BOOLEAN NOT NULL,
  plan_attempts BIGINT NOT NULL,
  publish_attempts BIGINT NOT NULL,
  fence_attempts BIGINT NOT NULL,
  not_before BIGINT,
  publish_sent BOOLEAN NOT NULL,
  publish_note TEXT NOT NULL,
  tasks_total BIGINT NOT NULL,
  tasks_done BIGINT NOT NULL,
  tasks_failed BIGINT NOT NULL,
  tasks_running BIGINT NOT NULL,
  rows BIGINT NOT NULL,
  files BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  snapshot_id TEXT,
  result TEXT NOT NULL,
  error TEXT,
  leftovers TEXT NOT NULL,
  cleanup_at BIGINT,
  cleanup_attempts BIGINT NOT NULL,
  CONSTRAINT pk_processes PRIMARY KEY (seq),
  CONSTRAINT ck_processes_state CHECK (state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'PENDING', 'PUBLISHING', 'RUNNING')),
  CONSTRAINT ck_processes_leftovers CHECK (leftovers IN ('ADOPTED', 'GONE', 'KEPT', 'NONE', 'UNDOING')),
  CONSTRAINT ck_processes_ended CHECK ((state IN ('CANCELLED', 'COMPLETED', 'FAILED')) = (finished_at IS NOT NULL)),
  CONSTRAINT ck_processes_all_done CHECK (NOT (state IN ('COMPLETED', 'PUBLISHING')) OR tasks_done = tasks_total),
  CONSTRAINT ck_processes_planned CHECK (NOT (state IN ('PUBLISHING', 'RUNNING')) OR planned),
  CONSTRAINT ck_processes_reason CHECK (state <> 'FAILED' OR error IS NOT NULL),
  CONSTRAINT ck_processes_none_running CHECK (finished_at IS NULL OR tasks_running = 0),
  CONSTRAINT ck_processes_counts CHECK (tasks_done >= 0 AND tasks_failed >= 0 AND tasks_running >= 0 AND tasks_done + tasks_failed + tasks_running <= tasks_total),
  CONSTRAINT ck_processes_lease CHECK ((owner IS NULL) = (lease_until IS NULL)),
  CONSTRAINT uq_processes_id UNIQUE (id),
  CONSTRAINT fk_processes_retry_of FOREIGN KEY(retry_of) REFERENCES processes (id)
);

CREATE INDEX ix_processes_batch ON processes (batch, seq) WHERE batch IS NOT NULL;

CREATE INDEX ix_processes_cleanup ON processes (cleanup_at) WHERE cleanup_at IS NOT NULL;

CREATE INDEX ix_processes_destination ON processes (destination, seq);

CREATE INDEX ix_processes_kind ON processes (kind, seq);

CREATE INDEX ix_processes_live ON processes (priority DESC, seq) WHERE finished_at IS NULL;

CREATE INDEX ix_processes_owner ON processes (owner) WHERE owner IS NOT NULL;

CREATE INDEX ix_processes_retry_of ON processes (retry_of, seq) WHERE retry_of IS NOT NULL;

CREATE INDEX ix_processes_state ON processes (state, seq);

CREATE TABLE schema_version (
  single INTEGER NOT NULL,
  version INTEGER NOT NULL,
  CONSTRAINT pk_schema_version PRIMARY KEY (single),
  CONSTRAINT ck_schema_version_single CHECK (single = 1)
);

CREATE TABLE workers (
  id TEXT NOT NULL,
  host TEXT NOT NULL,
  reach TEXT NOT NULL,
  slots INTEGER NOT NULL,
  started_at BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  draining BOOLEAN NOT NULL,
  error TEXT,
  CONSTRAINT pk_workers PRIMARY KEY (id)
);

CREATE TABLE events (
  number INTEGER NOT NULL,
  process_id TEXT NOT NULL,
  at BIGINT NOT NULL,
  name TEXT NOT NULL,
  message TEXT NOT NULL,
  CONSTRAINT pk_events PRIMARY KEY (number),
  CONSTRAINT fk_events_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_events_process_id ON events (process_id, number);

CREATE TABLE locks (
  seq INTEGER NOT NULL,
  name TEXT NOT NULL,
  process_id TEXT NOT NULL,
  freed_at BIGINT,
  CONSTRAINT pk_locks PRIMARY KEY (seq),
  CONSTRAINT fk_locks_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_locks_process_id ON locks (process_id);

CREATE UNIQUE INDEX uq_locks_held ON locks (name) WHERE freed_at IS NULL;

CREATE TABLE pins (
  seq INTEGER NOT NULL,
  name TEXT NOT NULL,
  process_id TEXT NOT NULL,
  source TEXT NOT NULL,
  detail TEXT NOT NULL,
  state TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  not_before BIGINT,
  release_attempts BIGINT NOT NULL,
  error TEXT,
  CONSTRAINT pk_pins PRIMARY KEY (seq),
  CONSTRAINT ck_pins_state CHECK (state IN ('JOURNALED', 'RELEASED', 'RELEASING', 'TAKEN')),
  CONSTRAINT fk_pins_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_pins_process_id ON pins (process_id);

CREATE INDEX ix_pins_state ON pins (state, seq);

CREATE UNIQUE INDEX uq_pins_name ON pins (name);

CREATE TABLE plans (
  process_id TEXT NOT NULL,
  "plan" TEXT NOT NULL,
  CONSTRAINT pk_plans PRIMARY KEY (process_id),
  CONSTRAINT fk_plans_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE TABLE tasks (
  process_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  state TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  free_attempts BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  started_at BIGINT,
  finished_at BIGINT,
  not_before BIGINT,
  spec TEXT NOT NULL,
  receipt TEXT NOT NULL,
  error TEXT,
  CONSTRAINT pk_tasks PRIMARY KEY (process_id, number),
  CONSTRAINT ck_tasks_state CHECK (state IN ('CANCELLED', 'DONE', 'FAILED', 'PENDING', 'RUNNING')),
  CONSTRAINT ck_tasks_ended CHECK ((state IN ('CANCELLED', 'DONE', 'FAILED')) = (finished_at IS NOT NULL)),
  CONSTRAINT ck_tasks_receipt CHECK (state <> 'DONE' OR receipt <> ''),
  CONSTRAINT fk_tasks_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_tasks_not_before ON tasks (process_id, not_before) WHERE not_before IS NOT NULL;

CREATE INDEX ix_tasks_state ON tasks (process_id, state, number);
