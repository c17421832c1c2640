-- +goose Up

-- Whether Purser marks long prefixes of the app's calls for the provider's cache (decision 071). Written by package apps.
ALTER TABLE apps ADD COLUMN prompt_cache BIGINT NOT NULL DEFAULT 1 CHECK (prompt_cache IN (0, 1));
