-- +goose Up
-- Facts about this installation that are not configuration. Written by package server.
CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- +goose Down
DROP TABLE settings;
