-- +goose Up
-- Outgoing mail, queued in the transaction of what it tells (package mail). Whoever
-- sends one moves next_us past the end of its lease.
CREATE TABLE mails (
  id          TEXT PRIMARY KEY,
  account_id  TEXT NOT NULL REFERENCES accounts(id),
  recipient   TEXT NOT NULL,
  subject     TEXT NOT NULL,
  text        TEXT NOT NULL,
  html        TEXT NOT NULL,               -- '' = none
  unsubscribe TEXT NOT NULL,               -- URL of RFC 8058; '' = none
  created_us  BIGINT NOT NULL,
  status      TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
  attempts    BIGINT NOT NULL DEFAULT 0,
  next_us     BIGINT NOT NULL,             -- not to be tried before
  lease       TEXT NOT NULL DEFAULT '',    -- of whoever tries; '' = nobody
  last_error  TEXT NOT NULL DEFAULT '',
  done_us     BIGINT                       -- when it was sent or given up
);
CREATE INDEX mails_due ON mails (next_us, id) WHERE status = 'pending';
CREATE INDEX mails_done ON mails (done_us) WHERE done_us IS NOT NULL;

-- Whether the account wants mail about what its apps use up. Written by package accounts.
ALTER TABLE accounts ADD COLUMN notices BIGINT NOT NULL DEFAULT 1 CHECK (notices IN (0, 1));

-- +goose Down
ALTER TABLE accounts DROP COLUMN notices; DROP TABLE mails;
