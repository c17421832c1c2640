-- +goose Up

-- Attempts that a provider may have accepted and that nobody is billed for, with what they have cost the operator at
-- least (decision 133). Counters count them for 24 hours; rows are deleted after a month. Written by package ledger.
CREATE TABLE unbilled_attempts (
  request_id       TEXT NOT NULL,
  attempt          BIGINT NOT NULL CHECK (attempt > 0),
  connection_id    TEXT NOT NULL,
  app_id           TEXT NOT NULL,
  account_id       TEXT NOT NULL,
  model            TEXT NOT NULL,
  provider_cost_mc BIGINT NOT NULL CHECK (provider_cost_mc > 0),
  created_us       BIGINT NOT NULL,
  PRIMARY KEY (request_id, attempt)
);
CREATE INDEX unbilled_attempts_created ON unbilled_attempts (created_us);
