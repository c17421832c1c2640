-- +goose Up

-- Attempts of deliveries, as the developer's console shows them. Written by package webhooks, as the next table.
-- An attempt is deleted with its delivery.
CREATE TABLE delivery_attempts (
  delivery_id     TEXT NOT NULL REFERENCES deliveries(id) ON DELETE CASCADE,
  begun_us        BIGINT NOT NULL,
  duration_ms     BIGINT NOT NULL,
  response_status BIGINT,                       -- NULL = no response
  error           TEXT,                         -- NULL = delivered
  excerpt         TEXT NOT NULL,                -- the beginning of the response's body
  PRIMARY KEY (delivery_id, begun_us)
);

-- Attempts of an endpoint by day (UTC), for its success rate and the mail after a day of failures. There is no foreign
-- key: an attempt would lock the endpoint after its delivery, and deleting an endpoint locks them the other way round.
CREATE TABLE webhook_days (
  webhook_id TEXT NOT NULL,
  day        TEXT NOT NULL,                     -- 2006-01-02
  succeeded  BIGINT NOT NULL,
  failed     BIGINT NOT NULL,
  reported   BIGINT NOT NULL DEFAULT 0,         -- 1 = the job for the mail is done with the day
  PRIMARY KEY (webhook_id, day)
);
CREATE INDEX webhook_days_unreported ON webhook_days (day) WHERE reported = 0;

-- For the filters of the console's list of deliveries, and to recover failed ones.
CREATE INDEX deliveries_failed ON deliveries (webhook_id, id) WHERE status = 'failed';
CREATE INDEX deliveries_pending ON deliveries (webhook_id, id) WHERE status = 'pending';
CREATE INDEX deliveries_types ON deliveries (webhook_id, event_type, id);
