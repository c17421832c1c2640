-- +goose Up

-- 1 = refused by its terms here, such as a payment of which less is left: Stripe and the card were not asked, and may
-- take another one.
ALTER TABLE refunds ADD COLUMN is_unwanted BIGINT NOT NULL DEFAULT 0 CHECK (is_unwanted IN (0, 1));
