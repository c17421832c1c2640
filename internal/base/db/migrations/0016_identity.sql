-- +goose Up
-- How people prove who they are (spec §2, Account). Written by package accounts.
ALTER TABLE accounts ADD COLUMN unconfirmed BIGINT NOT NULL DEFAULT 0 CHECK (unconfirmed IN (0, 1)); -- 1 = the address was never proved: nobody signs in
ALTER TABLE accounts ADD COLUMN two_step BIGINT NOT NULL DEFAULT 0 CHECK (two_step IN (0, 1));       -- 1 = a password alone does not sign in
ALTER TABLE accounts ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;                                     -- sessions of an earlier one have ended

ALTER TABLE sessions ADD COLUMN account_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN pending BIGINT NOT NULL DEFAULT 0 CHECK (pending IN (0, 1));         -- 1 = waits for the second step
ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT '';                                      -- what the browser says it is
ALTER TABLE sessions ADD COLUMN started_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN seen_us BIGINT NOT NULL DEFAULT 0;
DELETE FROM sessions; -- they do not say whose they are
CREATE INDEX sessions_account ON sessions (account_id);

-- What happened to the security of an account, for its owner.
CREATE TABLE security_events (
  id         TEXT PRIMARY KEY,
  account_id TEXT NOT NULL REFERENCES accounts(id),
  kind       TEXT NOT NULL,
  address    TEXT NOT NULL,             -- of the client
  agent      TEXT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX security_events_account ON security_events (account_id, id);
CREATE INDEX security_events_created ON security_events (created_us);

-- Links in mails, each used once. Written by package identity, as all below.
CREATE TABLE identity_links (
  token_hash    TEXT PRIMARY KEY,
  kind          TEXT NOT NULL CHECK (kind IN ('sign-up', 'reset', 'email')),
  account_id    TEXT REFERENCES accounts(id),  -- NULL = it was never sent
  email         TEXT NOT NULL,                 -- that it proves
  password_hash TEXT NOT NULL,                 -- sign-up: of the password that was chosen with it; '' otherwise
  epoch         BIGINT NOT NULL,               -- of the account when it was sent: it works in no other
  next          TEXT NOT NULL,                 -- where to go afterwards
  expires_us    BIGINT NOT NULL
);
CREATE INDEX identity_links_expires ON identity_links (expires_us);
CREATE INDEX identity_links_account ON identity_links (account_id);

-- Seeds of one-time codes (RFC 6238), sealed.
CREATE TABLE totp_seeds (
  account_id TEXT PRIMARY KEY REFERENCES accounts(id),
  sealed     BYTEA NOT NULL,
  active     BIGINT NOT NULL CHECK (active IN (0, 1)),  -- 0 = set up, no code was typed yet
  last_step  BIGINT NOT NULL                            -- time step of the last code that was taken: none is taken twice
);

CREATE TABLE recovery_codes (
  account_id TEXT NOT NULL REFERENCES accounts(id),
  code_hash  TEXT NOT NULL,
  PRIMARY KEY (account_id, code_hash)
);

-- +goose Down
DROP TABLE recovery_codes; DROP TABLE totp_seeds; DROP TABLE identity_links; DROP TABLE security_events;
DROP INDEX sessions_account;
ALTER TABLE sessions DROP COLUMN seen_us; ALTER TABLE sessions DROP COLUMN started_us; ALTER TABLE sessions DROP COLUMN agent;
ALTER TABLE sessions DROP COLUMN pending; ALTER TABLE sessions DROP COLUMN account_id;
ALTER TABLE accounts DROP COLUMN epoch; ALTER TABLE accounts DROP COLUMN two_step; ALTER TABLE accounts DROP COLUMN unconfirmed;
