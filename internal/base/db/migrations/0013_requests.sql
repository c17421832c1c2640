-- +goose Up
-- Allocation requests: an app asks that a connection's cap be raised, and its user
-- decides (spec §2, §3, Allocation request). Written by package ledger, under the
-- lock of the account's balance.
CREATE TABLE allocation_requests (
  id            TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'superseded')),
  current_mc    BIGINT NOT NULL CHECK (current_mc >= 0),  -- the cap when it was asked
  target_mc     BIGINT NOT NULL CHECK (target_mc > current_mc),
  reason        TEXT NOT NULL,                            -- as the app gave it; '' = none
  superseded_by TEXT,                                     -- the newer request
  created_us    BIGINT NOT NULL,
  decided_us    BIGINT,                                   -- when the user decided
  CHECK ((status = 'superseded') = (superseded_by IS NOT NULL)),
  CHECK ((status = 'approved' OR status = 'denied') = (decided_us IS NOT NULL))
);
CREATE INDEX allocation_requests_connection ON allocation_requests (connection_id, id);
CREATE UNIQUE INDEX allocation_requests_pending ON allocation_requests (connection_id) WHERE status = 'pending';

-- +goose Down
DROP TABLE allocation_requests;
