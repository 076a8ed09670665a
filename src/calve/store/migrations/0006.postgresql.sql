-- Rows that leave a table: holds and intents meet at guards.
CREATE TABLE guards (
  subject TEXT NOT NULL,
  version BIGINT NOT NULL,
  CONSTRAINT pk_guards PRIMARY KEY (subject)
);

CREATE TABLE holds (
  id TEXT NOT NULL,
  identity TEXT NOT NULL,
  uuid TEXT NOT NULL,
  name TEXT NOT NULL,
  "partition" TEXT NOT NULL,
  who TEXT NOT NULL,
  reason TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  until_at BIGINT,
  released_at BIGINT,
  released_by TEXT NOT NULL,
  CONSTRAINT pk_holds PRIMARY KEY (id)
);

CREATE INDEX ix_holds_standing ON holds (made_at) WHERE released_at IS NULL;

CREATE TABLE intents (
  seq BIGINT GENERATED ALWAYS AS IDENTITY,
  process_id TEXT COLLATE "C" NOT NULL,
  identity TEXT NOT NULL,
  uuid TEXT NOT NULL,
  name TEXT NOT NULL,
  "partition" TEXT NOT NULL,
  step TEXT NOT NULL,
  query_id TEXT NOT NULL,
  detail TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  done_at BIGINT,
  result TEXT NOT NULL,
  CONSTRAINT pk_intents PRIMARY KEY (seq),
  CONSTRAINT fk_intents_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE INDEX ix_intents_open ON intents (seq) WHERE done_at IS NULL;

CREATE INDEX ix_intents_process ON intents (process_id, seq);

CREATE TABLE approvals (
  seq BIGINT GENERATED ALWAYS AS IDENTITY,
  what TEXT NOT NULL,
  hash TEXT NOT NULL,
  identity TEXT NOT NULL,
  destination TEXT NOT NULL,
  policy TEXT NOT NULL,
  who TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  revoked_at BIGINT,
  revoked_by TEXT NOT NULL,
  CONSTRAINT pk_approvals PRIMARY KEY (seq)
);

CREATE UNIQUE INDEX uq_approvals_standing ON approvals (what, hash, identity, destination) WHERE revoked_at IS NULL;

CREATE TABLE policies (
  program TEXT NOT NULL,
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  body TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT pk_policies PRIMARY KEY (program, name)
);

CREATE TABLE releases (
  process_id TEXT COLLATE "C" NOT NULL,
  identity TEXT NOT NULL,
  "partition" TEXT NOT NULL,
  destination TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  state TEXT NOT NULL,
  version BIGINT NOT NULL,
  place TEXT NOT NULL,
  rows BIGINT NOT NULL,
  sums TEXT NOT NULL,
  parts TEXT NOT NULL,
  keys TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  moved_at BIGINT,
  settled_at BIGINT,
  counted_at BIGINT,
  checked_at BIGINT,
  backup TEXT NOT NULL,
  error TEXT NOT NULL,
  CONSTRAINT pk_releases PRIMARY KEY (process_id),
  CONSTRAINT ck_releases_state CHECK (state IN ('DROPPED', 'DROPPING', 'LOST', 'MARKED', 'MOVED', 'MOVING', 'QUARANTINED', 'RETURNED', 'RETURNING')),
  CONSTRAINT uq_releases_attempt UNIQUE (identity, attempt),
  CONSTRAINT fk_releases_process_id FOREIGN KEY(process_id) REFERENCES processes (id)
);

CREATE UNIQUE INDEX uq_releases_open ON releases (identity, destination, partition) WHERE state IN ('MARKED', 'MOVED', 'MOVING', 'RETURNING');
