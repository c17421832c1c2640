-- +goose Up

-- Parts of a connection's allocation that can be spent by a token of their own (decision 107). What is left of the budget
-- of one is the counter child/<id> in windows. Package ledger/store alone writes it.
CREATE TABLE children (
  id            TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  parent_id     TEXT, -- NULL: the connection itself gave the budget
  depth         BIGINT NOT NULL CHECK (depth BETWEEN 1 AND 4),
  label         TEXT NOT NULL,
  amount_mc     BIGINT NOT NULL CHECK (amount_mc > 0), -- as it was given
  features      TEXT NOT NULL, -- JSON array; empty: all of the app
  models        TEXT NOT NULL,
  key           TEXT NOT NULL, -- Idempotency-Key of the request that made it
  fingerprint   TEXT NOT NULL,
  token_hash    TEXT NOT NULL,
  expires_us    BIGINT NOT NULL,
  created_us    BIGINT NOT NULL,
  ended_us      BIGINT,
  ended_by      TEXT NOT NULL DEFAULT '' CHECK ((ended_by = '') = (ended_us IS NULL)),
  returned_mc   BIGINT NOT NULL DEFAULT 0 CHECK (returned_mc >= 0)
);
CREATE INDEX children_connection ON children (connection_id, id);
CREATE UNIQUE INDEX children_key ON children (connection_id, key);
CREATE UNIQUE INDEX children_token ON children (token_hash);
CREATE INDEX children_parent ON children (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX children_expires ON children (expires_us) WHERE ended_us IS NULL;

-- What is left of the budgets of a connection's children, and what their calls hold of held_mc.
ALTER TABLE connections ADD COLUMN delegated_mc BIGINT NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN child_held_mc BIGINT NOT NULL DEFAULT 0;
