-- +goose Up

-- What lists and resources say of the state of a live session, so that they do not read all of it: 1 = yes. Nodes of an
-- earlier version leave it at 0. Written by package voice.
ALTER TABLE realtime_sessions ADD COLUMN ending BIGINT NOT NULL DEFAULT 0;
ALTER TABLE realtime_sessions ADD COLUMN control_attached BIGINT NOT NULL DEFAULT 0;
