-- +goose Up
-- The logos of apps, as we drew them. A page names one by its hash, so that browsers
-- may keep it. Written by package apps.
CREATE TABLE app_logos (
  app_id     TEXT PRIMARY KEY REFERENCES apps(id),
  hash       TEXT NOT NULL,     -- SHA-256 of png, its first 32 digits
  png        BYTEA NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX app_logos_hash ON app_logos (hash); -- two apps may have the same

-- +goose Down
DROP TABLE app_logos;
