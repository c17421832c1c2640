-- +goose Up

-- Transcripts of what users say in voice sessions (decision 196).

-- Whether an app may have them. The consent screen says so.
ALTER TABLE apps ADD COLUMN transcripts BIGINT NOT NULL DEFAULT 0 CHECK (transcripts IN (0, 1));

-- 1 = the screen named transcripts.
ALTER TABLE oauth_codes ADD COLUMN transcripts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_device_codes ADD COLUMN transcripts BIGINT NOT NULL DEFAULT 0;

-- Users whom the consent screen told so, and who allowed it. Package oauth alone writes it.
CREATE TABLE transcript_consents (
  app_id        TEXT NOT NULL,
  account_id    TEXT NOT NULL,
  created_us    BIGINT NOT NULL,
  connection_id TEXT NOT NULL,                  -- which it holds for
  PRIMARY KEY (app_id, account_id)
);
