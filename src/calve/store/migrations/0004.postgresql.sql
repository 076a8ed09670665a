-- How attempts spent their time.
CREATE TABLE attempts (
  process_id TEXT COLLATE "C" NOT NULL,
  number BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  ended_at BIGINT NOT NULL,
  ending TEXT NOT NULL,
  code TEXT NOT NULL,
  worker TEXT NOT NULL,
  rows BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  read_ms BIGINT,
  write_ms BIGINT,
  upload_ms BIGINT,
  CONSTRAINT pk_attempts PRIMARY KEY (process_id, number, attempt)
);

CREATE INDEX ix_attempts_failed ON attempts (ended_at) WHERE code <> '';

CREATE TABLE outages (
  seq BIGINT GENERATED ALWAYS AS IDENTITY,
  service TEXT NOT NULL,
  reason TEXT NOT NULL,
  opened_at BIGINT NOT NULL,
  closed_at BIGINT,
  CONSTRAINT pk_outages PRIMARY KEY (seq)
);

CREATE UNIQUE INDEX uq_outages_open ON outages (service) WHERE closed_at IS NULL;

CREATE INDEX ix_outages_opened ON outages (opened_at);

CREATE TABLE sightings (
  subject TEXT NOT NULL,
  what TEXT NOT NULL,
  piece INTEGER NOT NULL,
  seen_at BIGINT,
  tried_at BIGINT,
  looked_until BIGINT,
  seen_by TEXT NOT NULL,
  error TEXT NOT NULL,
  pieces INTEGER NOT NULL,
  summary TEXT NOT NULL,
  body TEXT NOT NULL,
  CONSTRAINT pk_sightings PRIMARY KEY (subject, what, piece)
);

CREATE INDEX ix_sightings_tried ON sightings (tried_at) WHERE piece = 0;

CREATE TABLE sessions (
  hash TEXT NOT NULL,
  token_id TEXT NOT NULL,
  token_hash TEXT NOT NULL,
  role TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  CONSTRAINT pk_sessions PRIMARY KEY (hash),
  CONSTRAINT ck_sessions_role CHECK (role IN ('admin', 'operator', 'viewer'))
);

CREATE INDEX ix_processes_finished ON processes (finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX ix_processes_failed ON processes (state, finished_at) WHERE state = 'FAILED';
