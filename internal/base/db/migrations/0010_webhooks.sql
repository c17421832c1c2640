-- +goose Up
-- The outbox remembers what has been passed on to deliveries, so that finding the
-- rest costs one look into a small index. Written by package ledger.
ALTER TABLE events ADD COLUMN passed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN test BIGINT NOT NULL DEFAULT 0 CHECK (test = 0 OR test = 1 AND connection_id IS NULL); -- a sample that a developer asked for
CREATE INDEX events_new ON events (id) WHERE passed = 0;

-- Where apps want their events (spec §2, Webhook endpoint). The rest of this file is
-- written by package webhooks.
CREATE TABLE webhooks (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  url        TEXT NOT NULL,
  events     TEXT NOT NULL,       -- JSON array; empty means every event
  status     TEXT NOT NULL CHECK (status IN ('active', 'disabled')),
  sealed     BYTEA NOT NULL,      -- the signing secret, bound to the row
  created_us BIGINT NOT NULL
);
CREATE INDEX webhooks_app ON webhooks (app_id, id);

-- One row for each event and endpoint: the history that the API shows, and the
-- queue (spec §2, Webhook delivery). due_us is when a node may take it: the next
-- attempt, or while one runs, the end of its lease.
CREATE TABLE deliveries (
  id              TEXT PRIMARY KEY,
  webhook_id      TEXT NOT NULL REFERENCES webhooks(id) ON DELETE CASCADE,
  event_id        TEXT NOT NULL,
  event_type      TEXT NOT NULL,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'failed')),
  attempts        BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_us         BIGINT,
  due_us          BIGINT NOT NULL,
  lease           TEXT NOT NULL DEFAULT '',
  last_error      TEXT,
  response_status BIGINT,
  delivered_us    BIGINT,
  created_us      BIGINT NOT NULL,
  UNIQUE (webhook_id, event_id)
);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due_us) WHERE status = 'pending';
CREATE INDEX deliveries_history ON deliveries (webhook_id, id);

-- Every app's events in the order in which it is told them, resends included. One
-- transaction at a time appends, under the lock of the head, so that whoever has
-- read up to a place can miss nothing before it.
CREATE TABLE event_log (
  place    BIGINT PRIMARY KEY,
  app_id   TEXT NOT NULL,
  event_id TEXT NOT NULL
);
CREATE INDEX event_log_app ON event_log (app_id, place);
CREATE INDEX event_log_event ON event_log (event_id);
CREATE TABLE event_log_head (one BIGINT PRIMARY KEY CHECK (one = 1), place BIGINT NOT NULL);
INSERT INTO event_log_head (one, place) VALUES (1, 0);

-- +goose Down
DROP TABLE event_log_head; DROP TABLE event_log; DROP TABLE deliveries; DROP TABLE webhooks;
DROP INDEX events_new; ALTER TABLE events DROP COLUMN test; ALTER TABLE events DROP COLUMN passed;
