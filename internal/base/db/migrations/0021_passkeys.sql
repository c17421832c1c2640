-- +goose Up
-- Passkeys (WebAuthn): keys that people sign in with. Written by package identity.
CREATE TABLE passkeys (
  id              TEXT PRIMARY KEY,
  account_id      TEXT NOT NULL REFERENCES accounts(id),
  credential_id   BYTEA NOT NULL UNIQUE,                                     -- as the authenticator names it
  public_key      BYTEA NOT NULL,                                            -- in COSE
  name            TEXT NOT NULL,                                             -- as its owner calls it
  transports      TEXT NOT NULL,                                             -- how browsers reach it, joined by commas: a hint for them
  backup_eligible BIGINT NOT NULL CHECK (backup_eligible IN (0, 1)),         -- 1 = it may be on several devices; never changes
  counter         BIGINT NOT NULL CHECK (counter >= 0),                      -- of its last signature; 0 = it counts none
  created_us      BIGINT NOT NULL,
  used_us         BIGINT NOT NULL                                            -- 0 = never
);
CREATE INDEX passkeys_account ON passkeys (account_id, id);

-- What a browser was asked to sign. Whoever answers takes the row, so that each is answered once.
CREATE TABLE passkey_challenges (
  holder     TEXT PRIMARY KEY,                                               -- the browser: hash of its session, or of a cookie while nobody is signed in
  kind       TEXT NOT NULL CHECK (kind IN ('add', 'sign-in', 'second-step')),
  account_id TEXT REFERENCES accounts(id),                                   -- NULL for 'sign-in': the answer tells
  epoch      BIGINT NOT NULL,                                                -- of the account then
  name       TEXT NOT NULL,                                                  -- 'add': of the key to be made
  options    TEXT NOT NULL,                                                  -- for the browser, in JSON
  session    TEXT NOT NULL,                                                  -- what the answer is checked by, in JSON
  expires_us BIGINT NOT NULL,
  CHECK ((kind = 'sign-in') = (account_id IS NULL))
);
CREATE INDEX passkey_challenges_expires ON passkey_challenges (expires_us);

-- +goose Down
DROP TABLE passkey_challenges; DROP TABLE passkeys;
