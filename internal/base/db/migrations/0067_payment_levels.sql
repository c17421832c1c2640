-- +goose Up

-- A payment is told by what is gone from it now (decision 023): what comes back of it is a record of kind restored, and a
-- payment that had failed and whose money is there after all is reopened.
-- +goose StatementBegin
-- sqlite: CREATE TABLE payment_records_new (
-- sqlite:   payment_id     TEXT NOT NULL,                 -- top_…
-- sqlite:   n              BIGINT NOT NULL CHECK (n > 0), -- 1, 2, … per payment
-- sqlite:   kind           TEXT NOT NULL CHECK (kind IN ('opened', 'reopened', 'paid', 'settled', 'failed', 'reversed', 'restored', 'disputed')),
-- sqlite:   account_id     TEXT NOT NULL,
-- sqlite:   amount_mc      BIGINT NOT NULL CHECK (amount_mc > 0), -- of the payment; reversed, restored: the part that went or came back
-- sqlite:   entry_id       TEXT,                          -- the ledger row; NULL = the record moves no money
-- sqlite:   payment_intent TEXT,                          -- paid: Stripe's id
-- sqlite:   hold_until_us  BIGINT,                        -- paid: end of the clearance hold
-- sqlite:   reason         TEXT,                          -- failed, reversed, restored: why; disputed: Stripe's id of the dispute
-- sqlite:   created_us     BIGINT NOT NULL,
-- sqlite:   PRIMARY KEY (payment_id, n),
-- sqlite:   CHECK ((entry_id IS NULL) = (kind IN ('paid', 'disputed'))),
-- sqlite:   CHECK ((payment_intent IS NOT NULL) = (kind = 'paid')),
-- sqlite:   CHECK ((hold_until_us IS NOT NULL) = (kind = 'paid'))
-- sqlite: ) WITHOUT ROWID;
-- sqlite: INSERT INTO payment_records_new SELECT payment_id, n, kind, account_id, amount_mc, entry_id, payment_intent, hold_until_us, reason, created_us FROM payment_records;
-- sqlite: DROP TABLE payment_records;
-- sqlite: ALTER TABLE payment_records_new RENAME TO payment_records;
-- sqlite: CREATE UNIQUE INDEX payment_records_intent ON payment_records (payment_intent) WHERE payment_intent IS NOT NULL;
-- sqlite: CREATE UNIQUE INDEX payment_records_entry ON payment_records (entry_id) WHERE entry_id IS NOT NULL;
-- sqlite: CREATE INDEX payment_records_account ON payment_records (account_id, payment_id) WHERE kind = 'opened';
-- sqlite: CREATE INDEX payment_records_disputed ON payment_records (created_us) WHERE kind = 'disputed';
-- postgres: ALTER TABLE payment_records DROP CONSTRAINT payment_records_kind_check, ADD CONSTRAINT payment_records_kind_check
-- postgres:   CHECK (kind IN ('opened', 'reopened', 'paid', 'settled', 'failed', 'reversed', 'restored', 'disputed'));
-- postgres: DROP INDEX payment_records_once;
-- +goose StatementEnd
CREATE UNIQUE INDEX payment_records_once ON payment_records (payment_id, kind) WHERE kind IN ('opened', 'paid', 'settled');

-- Before Stripe is asked about a checkout, the question takes its next number; an answer is dropped when that to a later
-- question was applied.
ALTER TABLE checkouts ADD COLUMN asked_n BIGINT NOT NULL DEFAULT 0;
ALTER TABLE checkouts ADD COLUMN applied_n BIGINT NOT NULL DEFAULT 0;

-- The refunds of a payment.
CREATE INDEX refunds_payment ON refunds (payment_id);
