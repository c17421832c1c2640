-- +goose Up

-- How the response of a call was delivered. The hashes of the ledger do not cover these columns, and no amount depends
-- on them. NULL = not known: a row of an earlier version, a refund, or a call that another node ended.
ALTER TABLE ledger ADD COLUMN first_byte_ms BIGINT; -- from the hold to the first part of a streamed response, rounded up
ALTER TABLE ledger ADD COLUMN duration_ms BIGINT;   -- from the hold to the end of the response, rounded up
ALTER TABLE ledger ADD COLUMN finish_reason TEXT;   -- as the response gave it: stop, length, tool_calls …

-- The same of a call whose charge follows later.
ALTER TABLE deferred ADD COLUMN first_byte_ms BIGINT;
ALTER TABLE deferred ADD COLUMN duration_ms BIGINT;
ALTER TABLE deferred ADD COLUMN finish_reason TEXT;

-- From the arrival of a refused call to its refusal, in milliseconds, rounded up; NULL = a row of an earlier version.
ALTER TABLE refusals ADD COLUMN duration_ms BIGINT;

-- ledger_row with the new columns. ledger_row stays for older nodes that still run.
-- postgres: CREATE TYPE ledger_call_row AS (
-- postgres:   id TEXT, account_id TEXT, seq BIGINT, type TEXT, status TEXT, reversal_of TEXT, reason TEXT,
-- postgres:   connection_id TEXT, app_id TEXT, feature TEXT, bucket TEXT, model TEXT, key TEXT, fingerprint TEXT,
-- postgres:   paid_by TEXT, settlement TEXT, terms TEXT, usage TEXT, hold_amount_mc BIGINT, provider_cost_mc BIGINT,
-- postgres:   svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT, remaining_mc BIGINT, amount_mc BIGINT,
-- postgres:   available_delta_mc BIGINT, reserved_delta_mc BIGINT, allocation_delta_mc BIGINT, consumed_delta_mc BIGINT,
-- postgres:   created_us BIGINT, hash TEXT, key_hash BIGINT, first_byte_ms BIGINT, duration_ms BIGINT,
-- postgres:   finish_reason TEXT);
