-- +goose Up

-- The new events of each app, which get their turns.
DROP INDEX events_new;
CREATE INDEX events_new ON events (app_id, id) WHERE passed = 0;
