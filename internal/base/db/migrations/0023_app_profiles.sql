-- +goose Up

-- Who stands behind an app, for the consent screen (decision 090). '' = not given. Written by package apps.
ALTER TABLE apps ADD COLUMN developer_name TEXT NOT NULL DEFAULT '';
ALTER TABLE apps ADD COLUMN website_url TEXT NOT NULL DEFAULT '';
ALTER TABLE apps ADD COLUMN privacy_policy_url TEXT NOT NULL DEFAULT '';
ALTER TABLE apps ADD COLUMN support TEXT NOT NULL DEFAULT '';             -- an https URL or an email address
ALTER TABLE apps ADD COLUMN domain TEXT NOT NULL DEFAULT '';              -- that the developer claims
ALTER TABLE apps ADD COLUMN domain_verified_us BIGINT NOT NULL DEFAULT 0; -- 0 = not verified
