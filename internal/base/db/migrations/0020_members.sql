-- +goose Up

-- Accounts that may use the console pages of an app besides the app's own account, which is always an owner and
-- has no row here (decision 088). Written by package members, as app_invitations.
CREATE TABLE app_members (
  app_id     TEXT NOT NULL REFERENCES apps(id),
  account_id TEXT NOT NULL REFERENCES accounts(id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'developer', 'viewer')),
  invited_by TEXT NOT NULL REFERENCES accounts(id),
  created_us BIGINT NOT NULL,
  PRIMARY KEY (app_id, account_id)
);
CREATE INDEX app_members_account ON app_members (account_id, app_id);

-- Invitations by email that wait for an answer. An invitation that was accepted or revoked has no row.
CREATE TABLE app_invitations (
  id         TEXT PRIMARY KEY,                  -- inv_…
  app_id     TEXT NOT NULL REFERENCES apps(id),
  email      TEXT NOT NULL,                     -- in lower case; only its account may accept
  role       TEXT NOT NULL CHECK (role IN ('owner', 'developer', 'viewer')),
  token_hash TEXT NOT NULL UNIQUE,              -- of the token in the mailed link
  invited_by TEXT NOT NULL REFERENCES accounts(id),
  created_us BIGINT NOT NULL,
  expires_us BIGINT NOT NULL,
  UNIQUE (app_id, email)                        -- a second invitation replaces the first
);
CREATE INDEX app_invitations_expires ON app_invitations (expires_us);
CREATE INDEX app_invitations_inviter ON app_invitations (invited_by);
CREATE INDEX app_invitations_email ON app_invitations (email);
