-- +goose Up

-- Years of the ledger do not go to files any more (decision 162). Attach archived years with the version before: the
-- keys of their calls could be billed again.
CREATE TABLE archived_years (
  n BIGINT NOT NULL CONSTRAINT attach_archived_years_first CHECK (n = 0)
);
INSERT INTO archived_years (n) SELECT COUNT(*) FROM ledger_archives;
DROP TABLE archived_years;
DROP TABLE ledger_archived_accounts;
DROP TABLE ledger_archived_keys;
DROP TABLE ledger_archives;

-- Nor does a summary of the week go to users.
DROP TABLE digest_runs;
ALTER TABLE accounts DROP COLUMN digest;

-- The status page shows the last 24 hours, which are in health.
DROP TABLE health_days;
