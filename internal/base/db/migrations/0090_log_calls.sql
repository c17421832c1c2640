-- +goose Up

-- Which leaves of the public log are calls of an app, billed or refunded: its call log in the order of settlement
-- (decision 139). Written by package ledger/proofs.
CREATE TABLE log_calls (
  app_id   TEXT NOT NULL,
  position BIGINT NOT NULL,                     -- of the leaf
  entry_id TEXT NOT NULL,                       -- the ledger row
  PRIMARY KEY (app_id, position)
)
-- sqlite: WITHOUT ROWID
;
-- How many leaves log_calls has looked at, from the first.
ALTER TABLE log_state ADD COLUMN calls BIGINT NOT NULL DEFAULT 0;
