-- +goose Up

-- What happens to the margins of apps besides calls and their refunds: payouts to developers, and disputed payments of
-- users (decision 110). Appended, and never changed. Written by package ledger.
CREATE TABLE margin_records (
  app_id       TEXT NOT NULL,
  n            BIGINT NOT NULL CHECK (n > 0), -- 1, 2, … per app
  kind         TEXT NOT NULL CHECK (kind IN ('begun', 'paid', 'failed', 'disputed')),
  subject      TEXT NOT NULL,                 -- the payout, po_…; disputed: the payment, top_…
  developer_id TEXT NOT NULL,
  amount_mc    BIGINT NOT NULL,               -- taken from the margin; below zero: given back
  taken_mc     BIGINT NOT NULL,               -- Σ amount_mc of the app so far
  matured_day  TEXT,                          -- begun: matured_mc is the margin of the days before this one
  matured_mc   BIGINT,
  returned_mc  BIGINT,                        -- begun: margin that came back since that day, and what refunds had used
  detail       TEXT,                          -- paid: Stripe's id of the transfer; failed: why
  created_us   BIGINT NOT NULL,
  PRIMARY KEY (app_id, n),
  CHECK (CASE kind WHEN 'begun' THEN amount_mc > 0 WHEN 'paid' THEN amount_mc = 0 WHEN 'failed' THEN amount_mc < 0 ELSE amount_mc <> 0 END),
  CHECK ((kind = 'begun') = (matured_day IS NOT NULL)),
  CHECK ((kind = 'begun') = (matured_mc IS NOT NULL)),
  CHECK ((kind = 'begun') = (returned_mc IS NOT NULL)),
  CHECK ((kind IN ('paid', 'failed')) = (detail IS NOT NULL))
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX margin_records_once ON margin_records (subject, kind) WHERE kind <> 'disputed';
CREATE INDEX margin_records_subject ON margin_records (app_id, subject);
CREATE INDEX margin_records_developer ON margin_records (developer_id, subject) WHERE kind = 'begun';
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER margin_records_no_update BEFORE UPDATE ON margin_records BEGIN SELECT RAISE(ABORT, 'margin records are append-only'); END;
-- sqlite: CREATE TRIGGER margin_records_no_delete BEFORE DELETE ON margin_records BEGIN SELECT RAISE(ABORT, 'margin records are append-only'); END;
-- postgres: CREATE FUNCTION margin_records_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'margin records are append-only'; END $$;
-- postgres: CREATE TRIGGER margin_records_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON margin_records FOR EACH STATEMENT EXECUTE FUNCTION margin_records_are_append_only();
-- +goose StatementEnd

-- Reversed calls of an app, of which the margin has come back.
CREATE INDEX ledger_reversed ON ledger (app_id, created_us) WHERE type = 'spend' AND status = 'reversed';

-- Disputes of payments as Stripe last told them. Written by package topups.
CREATE TABLE disputes (
  id         TEXT PRIMARY KEY, -- Stripe's
  payment_id TEXT NOT NULL,
  cents      BIGINT NOT NULL CHECK (cents >= 0),
  contested  BIGINT NOT NULL CHECK (contested IN (0, 1)), -- 1 = open or lost
  changed_us BIGINT NOT NULL
);
CREATE INDEX disputes_changed ON disputes (changed_us);

-- Payments that were disputed before are asked for once more, so that their disputes are known.
UPDATE checkouts SET next_us = 0 WHERE n IS NULL AND id IN (SELECT payment_id FROM payment_records WHERE kind = 'disputed');

-- The accounts at Stripe that developers are paid to. Written by package payouts.
CREATE TABLE payees (
  account_id TEXT PRIMARY KEY,
  stripe_id  TEXT NOT NULL UNIQUE,            -- acct_…
  enabled    BIGINT NOT NULL DEFAULT 0 CHECK (enabled IN (0, 1)), -- 1 = Stripe lets it be paid
  submitted  BIGINT NOT NULL DEFAULT 0 CHECK (submitted IN (0, 1)), -- 1 = the developer has answered Stripe's questions
  checked_us BIGINT NOT NULL DEFAULT 0,       -- when Stripe was last asked
  created_us BIGINT NOT NULL
);
