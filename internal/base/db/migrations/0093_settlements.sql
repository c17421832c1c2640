-- +goose Up

-- What operators recorded as paid to users otherwise than by their cards, once for each id, so that a command whose
-- answer was lost can be repeated (decision 124). Kept when an account is closed. Written by package topups.
CREATE TABLE settlements (
  id         TEXT PRIMARY KEY,                          -- stl_…
  account_id TEXT NOT NULL REFERENCES accounts (id),
  amount_mc  BIGINT NOT NULL CHECK (amount_mc > 0),
  reason     TEXT NOT NULL,
  created_us BIGINT NOT NULL
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX settlements_account ON settlements (account_id);
