ALTER TABLE processes ADD COLUMN uploads_at BIGINT;

CREATE INDEX ix_processes_uploads ON processes (uploads_at) WHERE uploads_at IS NOT NULL;
