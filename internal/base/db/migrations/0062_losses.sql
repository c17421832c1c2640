-- +goose Up

-- What the operator has lost by the disputed payments of an account, or would lose if all open disputes were lost, and
-- from what it was computed, so that the audit computes each app's share again (decision 110). A row changes together
-- with the records of margins that follow from it. Written by package ledger.
CREATE TABLE losses (
  account_id     TEXT PRIMARY KEY,
  seq            BIGINT NOT NULL,                             -- of the account's newest ledger row
  disputed_cents BIGINT NOT NULL CHECK (disputed_cents >= 0), -- in disputes that were open or lost
  changed_us     BIGINT NOT NULL,                             -- when the newest change of a dispute was stored
  loss_mc        BIGINT NOT NULL CHECK (loss_mc >= 0)
)
-- sqlite: WITHOUT ROWID
;

-- The subject of records of disputes is the account from now on; of older ones it is the payment.
CREATE INDEX margin_records_disputed ON margin_records (subject) WHERE kind = 'disputed';
CREATE INDEX disputes_payment ON disputes (payment_id);
-- begun: what the developer's other apps, or its own balance, were below zero by, which the payout leaves to the app.
ALTER TABLE margin_records ADD COLUMN kept_mc BIGINT NOT NULL DEFAULT 0 CHECK (kept_mc >= 0);
