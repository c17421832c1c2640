-- +goose Up

-- What the provider's cache did for the calls of a day. Days before this migration have 0.
ALTER TABLE rollups ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;  -- of input_tokens: read from the provider's cache
ALTER TABLE rollups ADD COLUMN cache_saved_mc BIGINT NOT NULL DEFAULT 0; -- of the charges; negative = writing cost more

-- rollup_row with the new columns. rollup_row stays for older nodes that still run.
-- postgres: CREATE TYPE rollup_cache_row AS (
-- postgres:   connection_id TEXT, day TEXT, feature TEXT, model TEXT, app_id TEXT, account_id TEXT, calls BIGINT,
-- postgres:   input_tokens BIGINT, cached_tokens BIGINT, output_tokens BIGINT, provider_cost_mc BIGINT, svc_fee_mc BIGINT,
-- postgres:   dev_margin_mc BIGINT, user_charge_mc BIGINT, cache_saved_mc BIGINT);
