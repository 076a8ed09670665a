-- What is there now is from before the feed; what comes is NULL until it is numbered.
ALTER TABLE events ADD COLUMN position BIGINT;

UPDATE events SET position = 0;

CREATE INDEX ix_events_unnumbered ON events (number) WHERE position IS NULL;

CREATE UNIQUE INDEX uq_events_position ON events (position) WHERE position > 0;

ALTER TABLE workers ADD COLUMN version TEXT;

CREATE INDEX ix_processes_source ON processes (source, seq);

CREATE INDEX ix_processes_created ON processes (created_at);

CREATE TABLE store_state (
  single INTEGER NOT NULL,
  id TEXT NOT NULL,
  last_position BIGINT NOT NULL,
  forgotten_position BIGINT NOT NULL,
  CONSTRAINT pk_store_state PRIMARY KEY (single),
  CONSTRAINT ck_store_state_single CHECK (single = 1)
);

INSERT INTO store_state (single, id, last_position, forgotten_position) VALUES (1, lower(hex(randomblob(16))), 0, 0);

CREATE TABLE requests (
  who TEXT NOT NULL,
  "key" TEXT NOT NULL,
  verb TEXT NOT NULL,
  hash TEXT NOT NULL,
  processes TEXT NOT NULL,
  answer TEXT,
  made_at BIGINT NOT NULL,
  CONSTRAINT pk_requests PRIMARY KEY (who, "key")
);

CREATE INDEX ix_requests_made ON requests (made_at);

CREATE TABLE tokens (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  hash TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  CONSTRAINT pk_tokens PRIMARY KEY (id),
  CONSTRAINT ck_tokens_role CHECK (role IN ('admin', 'operator', 'viewer')),
  CONSTRAINT uq_tokens_name UNIQUE (name)
);

CREATE TABLE halts (
  kind TEXT NOT NULL,
  source TEXT NOT NULL,
  who TEXT NOT NULL,
  reason TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  CONSTRAINT pk_halts PRIMARY KEY (kind, source)
);

CREATE TABLE servers (
  id TEXT NOT NULL,
  host TEXT NOT NULL,
  url TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  CONSTRAINT pk_servers PRIMARY KEY (id)
);

CREATE TABLE proofs (
  seq INTEGER NOT NULL,
  process_id TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  ok BOOLEAN NOT NULL,
  depth TEXT NOT NULL,
  detail TEXT NOT NULL,
  CONSTRAINT pk_proofs PRIMARY KEY (seq),
  CONSTRAINT fk_proofs_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_proofs_process_id ON proofs (process_id, seq);

CREATE TABLE audit (
  number INTEGER NOT NULL,
  at BIGINT NOT NULL,
  who TEXT NOT NULL,
  verb TEXT NOT NULL,
  subject TEXT NOT NULL,
  outcome TEXT NOT NULL,
  processes TEXT NOT NULL,
  detail TEXT NOT NULL,
  CONSTRAINT pk_audit PRIMARY KEY (number),
  CONSTRAINT ck_audit_outcome CHECK (outcome IN ('asked', 'done', 'failed'))
);

CREATE INDEX ix_audit_at ON audit (at);

CREATE TABLE targets (
  name TEXT NOT NULL,
  position BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT pk_targets PRIMARY KEY (name)
);

CREATE TABLE alarms (
  target TEXT NOT NULL,
  subject TEXT NOT NULL,
  state TEXT NOT NULL,
  process_id TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  CONSTRAINT pk_alarms PRIMARY KEY (target, subject)
);

CREATE TABLE notices (
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  target TEXT NOT NULL,
  name TEXT NOT NULL,
  process_id TEXT NOT NULL,
  body TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  not_before BIGINT,
  ended_at BIGINT,
  error TEXT NOT NULL,
  CONSTRAINT pk_notices PRIMARY KEY (seq),
  CONSTRAINT uq_notices_id UNIQUE (id)
);

CREATE INDEX ix_notices_ended ON notices (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX ix_notices_waiting ON notices (target, seq) WHERE ended_at IS NULL;

CREATE TABLE actions (
  number INTEGER NOT NULL,
  id TEXT NOT NULL,
  who TEXT NOT NULL,
  role TEXT NOT NULL,
  command TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  claimed_until BIGINT,
  done_at BIGINT,
  processes TEXT NOT NULL,
  error TEXT NOT NULL,
  CONSTRAINT pk_actions PRIMARY KEY (number),
  CONSTRAINT ck_actions_role CHECK (role IN ('admin', 'operator', 'viewer')),
  CONSTRAINT uq_actions_id UNIQUE (id)
);

CREATE INDEX ix_actions_done ON actions (done_at) WHERE done_at IS NOT NULL;

CREATE INDEX ix_actions_waiting ON actions (number) WHERE done_at IS NULL;
