-- +goose Up

-- One attempt of an account waits for its charge. One whose charge Stripe has may wait beside it, for its clearance: the
-- charge may have appeared late, or after a restore.
DROP INDEX checkouts_auto_open;
CREATE UNIQUE INDEX checkouts_auto_open ON checkouts (account_id)
  WHERE n IS NOT NULL AND next_us IS NOT NULL AND intent_id IS NULL;
