-- +goose Up
-- What an account with the operator's flag may do: an operator acts, a viewer sees
-- everything and changes nothing. Written by package accounts.
ALTER TABLE accounts ADD COLUMN operator_role TEXT NOT NULL DEFAULT 'operator' CHECK (operator_role IN ('operator', 'viewer'));

-- What each app's users paid on each day with real money, added up from rollups once
-- a minute, so that no page of the operator reads millions of rows. The rest of this
-- file is written by package admin.
CREATE TABLE operator_days (
  app_id           TEXT NOT NULL,
  day              TEXT NOT NULL,
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

-- Users' balances, added up with them. Whoever moves next_us has the turn.
CREATE TABLE operator_totals (
  one          BIGINT PRIMARY KEY CHECK (one = 1),
  next_us      BIGINT NOT NULL,
  available_mc BIGINT NOT NULL,
  reserved_mc  BIGINT NOT NULL,
  accounts     BIGINT NOT NULL,
  counted_us   BIGINT NOT NULL                     -- when; 0 = never yet
);
INSERT INTO operator_totals (one, next_us, available_mc, reserved_mc, accounts, counted_us) VALUES (1, 0, 0, 0, 0, 0);

-- Audits of the books that an operator asked for. A node takes one that waits, and
-- says every few seconds how far it is.
CREATE TABLE verifications (
  id          TEXT PRIMARY KEY,
  state       TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'clean', 'findings', 'failed')),
  asked_by    TEXT NOT NULL,                       -- account
  asked_us    BIGINT NOT NULL,
  touched_us  BIGINT NOT NULL,                     -- when the node was last heard of
  finished_us BIGINT,
  progress    TEXT NOT NULL,
  checks      BIGINT NOT NULL,
  checked     BIGINT NOT NULL,                     -- rows looked at, over all checks
  findings    BIGINT NOT NULL,
  report      TEXT NOT NULL,                       -- what `purser ledger verify` prints
  CHECK ((state IN ('waiting', 'running')) = (finished_us IS NULL))
);
CREATE INDEX verifications_open ON verifications (id) WHERE state = 'waiting' OR state = 'running';

-- Rare rows, and columns that no settlement changes: the hot path does not notice.
CREATE INDEX rollups_day ON rollups (day);
CREATE INDEX connections_frozen ON connections (id) WHERE status = 'frozen';
CREATE INDEX events_risk ON events (id) WHERE type = 'connection.frozen' OR type = 'connection.risk_warning' OR type = 'app.spend_limit_reached';
CREATE INDEX mails_account ON mails (account_id, id);
CREATE INDEX mails_failed ON mails (id) WHERE status = 'failed';
CREATE INDEX operator_log_actor ON operator_log (actor, id);
CREATE INDEX operator_log_action ON operator_log (action, id);

-- +goose Down
DROP INDEX operator_log_action; DROP INDEX operator_log_actor; DROP INDEX mails_failed; DROP INDEX mails_account; DROP INDEX events_risk; DROP INDEX connections_frozen; DROP INDEX rollups_day;
DROP TABLE verifications; DROP TABLE operator_totals; DROP TABLE operator_days;
ALTER TABLE accounts DROP COLUMN operator_role;
