-- +goose Up

-- What operators do and see, and facts about the installation.

-- Facts about this installation that are not configuration. Written by package settings.
CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- The audit log: what operators did, in the transaction of the action. Rows are never changed or deleted.
-- Written by package operator.
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
-- sqlite: CREATE TRIGGER operator_log_no_update BEFORE UPDATE ON operator_log BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- sqlite: CREATE TRIGGER operator_log_no_delete BEFORE DELETE ON operator_log BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- postgres: CREATE FUNCTION operator_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the operator log is append-only'; END $$;
-- postgres: CREATE TRIGGER operator_log_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON operator_log FOR EACH STATEMENT EXECUTE FUNCTION operator_log_is_append_only();
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

-- Real money that the users of each app paid per day, summed from rollups once a minute, so that pages need not
-- read millions of rows.
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
