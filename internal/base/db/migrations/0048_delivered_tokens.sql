-- +goose Up

-- Output tokens that a stream has delivered whose frames are not saved because they are too many (decision 027); 0 of
-- others.
ALTER TABLE chunks ADD COLUMN delivered_tokens BIGINT NOT NULL DEFAULT 0;

-- Output tokens that a pending call has delivered, for an estimate (decision 031); 0 = deferred by an earlier version.
ALTER TABLE deferred ADD COLUMN delivered_tokens BIGINT NOT NULL DEFAULT 0;
