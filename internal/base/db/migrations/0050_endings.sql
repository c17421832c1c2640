-- +goose Up

-- How often the address of an account was changed. A mailed link or pending step is bound to epoch + address_changes, so
-- that it ends with the address; sessions are bound to epoch alone and go on.
ALTER TABLE accounts ADD COLUMN address_changes BIGINT NOT NULL DEFAULT 0;

-- A set-up of an authenticator app (active = 0) belongs to one browser, one epoch and a short time, as a challenge of a
-- passkey does. One that began before these columns has expired.
ALTER TABLE totp_seeds ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;      -- of the account when it began
ALTER TABLE totp_seeds ADD COLUMN holder TEXT NOT NULL DEFAULT '';      -- the browser: hash of its session
ALTER TABLE totp_seeds ADD COLUMN expires_us BIGINT NOT NULL DEFAULT 0; -- 0 = of an active seed, or expired
