-- What policies started.
CREATE TABLE starts (
  seq INTEGER NOT NULL,
  policy TEXT NOT NULL,
  hash TEXT NOT NULL,
  action TEXT NOT NULL,
  identity TEXT NOT NULL,
  "partition" TEXT NOT NULL,
  destination TEXT NOT NULL,
  content TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  day TEXT NOT NULL,
  process_id TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  CONSTRAINT pk_starts PRIMARY KEY (seq),
  CONSTRAINT uq_starts_attempt UNIQUE (identity, destination, "partition", action, content, attempt)
);

CREATE INDEX ix_starts_day ON starts (policy, day);

CREATE INDEX ix_starts_made ON starts (made_at);
