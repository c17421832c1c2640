-- +goose NO TRANSACTION
-- +goose Up

-- PostgreSQL builds them while calls go on (decision 144).
-- postgres: SET lock_timeout = 0;

-- The live children of a connection, of which there are at most 100, among all that have ended.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS children_live;
-- postgres: CREATE INDEX CONCURRENTLY children_live ON children (connection_id) WHERE ended_us IS NULL;
-- sqlite: CREATE INDEX IF NOT EXISTS children_live ON children (connection_id) WHERE ended_us IS NULL;

-- Test events of developers, for their purge.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS events_test;
-- postgres: CREATE INDEX CONCURRENTLY events_test ON events (id) WHERE test = 1;
-- sqlite: CREATE INDEX IF NOT EXISTS events_test ON events (id) WHERE test = 1;

-- postgres: RESET lock_timeout;
