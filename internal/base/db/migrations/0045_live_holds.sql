-- +goose Up

-- A hold of a failed call stays, for its key, so most rows of holds are failed ones. What looks for the few others uses
-- holds_live; who sends a failed call again without a key is found by holds_failed_fingerprint. SQLite uses an index
-- with a condition only in a query that has the same condition.
CREATE INDEX holds_live ON holds (request_id) WHERE state <> 'failed';
CREATE INDEX holds_failed_fingerprint ON holds (connection_id, fingerprint, created_us) WHERE state = 'failed';
