-- +goose Up

-- Top-ups: payments at Stripe, by hand and automatic.

-- Payment records: what happened to each payment, appended and never changed. A payment's state is the fold of
-- its records (decision 023). Written by package ledger, together with the ledger rows that they name.
CREATE TABLE payment_records (
  payment_id     TEXT NOT NULL,                 -- top_…
  n              BIGINT NOT NULL CHECK (n > 0), -- 1, 2, … per payment
  kind           TEXT NOT NULL CHECK (kind IN ('opened', 'paid', 'settled', 'failed', 'reversed', 'disputed')),
  account_id     TEXT NOT NULL,
  amount_mc      BIGINT NOT NULL CHECK (amount_mc > 0), -- of the payment; reversed: the part that was taken back
  entry_id       TEXT,                          -- the ledger row; NULL = the record moves no money
  payment_intent TEXT,                          -- paid: Stripe's id
  hold_until_us  BIGINT,                        -- paid: end of the clearance hold
  reason         TEXT,                          -- failed, reversed: why; disputed: Stripe's id of the dispute
  created_us     BIGINT NOT NULL,
  PRIMARY KEY (payment_id, n),
  CHECK ((entry_id IS NULL) = (kind IN ('paid', 'disputed'))),
  CHECK ((payment_intent IS NOT NULL) = (kind = 'paid')),
  CHECK ((hold_until_us IS NOT NULL) = (kind = 'paid'))
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX payment_records_once ON payment_records (payment_id, kind) WHERE kind NOT IN ('reversed', 'disputed');
CREATE UNIQUE INDEX payment_records_intent ON payment_records (payment_intent) WHERE payment_intent IS NOT NULL;
CREATE UNIQUE INDEX payment_records_entry ON payment_records (entry_id) WHERE entry_id IS NOT NULL;
CREATE INDEX payment_records_account ON payment_records (account_id, payment_id) WHERE kind = 'opened';

-- Payments as we ask Stripe for them. A row is written before Stripe is asked, so that a second request, after a
-- lost answer, names the same payment. An automatic top-up has n and no page. Written by package topups, as all
-- tables below.
CREATE TABLE checkouts (
  id             TEXT PRIMARY KEY,              -- top_…, and the idempotency key at Stripe
  account_id     TEXT NOT NULL,
  token          TEXT NOT NULL,                 -- of the page's form: one payment, however often it is sent
  cents          BIGINT NOT NULL CHECK (cents > 0),
  save_card      BIGINT NOT NULL DEFAULT 0 CHECK (save_card IN (0, 1)), -- 1 = the user agreed that the card is saved
  customer       TEXT,                          -- Stripe's id of the account
  session_id     TEXT,                          -- Stripe's id of the Checkout session
  url            TEXT,                          -- of the Checkout page
  n              BIGINT CHECK (n > 0),          -- automatic top-ups: 1, 2, … per account
  month_us       BIGINT,                        -- automatic top-ups: start of the month whose maximum it counts for
  most_cents     BIGINT,                        -- automatic top-ups: that maximum when the row was written
  payment_method TEXT,                          -- automatic top-ups: Stripe's id of the card
  intent_id      TEXT,                          -- automatic top-ups: Stripe's id of the payment; NULL = no answer yet
  next_us        BIGINT,                        -- when to poll Stripe; NULL = the payment has ended
  created_us     BIGINT NOT NULL,
  UNIQUE (account_id, token)
);
CREATE UNIQUE INDEX checkouts_session ON checkouts (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX checkouts_intent ON checkouts (intent_id) WHERE intent_id IS NOT NULL;
CREATE UNIQUE INDEX checkouts_auto ON checkouts (account_id, n) WHERE n IS NOT NULL;
CREATE UNIQUE INDEX checkouts_auto_open ON checkouts (account_id) WHERE n IS NOT NULL AND next_us IS NOT NULL; -- one at a time
CREATE INDEX checkouts_due ON checkouts (next_us) WHERE next_us IS NOT NULL;

-- Stripe's events that have been processed: a second delivery of one does nothing.
CREATE TABLE stripe_events (
  id         TEXT PRIMARY KEY,
  type       TEXT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX stripe_events_created ON stripe_events (created_us);

-- The user's rule for automatic top-ups, and the saved card that pays for them.
CREATE TABLE auto_topups (
  account_id     TEXT PRIMARY KEY REFERENCES accounts(id),
  customer       TEXT,                          -- Stripe's id of the account
  payment_method TEXT,                          -- Stripe's id of the card; NULL = no card is saved
  brand          TEXT NOT NULL DEFAULT '',      -- of the card, for display
  last4          TEXT NOT NULL DEFAULT '',      -- of the card, for display
  expires        TEXT NOT NULL DEFAULT '',      -- of the card, for display, as 04/2030
  enabled        BIGINT NOT NULL DEFAULT 0 CHECK (enabled IN (0, 1)),
  agreed_us      BIGINT,                        -- when the user last turned it on
  off_reason     TEXT NOT NULL DEFAULT '',      -- why the service turned it off; '' = it did not
  below_cents    BIGINT NOT NULL DEFAULT 0,     -- top up when the available balance is below this
  add_cents      BIGINT NOT NULL DEFAULT 0,     -- by this amount
  most_cents     BIGINT NOT NULL DEFAULT 0,     -- and by no more than this in a calendar month, UTC
  failures       BIGINT NOT NULL DEFAULT 0,     -- failed payments since the last successful one
  next_us        BIGINT NOT NULL DEFAULT 0,     -- no payment before this time
  told_month_us  BIGINT NOT NULL DEFAULT 0,     -- start of the month for which the notice "maximum reached" was sent
  CHECK (enabled = 0 OR payment_method IS NOT NULL AND below_cents > 0 AND add_cents >= below_cents AND most_cents >= add_cents)
);
CREATE INDEX auto_topups_on ON auto_topups (next_us) WHERE enabled = 1;

-- Saved cards that Stripe is still to delete.
CREATE TABLE card_removals (
  payment_method TEXT PRIMARY KEY,              -- Stripe's id of the card
  next_us        BIGINT NOT NULL                -- when to ask Stripe next
);
