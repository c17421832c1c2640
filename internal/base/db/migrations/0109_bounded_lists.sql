-- +goose NO TRANSACTION
-- +goose Up

-- PostgreSQL builds them while calls go on (decision 144).
-- postgres: SET lock_timeout = 0;

-- The connections that need an operator, among all that their users paused.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS connections_paused;
-- postgres: CREATE INDEX CONCURRENTLY connections_paused ON connections (id) WHERE status = 'frozen' AND frozen_by <> 'user';
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS connections_frozen;
-- sqlite: CREATE INDEX IF NOT EXISTS connections_paused ON connections (id) WHERE status = 'frozen' AND frozen_by <> 'user';
-- sqlite: DROP INDEX IF EXISTS connections_frozen;

-- Disputes that are open or lost, of a payment.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS disputes_contested;
-- postgres: CREATE INDEX CONCURRENTLY disputes_contested ON disputes (payment_id) WHERE contested = 1;
-- sqlite: CREATE INDEX IF NOT EXISTS disputes_contested ON disputes (payment_id) WHERE contested = 1;

-- The refunds of an app's calls up to a time.
-- postgres: DROP INDEX CONCURRENTLY IF EXISTS call_refunds_created;
-- postgres: CREATE INDEX CONCURRENTLY call_refunds_created ON call_refunds (app_id, created_us, n);
-- sqlite: CREATE INDEX IF NOT EXISTS call_refunds_created ON call_refunds (app_id, created_us, n);

-- postgres: RESET lock_timeout;
