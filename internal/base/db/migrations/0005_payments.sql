-- +goose Up

-- Payments: top-ups, refunds, disputes and payouts.

-- Payments as we ask Stripe for them. A row is written before Stripe is asked, so that a second request, after a
-- lost answer, names the same payment. An automatic top-up has n and no page. Written by package topups, as all
-- tables below.
CREATE TABLE checkouts (
  id             TEXT PRIMARY KEY,              -- top_…, and the idempotency key at Stripe
  account_id     TEXT NOT NULL,
  token          TEXT NOT NULL,                 -- of the page's form: one payment, however often it is sent
  cents          BIGINT NOT NULL CHECK (cents > 0),
  -- 1 = the user agreed that the card is saved
  save_card      BIGINT NOT NULL DEFAULT 0 CHECK (save_card IN (0, 1)),
  customer       TEXT,                          -- Stripe's id of the account
  session_id     TEXT,                          -- Stripe's id of the Checkout session
  url            TEXT,                          -- of the Checkout page
  n              BIGINT CHECK (n > 0),          -- automatic top-ups: 1, 2, … per account
  month_us       BIGINT,                        -- automatic top-ups: start of the month whose maximum it counts for
  most_cents     BIGINT,                        -- automatic top-ups: that maximum when the row was written
  payment_method TEXT,                          -- automatic top-ups: Stripe's id of the card
  -- automatic top-ups: Stripe's id of the payment; NULL = no answer yet
  intent_id      TEXT,
  next_us        BIGINT,                        -- when to poll Stripe; NULL = the payment has ended
  created_us     BIGINT NOT NULL,
  -- Before Stripe is asked about a checkout, the question takes its next number; an answer is dropped when that to
  -- a later question was applied.
  asked_n        BIGINT NOT NULL DEFAULT 0,
  applied_n      BIGINT NOT NULL DEFAULT 0,
  -- Stripe may carry one request out twice: a node that paused for more than a day asks with a key that Stripe has
  -- forgotten. The second payment is a top-up of its own, and this is the one that it names. NULL = it names
  -- itself.
  named_id       TEXT,
  -- Since when Stripe does not answer about it; NULL = it did when it was asked last.
  failing_us     BIGINT,
  UNIQUE (account_id, token)
);
CREATE UNIQUE INDEX checkouts_session ON checkouts (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX checkouts_intent ON checkouts (intent_id) WHERE intent_id IS NOT NULL;
CREATE UNIQUE INDEX checkouts_auto ON checkouts (account_id, n) WHERE n IS NOT NULL;
CREATE INDEX checkouts_due ON checkouts (next_us) WHERE next_us IS NOT NULL;
CREATE INDEX checkouts_customer ON checkouts (customer) WHERE next_us IS NOT NULL;
-- Since when Stripe does not answer about it; NULL = it did when it was asked last.
CREATE INDEX checkouts_failing ON checkouts (failing_us) WHERE failing_us IS NOT NULL;
CREATE UNIQUE INDEX checkouts_auto_open ON checkouts (account_id)
  WHERE n IS NOT NULL AND next_us IS NOT NULL AND intent_id IS NULL;

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
  -- start of the month for which the notice "maximum reached" was sent
  told_month_us  BIGINT NOT NULL DEFAULT 0,
  -- When the saved card was charged that the user wanted to be saved, or when the user removed the card: what is
  -- older does not replace it.
  card_us        BIGINT NOT NULL DEFAULT 0,
  CHECK (enabled = 0 OR payment_method IS NOT NULL AND below_cents > 0 AND add_cents >= below_cents
    AND most_cents >= add_cents)
);
CREATE INDEX auto_topups_on ON auto_topups (next_us) WHERE enabled = 1;

-- Payment records: what happened to each payment, appended and never changed. A payment's state is the fold of its
-- records (decision 023). Written by package ledger, together with the ledger rows that they name.
CREATE TABLE payment_records (
  payment_id     TEXT NOT NULL,                 -- top_…
  n              BIGINT NOT NULL CHECK (n > 0), -- 1, 2, … per payment
  kind           TEXT NOT NULL CHECK (kind IN ('opened', 'reopened', 'paid', 'settled', 'failed', 'reversed',
    'restored', 'disputed')),
  account_id     TEXT NOT NULL,
  -- of the payment; reversed, restored: the part that went or came back
  amount_mc      BIGINT NOT NULL CHECK (amount_mc > 0),
  entry_id       TEXT,                          -- the ledger row; NULL = the record moves no money
  payment_intent TEXT,                          -- paid: Stripe's id
  hold_until_us  BIGINT,                        -- paid: end of the clearance hold
  -- failed, reversed, restored: why; disputed: Stripe's id of the dispute
  reason         TEXT,
  created_us     BIGINT NOT NULL,
  PRIMARY KEY (payment_id, n),
  CHECK ((entry_id IS NULL) = (kind IN ('paid', 'disputed'))),
  CHECK ((payment_intent IS NOT NULL) = (kind = 'paid')),
  CHECK ((hold_until_us IS NOT NULL) = (kind = 'paid'))
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX payment_records_intent ON payment_records (payment_intent) WHERE payment_intent IS NOT NULL;
CREATE UNIQUE INDEX payment_records_entry ON payment_records (entry_id) WHERE entry_id IS NOT NULL;
CREATE INDEX payment_records_account ON payment_records (account_id, payment_id) WHERE kind = 'opened';
-- Disputes for the operator's overview.
CREATE INDEX payment_records_disputed ON payment_records (created_us) WHERE kind = 'disputed';
CREATE UNIQUE INDEX payment_records_once ON payment_records (payment_id, kind)
  WHERE kind IN ('opened', 'paid', 'settled');
-- The payments of an account that were disputed, among all of its payments.
CREATE INDEX payment_records_account_disputed ON payment_records (account_id, payment_id) WHERE kind = 'disputed';

-- Stripe's events that have been processed: a second delivery of one does nothing.
CREATE TABLE stripe_events (
  id         TEXT PRIMARY KEY,
  type       TEXT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX stripe_events_created ON stripe_events (created_us);

-- What was asked of Stripe and has no final answer yet, and how often what moves no money was made (decision 126).
-- Written by package stripeapi.
CREATE TABLE stripe_requests (
  kind        TEXT NOT NULL CHECK (kind IN ('charge', 'refund', 'transfer', 'session', 'customer', 'payee')),
  id          TEXT NOT NULL,                    -- of the top-up, the refund, the payout, or the account
  attempt     BIGINT NOT NULL CHECK (attempt > 0), -- a part of the idempotency key
  fence       BIGINT NOT NULL CHECK (fence > 0), -- number of the newest claim
  claimed_us  BIGINT NOT NULL,                  -- end of the claim; 0 = not claimed
  outcome     TEXT NOT NULL,                    -- why it waits; '' = it does not
  text        TEXT NOT NULL,                    -- Stripe's words
  waits_us    BIGINT,                           -- since when it waits for us, or its outcome is unknown
  replayed_us BIGINT,                           -- when Stripe repeated the stored error of this attempt
  PRIMARY KEY (kind, id),
  CHECK (waits_us IS NULL OR outcome <> '')
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX stripe_requests_waiting ON stripe_requests (waits_us) WHERE waits_us IS NOT NULL;

-- Refunds of payments as Stripe last told them, those of Stripe's dashboard too. Written by package topups.
CREATE TABLE stripe_refunds (
  id             TEXT PRIMARY KEY,              -- Stripe's
  payment_id     TEXT NOT NULL,
  cents          BIGINT NOT NULL CHECK (cents >= 0),
  status         TEXT NOT NULL,                 -- Stripe's word
  changed_us     BIGINT NOT NULL,
  pending_reason TEXT NOT NULL DEFAULT ''       -- Why Stripe has not sent a refund, in Stripe's word.
);
CREATE INDEX stripe_refunds_changed ON stripe_refunds (changed_us);
CREATE INDEX stripe_refunds_payment ON stripe_refunds (payment_id);
-- Why Stripe has not sent a refund, in Stripe's word.
CREATE INDEX stripe_refunds_own ON stripe_refunds (changed_us) WHERE pending_reason = 'insufficient_funds';

-- Refunds of payments that the operator asked for. A row is written before Stripe is asked, so that a second
-- request, after a lost answer, names the same refund. The money leaves the balance when the payment is reconciled
-- (decision 023). Written by package topups.
CREATE TABLE refunds (
  id          TEXT PRIMARY KEY,                 -- rfd_…, the idempotency key at Stripe, and in its metadata
  payment_id  TEXT NOT NULL,
  account_id  TEXT NOT NULL,
  cents       BIGINT NOT NULL CHECK (cents > 0),
  total_cents BIGINT NOT NULL CHECK (total_cents >= cents), -- refunded of the payment once this refund is done
  state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused')),
  error       TEXT NOT NULL DEFAULT '',         -- refused: why, by Stripe
  next_us     BIGINT NOT NULL,                  -- open: when a job asks Stripe again
  created_us  BIGINT NOT NULL,
  -- Refunds that users ask for (decision 108). Their amount leaves the balance in the transaction that writes the
  -- row, before Stripe is asked; a refund that Stripe refuses gives it back.
  by_user     BIGINT NOT NULL DEFAULT 0 CHECK (by_user IN (0, 1)),
  -- by_user: of the form, so that one that is sent again asks for no second refund
  token       TEXT,
  -- 1 = refused by its terms here, such as a payment of which less is left: Stripe and the card were not asked,
  -- and may take another one.
  is_unwanted BIGINT NOT NULL DEFAULT 0 CHECK (is_unwanted IN (0, 1))
);
CREATE UNIQUE INDEX refunds_open ON refunds (payment_id) WHERE state = 'open';
CREATE INDEX refunds_due ON refunds (next_us) WHERE state = 'open';
CREATE INDEX refunds_account ON refunds (account_id, id);
CREATE INDEX refunds_token ON refunds (account_id, token) WHERE token IS NOT NULL;
-- The refunds of a payment.
CREATE INDEX refunds_payment ON refunds (payment_id);

-- Disputes of payments as Stripe last told them. Written by package topups.
CREATE TABLE disputes (
  id         TEXT PRIMARY KEY,                  -- Stripe's
  payment_id TEXT NOT NULL,
  cents      BIGINT NOT NULL CHECK (cents >= 0),
  contested  BIGINT NOT NULL CHECK (contested IN (0, 1)), -- 1 = open or lost
  changed_us BIGINT NOT NULL,
  undecided  BIGINT NOT NULL DEFAULT 1          -- 1 = the bank has not decided, as far as is known.
);
CREATE INDEX disputes_changed ON disputes (changed_us);
CREATE INDEX disputes_payment ON disputes (payment_id);
-- 1 = the bank has not decided, as far as is known.
CREATE INDEX disputes_undecided ON disputes (payment_id) WHERE undecided = 1;
-- Disputes that are open or lost, of a payment.
CREATE INDEX disputes_contested ON disputes (payment_id) WHERE contested = 1;

-- Disputes that are not decided. While an account has one, its user cannot connect, resume or raise a spend cap.
CREATE TABLE open_disputes (
  dispute_id TEXT PRIMARY KEY,                  -- Stripe's
  payment_id TEXT NOT NULL,
  account_id TEXT NOT NULL,
  since_us   BIGINT NOT NULL
);
CREATE INDEX open_disputes_account ON open_disputes (account_id);

-- Saved cards that Stripe is still to delete.
CREATE TABLE card_removals (
  payment_method TEXT PRIMARY KEY,              -- Stripe's id of the card
  next_us        BIGINT NOT NULL,               -- when to ask Stripe next
  failing_us     BIGINT
);

-- Customers that are to be deleted at Stripe, because their accounts have closed. Written by package topups.
CREATE TABLE customer_removals (
  customer   TEXT PRIMARY KEY,                  -- cus_…
  next_us    BIGINT NOT NULL,                   -- when it is tried
  failing_us BIGINT
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX customer_removals_due ON customer_removals (next_us);

-- By what accounts have paid, so that free credit is given once for each card (decision 129). Kept when an account
-- is closed. Written by package topups.
CREATE TABLE paying_cards (
  card       TEXT NOT NULL,                     -- HMAC-SHA-256 of what Stripe calls the card's fingerprint
  account_id TEXT NOT NULL REFERENCES accounts (id),
  is_first   BIGINT NOT NULL CHECK (is_first IN (0, 1)), -- it has paid by the card before others
  since_us   BIGINT NOT NULL,
  PRIMARY KEY (card, account_id)
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX paying_cards_first ON paying_cards (card) WHERE is_first = 1;
CREATE INDEX paying_cards_account ON paying_cards (account_id);

-- The accounts at Stripe that developers are paid to. Written by package payouts.
CREATE TABLE payees (
  account_id TEXT PRIMARY KEY,
  stripe_id  TEXT NOT NULL UNIQUE,              -- acct_…
  enabled    BIGINT NOT NULL DEFAULT 0 CHECK (enabled IN (0, 1)), -- 1 = Stripe lets it be paid
  -- 1 = the developer has answered Stripe's questions
  submitted  BIGINT NOT NULL DEFAULT 0 CHECK (submitted IN (0, 1)),
  checked_us BIGINT NOT NULL DEFAULT 0,         -- when Stripe was last asked
  created_us BIGINT NOT NULL,
  -- Stripe no longer has the account, since then; the developer is asked to set up another one.
  gone_us    BIGINT
);

-- What happens to the margins of apps besides calls and their refunds: payouts to developers, and disputed payments
-- of users (decision 110). Appended, and never changed. Written by package ledger.
CREATE TABLE margin_records (
  app_id       TEXT NOT NULL,
  n            BIGINT NOT NULL CHECK (n > 0),   -- 1, 2, … per app
  kind         TEXT NOT NULL CHECK (kind IN ('begun', 'paid', 'failed', 'found', 'disputed')),
  subject      TEXT NOT NULL,                   -- the payout, po_…; disputed: the account
  developer_id TEXT NOT NULL,
  amount_mc    BIGINT NOT NULL,                 -- taken from the margin; below zero: given back
  taken_mc     BIGINT NOT NULL,                 -- Σ amount_mc of the app so far
  matured_day  TEXT,                            -- begun: matured_mc is the margin of the days before this one
  matured_mc   BIGINT,
  -- begun: margin that came back since that day, and what refunds had used
  returned_mc  BIGINT,
  detail       TEXT,                            -- paid, found: Stripe's id of the transfer; failed: why
  created_us   BIGINT NOT NULL,
  -- begun: what the developer's other apps, or its own balance, were below zero by, which the payout leaves to the
  -- app.
  kept_mc      BIGINT NOT NULL DEFAULT 0 CHECK (kept_mc >= 0),
  PRIMARY KEY (app_id, n),
  CHECK (CASE kind WHEN 'begun' THEN amount_mc > 0 WHEN 'found' THEN amount_mc > 0
    WHEN 'paid' THEN amount_mc = 0 WHEN 'failed' THEN amount_mc < 0 ELSE amount_mc <> 0 END),
  CHECK ((kind = 'begun') = (matured_day IS NOT NULL)),
  CHECK ((kind = 'begun') = (matured_mc IS NOT NULL)),
  CHECK ((kind = 'begun') = (returned_mc IS NOT NULL)),
  CHECK ((kind IN ('paid', 'failed', 'found')) = (detail IS NOT NULL))
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX margin_records_subject ON margin_records (app_id, subject);
-- The subject of records of disputes is the account from now on; of older ones it is the payment.
CREATE INDEX margin_records_disputed ON margin_records (subject) WHERE kind = 'disputed';
CREATE INDEX margin_records_developer ON margin_records (developer_id, subject) WHERE kind IN ('begun', 'found');
-- A payout that has failed may be found, and fail again.
CREATE UNIQUE INDEX margin_records_once ON margin_records (subject, kind) WHERE kind IN ('begun', 'paid');
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER margin_records_no_update BEFORE UPDATE ON margin_records
-- sqlite: BEGIN SELECT RAISE(ABORT, 'margin records are append-only'); END;
-- postgres: CREATE FUNCTION margin_records_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
-- postgres: BEGIN RAISE EXCEPTION 'margin records are append-only'; END $$;
-- +goose StatementEnd
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER margin_records_no_delete BEFORE DELETE ON margin_records
-- sqlite: BEGIN SELECT RAISE(ABORT, 'margin records are append-only'); END;
-- postgres: CREATE TRIGGER margin_records_no_change BEFORE DELETE OR UPDATE OR TRUNCATE ON margin_records
-- postgres: FOR EACH STATEMENT EXECUTE FUNCTION margin_records_are_append_only();
-- +goose StatementEnd

-- What the operator has lost by the disputed payments of an account, or would lose if all open disputes were lost,
-- and from what it was computed, so that the audit computes each app's share again (decision 110). A row changes
-- together with the records of margins that follow from it. Written by package ledger.
CREATE TABLE losses (
  account_id     TEXT PRIMARY KEY,
  seq            BIGINT NOT NULL,               -- of the account's newest ledger row
  disputed_cents BIGINT NOT NULL CHECK (disputed_cents >= 0), -- in disputes that were open or lost
  changed_us     BIGINT NOT NULL,               -- when the newest change of a dispute was stored
  loss_mc        BIGINT NOT NULL CHECK (loss_mc >= 0)
)
-- sqlite: WITHOUT ROWID
;

-- Comparisons of the books with Stripe's lists (decision 127): one a day, and those that were asked for. One is
-- open at a time. Written by package topups.
CREATE TABLE reconciliations (
  id         TEXT PRIMARY KEY,                  -- rcn_…
  cause      TEXT NOT NULL CHECK (cause IN ('daily', 'asked', 'unknown', 'restored')),
  open       BIGINT UNIQUE CHECK (open = 1),    -- NULL = it has ended
  waits      BIGINT NOT NULL CHECK (waits IN (0, 1)), -- 1 = while it is open no money leaves
  since_us   BIGINT NOT NULL,                   -- Stripe's objects that are as young as this are listed
  stage      TEXT NOT NULL,                     -- what is being compared
  after_id   TEXT NOT NULL,                     -- the last object that was compared; '' = none of the stage
  compared   BIGINT NOT NULL DEFAULT 0,         -- objects of ours
  booked     BIGINT NOT NULL DEFAULT 0,         -- differences
  unbooked   BIGINT NOT NULL DEFAULT 0,         -- objects that cannot be booked, each with an alarm
  error      TEXT NOT NULL DEFAULT '',          -- why it waits
  claimed_us BIGINT NOT NULL,                   -- until then the node that claimed it goes on with it
  created_us BIGINT NOT NULL,
  ended_us   BIGINT
);
CREATE INDEX reconciliations_created ON reconciliations (created_us);
