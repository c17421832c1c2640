-- +goose Up

-- Invitations by the operator to have an account (decision 095). An invitation that was accepted has no row. Written by
-- package identity.
CREATE TABLE invitations (
  email      TEXT PRIMARY KEY,                  -- in lower case; a second invitation replaces the first
  account_id TEXT NOT NULL REFERENCES accounts(id), -- not confirmed until the link is used
  token_hash TEXT NOT NULL UNIQUE,              -- of the token in the link
  expires_us BIGINT NOT NULL
);
CREATE INDEX invitations_expires ON invitations (expires_us);
CREATE INDEX invitations_account ON invitations (account_id);

-- Suspensions of accounts by the operator: no sign-in, no calls (decision 095).
ALTER TABLE accounts ADD COLUMN suspended_us BIGINT; -- since when; NULL = not suspended
ALTER TABLE accounts ADD COLUMN suspended_reason TEXT NOT NULL DEFAULT ''; -- given by the operator
