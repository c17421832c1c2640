-- +goose NO TRANSACTION
-- +goose Up

-- Indexes of big tables that calls write: PostgreSQL builds them while calls go on. It waits for older transactions
-- meanwhile, such as a backup's, which blocks nobody. What a run that ended early has left is built again.
-- postgres: SET lock_timeout = 0;

-- Daily totals are read in steps, each of which goes on after the last row of the one before. An index of SQLite has
-- the table's key behind its own columns.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS rollups_app_steps;
-- postgres: CREATE INDEX CONCURRENTLY rollups_app_steps ON rollups (app_id, day, connection_id, feature, model);
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS rollups_app;
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS rollups_day_steps;
-- postgres: CREATE INDEX CONCURRENTLY rollups_day_steps ON rollups (day, connection_id, feature, model);
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS rollups_day;

-- For the purges.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS sessions_expires;
-- postgres: CREATE INDEX CONCURRENTLY sessions_expires ON sessions (expires_us);
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS webhooks_deleted;
-- postgres: CREATE INDEX CONCURRENTLY webhooks_deleted ON webhooks (id) WHERE deleted_us IS NOT NULL;
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS webhook_days_day;
-- postgres: CREATE INDEX CONCURRENTLY webhook_days_day ON webhook_days (day);
-- sqlite: CREATE INDEX IF NOT EXISTS sessions_expires ON sessions (expires_us);
-- sqlite: CREATE INDEX IF NOT EXISTS webhooks_deleted ON webhooks (id) WHERE deleted_us IS NOT NULL;
-- sqlite: CREATE INDEX IF NOT EXISTS webhook_days_day ON webhook_days (day);

-- postgres: RESET lock_timeout;
