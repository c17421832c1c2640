-- +goose Up

-- Stripe may carry one request out twice: a node that paused for more than a day asks with a key that Stripe has
-- forgotten. The second payment is a top-up of its own, and this is the one that it names. NULL = it names itself.
ALTER TABLE checkouts ADD COLUMN named_id TEXT;

-- Since when Stripe does not answer about it; NULL = it did when it was asked last.
ALTER TABLE checkouts ADD COLUMN failing_us BIGINT;
CREATE INDEX checkouts_failing ON checkouts (failing_us) WHERE failing_us IS NOT NULL;
ALTER TABLE card_removals ADD COLUMN failing_us BIGINT;
ALTER TABLE customer_removals ADD COLUMN failing_us BIGINT;

-- Why Stripe has not sent a refund, in Stripe's word.
ALTER TABLE stripe_refunds ADD COLUMN pending_reason TEXT NOT NULL DEFAULT '';
CREATE INDEX stripe_refunds_own ON stripe_refunds (changed_us) WHERE pending_reason = 'insufficient_funds';

-- When the saved card was charged that the user wanted to be saved, or when the user removed the card: what is older
-- does not replace it. 0 = written by an earlier version.
ALTER TABLE auto_topups ADD COLUMN card_us BIGINT NOT NULL DEFAULT 0;
