-- +goose Up

-- What operators set, do and see.

-- Facts about this installation that are not configuration. Written by package settings.
CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- What the operator has set for all calls: the fee, free credit, bounds of the sandbox, thresholds of risk. Each
-- version holds from a time on until the next one, on every node alike (decision 096). Package gateway/policies
-- alone writes it.
CREATE TABLE policies (
  id         TEXT PRIMARY KEY,                  -- pol_…
  from_us    BIGINT NOT NULL UNIQUE,            -- 0 = the first
  -- JSON: what changes, by the names that purser.yaml has for the settings
  settings   TEXT NOT NULL,
  -- an account, the address that sent the operator's token, or "settings"
  actor      TEXT NOT NULL,
  reason     TEXT NOT NULL,
  created_us BIGINT NOT NULL
);

-- The price lists that nodes used, so that an operator can compare two versions. A node writes the row of its list
-- when it first uses it. Written by package operatorpages.
CREATE TABLE price_lists (
  version  TEXT PRIMARY KEY,                    -- as in the price terms of ledger rows
  first_us BIGINT NOT NULL,                     -- when a node first used it
  models   BIGINT NOT NULL,                     -- number of models
  lines    TEXT NOT NULL                        -- JSON array: the prices of each model, period and step
);
CREATE INDEX price_lists_first ON price_lists (first_us);

-- The audit log: what operators did, in the transaction of the action. Rows are never changed or deleted. Written
-- by package operator.
CREATE TABLE operator_log (
  id         TEXT PRIMARY KEY,
  actor      TEXT NOT NULL,                     -- account, or the IP address that used the operator's token
  action     TEXT NOT NULL,
  subject    TEXT NOT NULL,                     -- id of the app, request, ledger row or connection
  reason     TEXT NOT NULL,
  before     TEXT NOT NULL,                     -- JSON object
  after      TEXT NOT NULL,                     -- JSON object
  created_us BIGINT NOT NULL
);
CREATE INDEX operator_log_subject ON operator_log (subject, id);
CREATE INDEX operator_log_actor ON operator_log (actor, id);
CREATE INDEX operator_log_action ON operator_log (action, id);
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER operator_log_no_update BEFORE UPDATE ON operator_log
-- sqlite: BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- postgres: CREATE FUNCTION operator_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
-- postgres: BEGIN RAISE EXCEPTION 'the operator log is append-only'; END $$;
-- +goose StatementEnd
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER operator_log_no_delete BEFORE DELETE ON operator_log
-- sqlite: BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- postgres: CREATE TRIGGER operator_log_no_change BEFORE DELETE OR UPDATE OR TRUNCATE ON operator_log
-- postgres: FOR EACH STATEMENT EXECUTE FUNCTION operator_log_is_append_only();
-- +goose StatementEnd

-- Verifications of the ledger that an operator started. A node takes a waiting one and reports its progress every
-- few seconds. Written by package operatorpages, as all tables below.
CREATE TABLE verifications (
  id          TEXT PRIMARY KEY,
  state       TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'clean', 'findings', 'failed')),
  asked_by    TEXT NOT NULL,                    -- account of the operator
  asked_us    BIGINT NOT NULL,
  touched_us  BIGINT NOT NULL,                  -- last report of the node
  finished_us BIGINT,
  progress    TEXT NOT NULL,
  checks      BIGINT NOT NULL,                  -- number of checks done
  checked     BIGINT NOT NULL,                  -- rows read, in all checks
  findings    BIGINT NOT NULL,
  report      TEXT NOT NULL,                    -- what `purser ledger verify` prints
  CHECK ((state IN ('waiting', 'running')) = (finished_us IS NULL))
);
CREATE INDEX verifications_open ON verifications (id) WHERE state = 'waiting' OR state = 'running';

-- Real money that the users of each app paid per day, summed from daily_totals once a minute, so that pages need
-- not read millions of rows.
CREATE TABLE operator_days (
  app_id           TEXT NOT NULL,
  day              TEXT NOT NULL,               -- UTC, as 2026-11-21
  calls            BIGINT NOT NULL,
  provider_cost_mc BIGINT NOT NULL,
  svc_fee_mc       BIGINT NOT NULL,
  dev_margin_mc    BIGINT NOT NULL,
  user_charge_mc   BIGINT NOT NULL,
  PRIMARY KEY (app_id, day)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX operator_days_day ON operator_days (day);

-- The users' balances of each day, so that the operator sees them over time. The job that sums operator_totals
-- writes the row of the day each time. Written by package operatorpages.
CREATE TABLE operator_balances (
  day          TEXT PRIMARY KEY,                -- UTC, as 2026-11-21
  available_mc BIGINT NOT NULL,
  reserved_mc  BIGINT NOT NULL,
  accounts     BIGINT NOT NULL                  -- number of accounts
);

-- The sum of users' balances, in one row, computed by the same job. The node that moves next_us runs it.
CREATE TABLE operator_totals (
  one          BIGINT PRIMARY KEY CHECK (one = 1),
  next_us      BIGINT NOT NULL,                 -- when the next run is due
  available_mc BIGINT NOT NULL,
  reserved_mc  BIGINT NOT NULL,
  accounts     BIGINT NOT NULL,                 -- number of accounts
  counted_us   BIGINT NOT NULL                  -- when it was last computed; 0 = never
);
INSERT INTO operator_totals (one, next_us, available_mc, reserved_mc, accounts, counted_us) VALUES (1, 0, 0, 0, 0, 0);
