-- +goose Up
-- Why an app is switched off (spec §3, App tier). The developer's own switch is
-- apps.suspended; a suspension by the service is apart from it, so that neither
-- undoes the other. Written by package apps.
ALTER TABLE apps ADD COLUMN suspended_us      BIGINT;  -- when its developer last switched it off or on
ALTER TABLE apps ADD COLUMN suspension_by     TEXT CHECK (suspension_by IN ('operator', 'risk'));
ALTER TABLE apps ADD COLUMN suspension_reason TEXT;
ALTER TABLE apps ADD COLUMN suspension_us     BIGINT;
ALTER TABLE apps ADD COLUMN lifted_us         BIGINT;  -- when the operator last lifted one: what came before is forgiven
CREATE INDEX apps_suspended ON apps (id) WHERE suspended = 1 OR suspension_by IS NOT NULL;

-- Requests to go live, at most one of an app pending (spec §3). Written by package golive.
CREATE TABLE golive_requests (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  from_tier  TEXT NOT NULL,
  to_tier    TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'refused')),
  reason     TEXT,               -- of a refusal
  created_us BIGINT NOT NULL,
  decided_us BIGINT,
  CHECK ((status = 'pending') = (decided_us IS NULL)),
  CHECK ((status = 'refused') = (reason IS NOT NULL))
);
CREATE UNIQUE INDEX golive_pending ON golive_requests (app_id) WHERE status = 'pending';
CREATE INDEX golive_app ON golive_requests (app_id, id);
CREATE INDEX golive_queue ON golive_requests (id) WHERE status = 'pending';

-- What the operator did. Written by package operator; no row is ever changed or deleted.
CREATE TABLE operator_log (
  id         TEXT PRIMARY KEY,
  actor      TEXT NOT NULL,      -- who held the operator's token: the address it was sent from
  action     TEXT NOT NULL,
  subject    TEXT NOT NULL,      -- id of the app, request, row or connection
  reason     TEXT NOT NULL,
  before     TEXT NOT NULL,      -- JSON objects
  after      TEXT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX operator_log_subject ON operator_log (subject, id);
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER operator_log_no_update BEFORE UPDATE ON operator_log BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- sqlite: CREATE TRIGGER operator_log_no_delete BEFORE DELETE ON operator_log BEGIN SELECT RAISE(ABORT, 'the operator log is append-only'); END;
-- postgres: CREATE FUNCTION operator_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the operator log is append-only'; END $$;
-- postgres: CREATE TRIGGER operator_log_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON operator_log FOR EACH STATEMENT EXECUTE FUNCTION operator_log_is_append_only();
-- +goose StatementEnd

-- Live apps are watched (spec §3): what each spent in ten minutes, for a week, and
-- how far that is counted. Written by package watch.
CREATE TABLE app_spend (
  app_id         TEXT NOT NULL,
  bucket         BIGINT NOT NULL,  -- ten minutes since 1970
  user_charge_mc BIGINT NOT NULL,
  PRIMARY KEY (app_id, bucket)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX app_spend_bucket ON app_spend (bucket);
CREATE TABLE watch_turns (
  name    TEXT PRIMARY KEY,
  next_us BIGINT NOT NULL,         -- when the next turn is due; whoever moves it has the turn
  bucket  BIGINT NOT NULL          -- the first one that is not counted yet
);
INSERT INTO watch_turns (name, next_us, bucket) VALUES ('apps', 0, 0);

-- Rare rows, so the hot path does not notice these two.
CREATE INDEX connections_revoked ON connections (revoked_us, app_id) WHERE revoked_us IS NOT NULL;
CREATE INDEX ledger_chargebacks ON ledger (app_id, created_us) WHERE reason = 'chargeback';

-- +goose Down
DROP INDEX ledger_chargebacks; DROP INDEX connections_revoked;
DROP TABLE watch_turns; DROP TABLE app_spend; DROP TABLE operator_log; DROP TABLE golive_requests;
-- postgres: DROP FUNCTION operator_log_is_append_only;
DROP INDEX apps_suspended;
ALTER TABLE apps DROP COLUMN lifted_us; ALTER TABLE apps DROP COLUMN suspension_us; ALTER TABLE apps DROP COLUMN suspension_reason; ALTER TABLE apps DROP COLUMN suspension_by; ALTER TABLE apps DROP COLUMN suspended_us;
