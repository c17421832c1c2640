-- +goose Up

-- How often an app's consent screen was shown, and what users decided: one row per app and UTC day, kept as the daily
-- totals are. Written by package oauth, never on the path of a call.
CREATE TABLE consent_counts (
  app_id   TEXT NOT NULL,
  day      TEXT NOT NULL,                       -- UTC, as 2026-11-21
  shown    BIGINT NOT NULL,
  approved BIGINT NOT NULL,
  denied   BIGINT NOT NULL,
  PRIMARY KEY (app_id, day)
)
-- sqlite: WITHOUT ROWID
;
