-- +goose Up

-- Sums of the daily totals (rollups) by app, for days that are over: what an app's calls brought in a year is read
-- without those of its connections. Written by package ledger.
CREATE TABLE app_days (
  app_id           TEXT NOT NULL,
  sandbox          BIGINT NOT NULL CHECK (sandbox IN (0, 1)), -- 1 = of test accounts
  day              TEXT NOT NULL,               -- UTC, as 2026-11-21
  feature          TEXT NOT NULL,               -- as in rollups
  model            TEXT NOT NULL,
  calls            BIGINT NOT NULL,
  input_tokens     BIGINT NOT NULL,
  cached_tokens    BIGINT NOT NULL,             -- of input_tokens
  output_tokens    BIGINT NOT NULL,
  provider_cost_mc BIGINT NOT NULL,
  svc_fee_mc       BIGINT NOT NULL,
  dev_margin_mc    BIGINT NOT NULL,
  user_charge_mc   BIGINT NOT NULL,
  cache_saved_mc   BIGINT NOT NULL,
  PRIMARY KEY (app_id, sandbox, day, feature, model)
)
-- sqlite: WITHOUT ROWID
;

-- Days before this one are in app_days, and those from it on are not; '' = none are.
CREATE TABLE app_days_head (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  day TEXT NOT NULL
);
INSERT INTO app_days_head (one, day) VALUES (1, '');
