-- +goose Up

-- Changes of the margin rates of live apps, by which their users pay (decision 125). feature is '' for the app's own
-- rate, name is what users read of the feature. done = 1: all users of the app have been told. Written by package apps.
CREATE TABLE margin_changes (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  feature    TEXT NOT NULL,
  name       TEXT NOT NULL,
  before_ppm BIGINT NOT NULL,
  after_ppm  BIGINT NOT NULL,
  changed_us BIGINT NOT NULL,
  done       BIGINT NOT NULL DEFAULT 0 CHECK (done IN (0, 1))
);
CREATE INDEX margin_changes_app ON margin_changes (app_id, changed_us);
CREATE INDEX margin_changes_waiting ON margin_changes (changed_us) WHERE done = 0;

-- What a user of an app has been told of them: the changes up to seen_us, the last email at mailed_us. Written by
-- package notices.
CREATE TABLE margin_notices (
  app_id     TEXT NOT NULL REFERENCES apps(id),
  account_id TEXT NOT NULL REFERENCES accounts(id),
  seen_us    BIGINT NOT NULL,
  mailed_us  BIGINT NOT NULL,
  PRIMARY KEY (app_id, account_id)
)
-- sqlite: WITHOUT ROWID
;
