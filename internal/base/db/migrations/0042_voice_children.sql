-- +goose Up

-- The child of its connection that has made a voice session and pays for it (decision 107); NULL = the connection itself.
ALTER TABLE realtime_sessions ADD COLUMN child_id TEXT;
