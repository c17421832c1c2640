-- +goose Up

-- Refunds that users ask for (decision 108). Their amount leaves the balance in the transaction that writes the row,
-- before Stripe is asked; a refund that Stripe refuses gives it back.
ALTER TABLE refunds ADD COLUMN by_user BIGINT NOT NULL DEFAULT 0 CHECK (by_user IN (0, 1));
ALTER TABLE refunds ADD COLUMN token TEXT; -- by_user: of the form, so that one that is sent again asks for no second refund
CREATE INDEX refunds_token ON refunds (account_id, token) WHERE token IS NOT NULL;
