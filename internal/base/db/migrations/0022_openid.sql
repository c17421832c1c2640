-- +goose Up
-- Signing in by an OpenID Connect provider. Written by package identity.

-- Who is away at the provider. Only hashes: what the answer is held against, the
-- browser brings back.
CREATE TABLE openid_attempts (
  state_hash   TEXT PRIMARY KEY,
  browser_hash TEXT NOT NULL,                  -- of the cookie: the answer counts in this browser only
  account_id   TEXT REFERENCES accounts(id),   -- to link the login with; NULL = to sign in
  epoch        BIGINT NOT NULL,                -- of that account when its password was asked for
  next         TEXT NOT NULL,                  -- where to go afterwards
  expires_us   BIGINT NOT NULL
);
CREATE INDEX openid_attempts_expires ON openid_attempts (expires_us);

-- The logins that sign in to an account. The provider's name for a person is the
-- pair of issuer and subject, never an address, which may change hands.
CREATE TABLE openid_logins (
  issuer     TEXT NOT NULL,
  subject    TEXT NOT NULL,
  account_id TEXT NOT NULL REFERENCES accounts(id),
  email      TEXT NOT NULL,                    -- that the provider said when it was linked, for its owner to read; '' = none
  created_us BIGINT NOT NULL,
  PRIMARY KEY (issuer, subject),
  UNIQUE (account_id, issuer)
);

-- +goose Down
DROP TABLE openid_logins; DROP TABLE openid_attempts;
