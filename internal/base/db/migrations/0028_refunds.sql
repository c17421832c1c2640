-- +goose Up

-- Refunds of payments that the operator asked for. A row is written before Stripe is asked, so that a second request,
-- after a lost answer, names the same refund. The money leaves the balance when the payment is reconciled (decision 023).
-- Written by package topups.
CREATE TABLE refunds (
  id          TEXT PRIMARY KEY,                 -- rfd_…, the idempotency key at Stripe, and in its metadata
  payment_id  TEXT NOT NULL,
  account_id  TEXT NOT NULL,
  cents       BIGINT NOT NULL CHECK (cents > 0),
  total_cents BIGINT NOT NULL CHECK (total_cents >= cents), -- refunded of the payment once this refund is done
  state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused')),
  error       TEXT NOT NULL DEFAULT '',         -- refused: why, by Stripe
  next_us     BIGINT NOT NULL,                  -- open: when a job asks Stripe again
  created_us  BIGINT NOT NULL
);
CREATE UNIQUE INDEX refunds_open ON refunds (payment_id) WHERE state = 'open'; -- one at a time
CREATE INDEX refunds_due ON refunds (next_us) WHERE state = 'open';
CREATE INDEX refunds_account ON refunds (account_id, id);
