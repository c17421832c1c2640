-- +goose Up
-- What a person said about topping up automatically, and the card that pays for it.
-- Written by package topups, as all below.
CREATE TABLE auto_topups (
  account_id     TEXT PRIMARY KEY REFERENCES accounts(id),
  customer       TEXT,                                -- Stripe's name of the account
  payment_method TEXT,                                -- Stripe's name of the card; null = none is saved
  brand          TEXT NOT NULL DEFAULT '',            -- of the card, as the next two: all that we know of it
  last4          TEXT NOT NULL DEFAULT '',
  expires        TEXT NOT NULL DEFAULT '',            -- 04/2030
  enabled        BIGINT NOT NULL DEFAULT 0 CHECK (enabled IN (0, 1)),
  agreed_us      BIGINT,                              -- when the person switched it on last
  off_reason     TEXT NOT NULL DEFAULT '',            -- why we switched it off
  below_cents    BIGINT NOT NULL DEFAULT 0,
  add_cents      BIGINT NOT NULL DEFAULT 0,
  most_cents     BIGINT NOT NULL DEFAULT 0,           -- in a calendar month, UTC
  failures       BIGINT NOT NULL DEFAULT 0,           -- attempts that failed, without a payment in between
  next_us        BIGINT NOT NULL DEFAULT 0,           -- no attempt before
  CHECK (enabled = 0 OR payment_method IS NOT NULL AND below_cents > 0 AND add_cents >= below_cents AND most_cents >= add_cents)
);
CREATE INDEX auto_topups_on ON auto_topups (next_us) WHERE enabled = 1;

-- An automatic top-up is a checkout without a page. Its row is written with its share
-- of the month before Stripe is asked.
ALTER TABLE checkouts ADD COLUMN save_card BIGINT NOT NULL DEFAULT 0 CHECK (save_card IN (0, 1)); -- the user agreed to it
ALTER TABLE checkouts ADD COLUMN customer TEXT;
ALTER TABLE checkouts ADD COLUMN n BIGINT CHECK (n > 0);          -- of the account's automatic ones; null = by hand
ALTER TABLE checkouts ADD COLUMN month_us BIGINT;                 -- when the month began that it counts for
ALTER TABLE checkouts ADD COLUMN most_cents BIGINT;               -- the month's maximum when it was made
ALTER TABLE checkouts ADD COLUMN payment_method TEXT;
ALTER TABLE checkouts ADD COLUMN intent_id TEXT;                  -- Stripe's; null = it has not answered yet
CREATE UNIQUE INDEX checkouts_auto ON checkouts (account_id, n) WHERE n IS NOT NULL;
CREATE UNIQUE INDEX checkouts_auto_open ON checkouts (account_id) WHERE n IS NOT NULL AND next_us IS NOT NULL; -- one at a time
CREATE UNIQUE INDEX checkouts_intent ON checkouts (intent_id) WHERE intent_id IS NOT NULL;

-- Cards that Stripe is still to forget.
CREATE TABLE card_removals (
  payment_method TEXT PRIMARY KEY,
  next_us        BIGINT NOT NULL
);

-- +goose Down
DROP TABLE card_removals;
DROP INDEX checkouts_intent; DROP INDEX checkouts_auto_open; DROP INDEX checkouts_auto;
ALTER TABLE checkouts DROP COLUMN intent_id; ALTER TABLE checkouts DROP COLUMN payment_method; ALTER TABLE checkouts DROP COLUMN most_cents;
ALTER TABLE checkouts DROP COLUMN month_us; ALTER TABLE checkouts DROP COLUMN n; ALTER TABLE checkouts DROP COLUMN customer; ALTER TABLE checkouts DROP COLUMN save_card;
DROP TABLE auto_topups;
