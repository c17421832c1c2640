-- +goose Up
-- When a person closed their account: its row is a tombstone without anything of
-- theirs, which the ledger's rows go on to name. Written by package accounts.
ALTER TABLE accounts ADD COLUMN closed_us BIGINT CHECK (closed_us IS NULL OR sandbox = 0);

-- People read their notices in the export of their data.
CREATE INDEX notices_account ON notices (account_id, id);

-- +goose Down
DROP INDEX notices_account;
ALTER TABLE accounts DROP COLUMN closed_us;
