-- +goose Up

-- The public log of the ledger.

-- The newest checkpoint. One row, which a publisher locks.
CREATE TABLE log_state (
  id         BIGINT PRIMARY KEY CHECK (id = 1),
  checkpoint TEXT NOT NULL,                     -- a signed note, '' before the first
  calls      BIGINT NOT NULL DEFAULT 0          -- How many leaves log_calls has looked at, from the first.
);
INSERT INTO log_state (id, checkpoint, calls) VALUES (1, '', 0);

-- How far each account's rows are in the log, and the secret that its leaves are blinded by.
CREATE TABLE log_accounts (
  account_id TEXT PRIMARY KEY,
  secret     BYTEA NOT NULL,                    -- 32 random bytes, told to the account's owner alone
  seq        BIGINT NOT NULL CHECK (seq > 0)    -- of its newest row in the log
);

-- One row per leaf.
CREATE TABLE log_rows (
  position   BIGINT PRIMARY KEY CHECK (position >= 0), -- index of the leaf
  account_id TEXT NOT NULL,
  seq        BIGINT NOT NULL,                   -- the ledger row's, within its account
  entry      BYTEA NOT NULL,                    -- what the leaf says: tag and commitment
  UNIQUE (account_id, seq)
);

-- Hashes of the tree, 256 to a tile; the last tile of a level has fewer.
CREATE TABLE log_tiles (
  level    BIGINT NOT NULL,
  position BIGINT NOT NULL,                     -- index of the tile in its level
  hashes   BYTEA NOT NULL,
  PRIMARY KEY (level, position)
);

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
