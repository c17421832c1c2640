-- +goose Up

-- The id of an entry of an app's event log, which is the cursor of who reads it: a place outlives its database, and after
-- a restore has another event. NULL = appended by an earlier version. Written by package webhooks.
ALTER TABLE event_log ADD COLUMN entry_id TEXT;
CREATE UNIQUE INDEX event_log_entry ON event_log (entry_id) WHERE entry_id IS NOT NULL;

-- Deliveries to an endpoint that have failed for good on a day, and whether the app's owners have an email about that.
ALTER TABLE webhook_days ADD COLUMN lost BIGINT NOT NULL DEFAULT 0;
ALTER TABLE webhook_days ADD COLUMN lost_reported BIGINT NOT NULL DEFAULT 0;
CREATE INDEX webhook_days_lost ON webhook_days (day) WHERE lost > 0 AND lost_reported = 0;

-- The reason of an account's suspension is not for its apps: freezes, and what a connection shows, have none of it any
-- more (decision 123). The account keeps it.
UPDATE freezes SET reason = '' WHERE cause = 'operator' AND subject = 'suspension';
UPDATE connections SET frozen_reason = COALESCE((SELECT f.reason FROM freezes f
    WHERE f.connection_id = connections.id AND f.cause = 'operator' ORDER BY f.since_us, f.subject LIMIT 1), '')
  WHERE frozen_by = 'operator' AND frozen_reason <> ''
    AND id IN (SELECT connection_id FROM freezes WHERE cause = 'operator' AND subject = 'suspension');
