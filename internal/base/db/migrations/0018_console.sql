-- +goose Up
-- The developer console asks by app: what its users spent day by day, the calls
-- of its request log, newest first, and what was refused.
CREATE INDEX rollups_app ON rollups (app_id, day);
CREATE INDEX ledger_app ON ledger (app_id, id) WHERE type = 'spend';
CREATE INDEX refusals_app ON refusals (app_id, request_id);

-- +goose Down
DROP INDEX refusals_app;
DROP INDEX ledger_app;
DROP INDEX rollups_app;
