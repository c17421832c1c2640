-- +goose Up
-- Test accounts (spec §2, Account): when the developer deactivated one, and for which allow-listed tester it was
-- made, if for one. Rows stay, for the ledger names them.
ALTER TABLE accounts ADD COLUMN deactivated_us BIGINT CHECK (deactivated_us IS NULL OR sandbox = 1);
ALTER TABLE accounts ADD COLUMN tester_id TEXT CHECK (tester_id IS NULL OR sandbox = 1);

-- +goose Down
ALTER TABLE accounts DROP COLUMN tester_id; ALTER TABLE accounts DROP COLUMN deactivated_us;
