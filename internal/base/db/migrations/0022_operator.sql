-- +goose Up

-- The users' balances of each day, so that the operator sees them over time. The job that sums operator_totals writes
-- the row of the day each time. Written by package operatorpages.
CREATE TABLE operator_balances (
  day          TEXT PRIMARY KEY,                -- UTC, as 2026-11-21
  available_mc BIGINT NOT NULL,
  reserved_mc  BIGINT NOT NULL,
  accounts     BIGINT NOT NULL                  -- number of accounts
);

-- Disputes for the operator's overview.
CREATE INDEX payment_records_disputed ON payment_records (created_us) WHERE kind = 'disputed';
