-- +goose Up

-- What a review was asked about: members of the app as they were shown, as JSON. It approves these alone. '' = an older
-- version made the request. A request whose tiers are equal is about a change of a live app.
ALTER TABLE golive_requests ADD COLUMN reviewed TEXT NOT NULL DEFAULT '';

-- What the developer of a live app has changed and nobody has reviewed yet, as JSON; '' = nothing.
ALTER TABLE apps ADD COLUMN proposed TEXT NOT NULL DEFAULT '';

-- The logos of such changes. Written by package apps.
CREATE TABLE app_logo_proposals (
  app_id     TEXT PRIMARY KEY REFERENCES apps(id),
  hash       TEXT NOT NULL,
  png        BYTEA NOT NULL,
  created_us BIGINT NOT NULL
);
