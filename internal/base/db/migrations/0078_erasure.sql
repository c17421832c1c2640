-- +goose Up

-- Customers that are to be deleted at Stripe, because their accounts have closed. Written by package topups.
CREATE TABLE customer_removals (
  customer TEXT PRIMARY KEY,    -- cus_…
  next_us  BIGINT NOT NULL      -- when it is tried
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX customer_removals_due ON customer_removals (next_us);
CREATE INDEX checkouts_customer ON checkouts (customer) WHERE next_us IS NOT NULL; -- a customer stays until they end
INSERT INTO customer_removals (customer, next_us)
  SELECT DISTINCT c.customer, 0 FROM checkouts c JOIN accounts a ON a.id = c.account_id
  WHERE a.closed_us IS NOT NULL AND c.customer IS NOT NULL;

-- The text of an email that names another person is deleted once it is sent: that person may close the account.
ALTER TABLE mails ADD COLUMN names_others BIGINT NOT NULL DEFAULT 0;
