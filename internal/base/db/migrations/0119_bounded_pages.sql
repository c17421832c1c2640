-- +goose NO TRANSACTION
-- +goose Up

-- Closed accounts of which security events are left, for the purge to delete in slices. Written by package accounts.
CREATE TABLE IF NOT EXISTS erasures (
  account_id TEXT PRIMARY KEY
)
-- sqlite: WITHOUT ROWID
;

-- PostgreSQL builds them while calls go on (decision 144).
-- postgres: SET lock_timeout = 0;

-- The payments of an account that were disputed, among all of its payments.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS payment_records_account_disputed;
-- postgres: CREATE INDEX CONCURRENTLY payment_records_account_disputed ON payment_records (account_id, payment_id) WHERE kind = 'disputed';
-- sqlite: CREATE INDEX IF NOT EXISTS payment_records_account_disputed ON payment_records (account_id, payment_id) WHERE kind = 'disputed';

-- The test accounts of a developer that are not deleted, of which there are at most 25.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS accounts_tests;
-- postgres: CREATE INDEX CONCURRENTLY accounts_tests ON accounts (owner_id, id) WHERE owner_id IS NOT NULL AND deactivated_us IS NULL;
-- sqlite: CREATE INDEX IF NOT EXISTS accounts_tests ON accounts (owner_id, id) WHERE owner_id IS NOT NULL AND deactivated_us IS NULL;

-- The sessions of an account that were used last.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS sessions_seen;
-- postgres: CREATE INDEX CONCURRENTLY sessions_seen ON sessions (account_id, seen_us);
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS sessions_account;
-- sqlite: CREATE INDEX IF NOT EXISTS sessions_seen ON sessions (account_id, seen_us);
-- sqlite: DROP INDEX IF EXISTS sessions_account;

-- The free pools of a month: 'free/', the app, '/' and the month.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS windows_pools;
-- postgres: CREATE INDEX CONCURRENTLY windows_pools ON windows (substr(subject, length(subject) - 6), subject) WHERE subject LIKE 'free/%/____-__';
-- sqlite: CREATE INDEX IF NOT EXISTS windows_pools ON windows (substr(subject, length(subject) - 6), subject) WHERE subject LIKE 'free/%/____-__';

-- postgres: RESET lock_timeout;
