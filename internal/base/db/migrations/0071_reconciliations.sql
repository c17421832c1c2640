-- +goose Up

-- Comparisons of the books with Stripe's lists (decision 127): one a day, and those that were asked for. One is open at a
-- time. Written by package topups.
CREATE TABLE reconciliations (
  id         TEXT PRIMARY KEY,                            -- rcn_…
  cause      TEXT NOT NULL CHECK (cause IN ('daily', 'asked', 'unknown', 'restored')),
  open       BIGINT UNIQUE CHECK (open = 1),              -- NULL = it has ended
  waits      BIGINT NOT NULL CHECK (waits IN (0, 1)),     -- 1 = while it is open no money leaves
  since_us   BIGINT NOT NULL,                             -- Stripe's objects that are as young as this are listed
  stage      TEXT NOT NULL,                               -- what is being compared
  after_id   TEXT NOT NULL,                               -- the last object that was compared; '' = none of the stage
  compared   BIGINT NOT NULL DEFAULT 0,                   -- objects of ours
  booked     BIGINT NOT NULL DEFAULT 0,                   -- differences
  unbooked   BIGINT NOT NULL DEFAULT 0,                   -- objects that cannot be booked, each with an alarm
  error      TEXT NOT NULL DEFAULT '',                    -- why it waits
  claimed_us BIGINT NOT NULL,                             -- until then the node that claimed it goes on with it
  created_us BIGINT NOT NULL,
  ended_us   BIGINT
);
CREATE INDEX reconciliations_created ON reconciliations (created_us);

-- Refunds of payments as Stripe last told them, those of Stripe's dashboard too. Written by package topups.
CREATE TABLE stripe_refunds (
  id         TEXT PRIMARY KEY, -- Stripe's
  payment_id TEXT NOT NULL,
  cents      BIGINT NOT NULL CHECK (cents >= 0),
  status     TEXT NOT NULL,    -- Stripe's word
  changed_us BIGINT NOT NULL
);
CREATE INDEX stripe_refunds_changed ON stripe_refunds (changed_us);
CREATE INDEX stripe_refunds_payment ON stripe_refunds (payment_id);

-- 1 = the bank has not decided, as far as is known.
ALTER TABLE disputes ADD COLUMN undecided BIGINT NOT NULL DEFAULT 1;
CREATE INDEX disputes_undecided ON disputes (payment_id) WHERE undecided = 1;
