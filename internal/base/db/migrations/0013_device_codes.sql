-- +goose Up

-- Requests of devices to connect (RFC 8628, decision 068). Written by package oauth.
CREATE TABLE oauth_device_codes (
  hash              TEXT PRIMARY KEY,           -- of the device code
  user_code_hash    TEXT NOT NULL UNIQUE,       -- of the letters that the user types
  app_id            TEXT NOT NULL REFERENCES apps(id),
  requested_mc      BIGINT NOT NULL CHECK (requested_mc >= 0), -- the spend cap that the app proposes; 0 = none
  features          TEXT NOT NULL,              -- slugs that the app names, separated by commas
  expires_us        BIGINT NOT NULL,
  interval_us       BIGINT NOT NULL,            -- the least time between two polls
  polled_us         BIGINT,                     -- the last poll
  account_id        TEXT REFERENCES accounts(id), -- approved: who connects
  allocation_mc     BIGINT NOT NULL DEFAULT 0 CHECK (allocation_mc >= 0), -- approved: the spend cap
  velocity_limit_mc BIGINT,                     -- approved: the daily limit that the user set
  decided_us        BIGINT,                     -- when the user approved or denied
  used_us           BIGINT,                     -- when it was exchanged
  connection_id     TEXT,                       -- exchanged: the connection that it made or renewed
  family_id         TEXT                        -- exchanged: the grant family of its tokens
);
CREATE INDEX oauth_device_codes_expires ON oauth_device_codes (expires_us);
