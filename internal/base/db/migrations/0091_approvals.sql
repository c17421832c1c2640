-- +goose Up

-- When the user decided on the limits that a connection has, and when the user approved what it was last connected by:
-- an approval that is older than the limits leaves them, and a margin that rose after the approval is told to the user
-- (decision 141). 0 = an earlier version wrote the row.
ALTER TABLE connections ADD COLUMN limits_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN approved_us BIGINT NOT NULL DEFAULT 0;

-- What the user left as the consent screen of a live connection showed it stays as it is: 1 = the spend cap, the daily
-- limit.
ALTER TABLE oauth_codes ADD COLUMN keeps_cap BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_codes ADD COLUMN keeps_velocity BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_device_codes ADD COLUMN keeps_cap BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_device_codes ADD COLUMN keeps_velocity BIGINT NOT NULL DEFAULT 0;
