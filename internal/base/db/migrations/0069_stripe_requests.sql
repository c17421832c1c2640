-- +goose Up

-- What was asked of Stripe and has no final answer yet, and how often what moves no money was made (decision 126).
-- Written by package stripeapi.
CREATE TABLE stripe_requests (
  kind        TEXT NOT NULL CHECK (kind IN ('charge', 'refund', 'transfer', 'session', 'customer', 'payee')),
  id          TEXT NOT NULL,                         -- of the top-up, the refund, the payout, or the account
  attempt     BIGINT NOT NULL CHECK (attempt > 0),   -- a part of the idempotency key
  fence       BIGINT NOT NULL CHECK (fence > 0),     -- number of the newest claim
  claimed_us  BIGINT NOT NULL,                       -- end of the claim; 0 = not claimed
  outcome     TEXT NOT NULL,                         -- why it waits; '' = it does not
  text        TEXT NOT NULL,                         -- Stripe's words
  waits_us    BIGINT,                                -- since when it waits for us, or its outcome is unknown
  replayed_us BIGINT,                                -- when Stripe repeated the stored error of this attempt
  PRIMARY KEY (kind, id),
  CHECK (waits_us IS NULL OR outcome <> '')
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX stripe_requests_waiting ON stripe_requests (waits_us) WHERE waits_us IS NOT NULL;

-- Stripe no longer has the account, since then; the developer is asked to set up another one.
ALTER TABLE payees ADD COLUMN gone_us BIGINT;
