-- +goose Up

-- Events and webhooks.

-- Webhook endpoints (contract §2). Written by package webhooks, as all tables below.
CREATE TABLE webhooks (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  url        TEXT NOT NULL,
  events     TEXT NOT NULL,                     -- JSON array of event types; empty = all
  status     TEXT NOT NULL CHECK (status IN ('active', 'disabled')),
  sealed     BYTEA NOT NULL,                    -- the webhook secret
  created_us BIGINT NOT NULL,
  -- When the endpoint was deleted; NULL = it is there. The purge deletes its deliveries in slices, and then the
  -- row.
  deleted_us BIGINT
);
CREATE INDEX webhooks_app ON webhooks (app_id, id);
-- The endpoints of an app without those that are deleted and wait for the purge of their deliveries.
CREATE INDEX webhooks_live ON webhooks (app_id, id) WHERE deleted_us IS NULL;
CREATE INDEX webhooks_deleted ON webhooks (id) WHERE deleted_us IS NOT NULL;

-- Attempts of an endpoint by day (UTC), for its success rate and the mail after a day of failures. There is no
-- foreign key: an attempt would lock the endpoint after its delivery, and deleting an endpoint locks them the other
-- way round.
CREATE TABLE webhook_days (
  webhook_id    TEXT NOT NULL,
  day           TEXT NOT NULL,                  -- 2006-01-02
  succeeded     BIGINT NOT NULL,
  failed        BIGINT NOT NULL,
  reported      BIGINT NOT NULL DEFAULT 0,      -- 1 = the job for the mail is done with the day
  -- Deliveries to an endpoint that have failed for good on a day, and whether the app's owners have an email about
  -- that.
  lost          BIGINT NOT NULL DEFAULT 0,
  lost_reported BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (webhook_id, day)
);
CREATE INDEX webhook_days_unreported ON webhook_days (day) WHERE reported = 0;
-- Deliveries to an endpoint that have failed for good on a day, and whether the app's owners have an email about
-- that.
CREATE INDEX webhook_days_lost ON webhook_days (day) WHERE lost > 0 AND lost_reported = 0;
CREATE INDEX webhook_days_day ON webhook_days (day);

-- The event outbox: events for apps, written in the transaction of the change that they report (contract §6).
CREATE TABLE events (
  id            TEXT PRIMARY KEY,               -- evt_…
  type          TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  connection_id TEXT,
  seq           BIGINT NOT NULL,                -- 1, 2, … per connection
  data          TEXT NOT NULL,                  -- JSON object
  created_us    BIGINT NOT NULL,
  passed        BIGINT NOT NULL DEFAULT 0,      -- 1 = in event_log, with its deliveries
  -- 1 = a test event of the developer
  test          BIGINT NOT NULL DEFAULT 0 CHECK (test = 0 OR test = 1 AND connection_id IS NULL)
);
CREATE INDEX events_app ON events (app_id, id);
CREATE UNIQUE INDEX events_seq ON events (connection_id, seq) WHERE connection_id IS NOT NULL;
CREATE INDEX events_risk ON events (id)
  WHERE type = 'connection.frozen' OR type = 'connection.risk_warning' OR type = 'app.spend_limit_reached';
CREATE INDEX events_pauses ON events (connection_id, created_us)
  WHERE type = 'connection.frozen' OR type = 'connection.resumed';
CREATE INDEX events_new ON events (app_id, id) WHERE passed = 0;
-- Test events of developers, for their purge.
CREATE INDEX events_test ON events (id) WHERE test = 1;

-- The events of all apps in the order in which they are delivered, redeliveries included. Transactions append one
-- after the other, under the lock of event_log_head: a reader at a place has missed none before it.
CREATE TABLE event_log (
  place    BIGINT PRIMARY KEY,
  app_id   TEXT NOT NULL,
  event_id TEXT NOT NULL,
  -- The id of an entry of an app's event log, which is the cursor of who reads it: a place outlives its database,
  -- and after a restore has another event. Written by package webhooks.
  entry_id TEXT
);
CREATE INDEX event_log_app ON event_log (app_id, place);
CREATE INDEX event_log_event ON event_log (event_id);
CREATE UNIQUE INDEX event_log_entry ON event_log (entry_id) WHERE entry_id IS NOT NULL;

-- The last place of event_log, in one row.
CREATE TABLE event_log_head (
  one   BIGINT PRIMARY KEY CHECK (one = 1),
  place BIGINT NOT NULL
);
INSERT INTO event_log_head (one, place) VALUES (1, 0);

-- Deliveries: one row per event and endpoint, which is both the queue and the history (contract §2).
CREATE TABLE deliveries (
-- sqlite:   id              TEXT PRIMARY KEY,
-- postgres:   id              TEXT COLLATE "C" PRIMARY KEY,
  webhook_id      TEXT NOT NULL REFERENCES webhooks(id) ON DELETE CASCADE,
  event_id        TEXT NOT NULL,
  event_type      TEXT NOT NULL,
  status          TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'failed')),
  attempts        BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_us         BIGINT,                       -- when the next attempt is due, for display
  due_us          BIGINT NOT NULL,              -- when a node may take it: next_us, or the end of the lease
  lease           TEXT NOT NULL DEFAULT '',     -- of the node that is sending it; '' = none
  last_error      TEXT,
  response_status BIGINT,                       -- HTTP status of the last response
  delivered_us    BIGINT,
-- sqlite:   created_us      BIGINT NOT NULL,
-- sqlite:   UNIQUE (webhook_id, event_id)
-- postgres:   created_us      BIGINT NOT NULL
)
-- postgres: PARTITION BY RANGE (id)
;
CREATE INDEX deliveries_due ON deliveries (webhook_id, due_us) WHERE status = 'pending';
CREATE INDEX deliveries_history ON deliveries (webhook_id, id);
-- For the filters of the console's list of deliveries, and to recover failed ones.
CREATE INDEX deliveries_failed ON deliveries (webhook_id, id) WHERE status = 'failed';
CREATE INDEX deliveries_pending ON deliveries (webhook_id, id) WHERE status = 'pending';
CREATE INDEX deliveries_types ON deliveries (webhook_id, event_type, id);
-- postgres: CREATE TABLE deliveries_y2026 PARTITION OF deliveries
-- postgres:   FOR VALUES FROM (MINVALUE) TO ('whd_06hcx2ym000000000000000000');
-- postgres: CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT;
-- postgres: CREATE UNIQUE INDEX deliveries_y2026_events ON deliveries_y2026 (webhook_id, event_id);
-- postgres: CREATE UNIQUE INDEX deliveries_default_events ON deliveries_default (webhook_id, event_id);

-- Attempts of deliveries, as the developer's console shows them. Written by package webhooks, as the next table. An
-- attempt is deleted with its delivery.
CREATE TABLE delivery_attempts (
  delivery_id     TEXT NOT NULL REFERENCES deliveries(id) ON DELETE CASCADE,
  begun_us        BIGINT NOT NULL,
  duration_ms     BIGINT NOT NULL,
  response_status BIGINT,                       -- NULL = no response
  error           TEXT,                         -- NULL = delivered
  excerpt         TEXT NOT NULL,                -- the beginning of the response's body
  PRIMARY KEY (delivery_id, begun_us)
);
