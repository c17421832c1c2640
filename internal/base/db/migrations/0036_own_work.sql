-- +goose Up

-- Whether an app may charge for work of its own, at its own prices (decision 109).
ALTER TABLE apps ADD COLUMN own_work BIGINT NOT NULL DEFAULT 0 CHECK (own_work IN (0, 1));

-- Users whom the consent screen told so, and who allowed it. Package oauth alone writes it.
CREATE TABLE work_consents (
  app_id     TEXT NOT NULL,
  account_id TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  PRIMARY KEY (app_id, account_id)
);
