-- +goose Up

-- When the call of an ended session with hang_up = 1 is hung up next: each try puts it off.
ALTER TABLE realtime_sessions ADD COLUMN hang_up_us BIGINT NOT NULL DEFAULT 0;
