-- +goose Up

-- Stops: calls that must end now, for the nodes that run them (decision 067). Each node reads the new rows
-- twice a second. They are deleted after a day. Written by package store.
CREATE TABLE stops (
  id            TEXT PRIMARY KEY,               -- stp_…
  connection_id TEXT NOT NULL,
  request_id    TEXT NOT NULL,                  -- req_… or rts_…; '' = all calls of the connection
  cause         TEXT NOT NULL CHECK (cause IN ('stopped', 'paused', 'revoked')),
  created_us    BIGINT NOT NULL
);
CREATE INDEX stops_request ON stops (request_id);
