-- +goose Up
-- What happened to each payment that a user made to us, in records that are only
-- appended: the payment is their fold (decisions, Money). Package ledger writes them
-- with the ledger rows that they name; a record that names none has moved no money.
CREATE TABLE payment_records (
  payment_id     TEXT NOT NULL,                   -- top_…
  n              BIGINT NOT NULL CHECK (n > 0),   -- the records of a payment, without a gap
  kind           TEXT NOT NULL CHECK (kind IN ('opened', 'paid', 'settled', 'failed', 'reversed', 'disputed')),
  account_id     TEXT NOT NULL,
  amount_mc      BIGINT NOT NULL CHECK (amount_mc > 0), -- of the payment; of a reversed record what went back by it
  entry_id       TEXT,                            -- the ledger row
  payment_intent TEXT,                            -- Stripe's, known when it is paid
  hold_until_us  BIGINT,                          -- paid, and cleared then
  reason         TEXT,                            -- why it failed or went back; of a disputed record Stripe's dispute
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

-- Attempts to pay: what was asked of Stripe. A row is there before Stripe is asked,
-- so that whatever becomes of the answer, a second try asks for the same session.
CREATE TABLE checkouts (
  id         TEXT PRIMARY KEY,                    -- top_…, and Stripe's idempotency key
  account_id TEXT NOT NULL,
  token      TEXT NOT NULL,                       -- of the form: one attempt, however often it is sent
  cents      BIGINT NOT NULL CHECK (cents > 0),
  session_id TEXT,                                -- Stripe's
  url        TEXT,                                -- where the user pays
  next_us    BIGINT,                              -- when to ask Stripe how it stands; null = it is over
  created_us BIGINT NOT NULL,
  UNIQUE (account_id, token)
);
CREATE UNIQUE INDEX checkouts_session ON checkouts (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX checkouts_due ON checkouts (next_us) WHERE next_us IS NOT NULL;

-- Stripe's events that were seen to the end: a second delivery does nothing.
CREATE TABLE stripe_events (
  id         TEXT PRIMARY KEY,
  type       TEXT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX stripe_events_created ON stripe_events (created_us);

-- +goose Down
DROP TABLE stripe_events; DROP TABLE checkouts; DROP TABLE payment_records;
