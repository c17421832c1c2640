-- +goose Up

-- By what accounts have paid, so that free credit is given once for each card (decision 129). Kept when an account is
-- closed. Written by package topups.
CREATE TABLE paying_cards (
  card       TEXT NOT NULL,                             -- HMAC-SHA-256 of what Stripe calls the card's fingerprint
  account_id TEXT NOT NULL REFERENCES accounts (id),
  is_first   BIGINT NOT NULL CHECK (is_first IN (0, 1)), -- it has paid by the card before others
  since_us   BIGINT NOT NULL,
  PRIMARY KEY (card, account_id)
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX paying_cards_first ON paying_cards (card) WHERE is_first = 1;
CREATE INDEX paying_cards_account ON paying_cards (account_id);
