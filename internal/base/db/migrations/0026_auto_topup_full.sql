-- +goose Up
-- The month (when it began) of which the person was told that its maximum is full.
ALTER TABLE auto_topups ADD COLUMN told_month_us BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE auto_topups DROP COLUMN told_month_us;
