-- +goose Up

-- Apps and what developers set up for them: features, provider keys, go-live, OAuth, webhooks.

-- Apps: OAuth clients (contract §2). Lists are JSON arrays of strings. A suspension by the developer
-- (suspended) and one by the service (suspension_…) are separate: lifting one leaves the other.
-- Written by package apps.
CREATE TABLE apps (
  id                 TEXT PRIMARY KEY,          -- app_…
  owner_id           TEXT NOT NULL REFERENCES accounts(id),
  name               TEXT NOT NULL,
  client_id          TEXT NOT NULL UNIQUE,
  secret_hash        TEXT NOT NULL,             -- of the client secret
  redirect_uris      TEXT NOT NULL,             -- list
  allowed_models     TEXT NOT NULL,             -- list; empty = all
  default_max_tokens BIGINT CHECK (default_max_tokens > 0), -- output tokens of a call
  tier               TEXT NOT NULL CHECK (tier IN ('sandbox', 'limited-live', 'full-live')),
  provider_mode      TEXT NOT NULL CHECK (provider_mode IN ('mock', 'live')),
  test_allowlist     TEXT NOT NULL,             -- list of testers
  dev_margin_ppm     BIGINT NOT NULL CHECK (dev_margin_ppm >= 0), -- margin rate
  suspended          BIGINT NOT NULL DEFAULT 0 CHECK (suspended IN (0, 1)), -- by its developer
  suspended_us       BIGINT,                    -- when its developer last suspended or resumed it
  suspension_by      TEXT CHECK (suspension_by IN ('operator', 'risk')), -- by the service; NULL = not suspended
  suspension_reason  TEXT,
  suspension_us      BIGINT,                    -- when the service suspended it
  lifted_us          BIGINT,                    -- when an operator last lifted a suspension; risk rules ignore what came before
  created_us         BIGINT NOT NULL
);
CREATE INDEX apps_owner ON apps (owner_id);
CREATE INDEX apps_suspended ON apps (id) WHERE suspended = 1 OR suspension_by IS NOT NULL;

-- The logos of apps. Pages name a logo by its hash, so that browsers may cache it. Written by package apps.
CREATE TABLE app_logos (
  app_id     TEXT PRIMARY KEY REFERENCES apps(id),
  hash       TEXT NOT NULL,                     -- first 32 hexadecimal digits of SHA-256 of png; two apps may share it
  png        BYTEA NOT NULL,                    -- redrawn by us
  created_us BIGINT NOT NULL
);
CREATE INDEX app_logos_hash ON app_logos (hash);

-- Features: labels of calls with optional guardrails (contract §2). Written by package features.
CREATE TABLE features (
  app_id               TEXT NOT NULL REFERENCES apps(id),
  slug                 TEXT NOT NULL,
  display_name         TEXT NOT NULL,
  description          TEXT NOT NULL,
  max_cost_per_call_mc BIGINT CHECK (max_cost_per_call_mc >= 0),
  max_tokens           BIGINT CHECK (max_tokens > 0), -- output tokens of a call
  rate_limit           BIGINT CHECK (rate_limit > 0), -- calls in any 60 seconds, per connection
  default_model        TEXT,
  dev_margin_ppm       BIGINT CHECK (dev_margin_ppm >= 0), -- margin rate; NULL = the app's
  created_us           BIGINT NOT NULL,
  PRIMARY KEY (app_id, slug)
);

-- Go-live requests, at most one pending per app (contract §3). Written by package golive.
CREATE TABLE golive_requests (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  from_tier  TEXT NOT NULL,
  to_tier    TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'refused')),
  reason     TEXT,                              -- refused: why
  created_us BIGINT NOT NULL,
  decided_us BIGINT,
  CHECK ((status = 'pending') = (decided_us IS NULL)),
  CHECK ((status = 'refused') = (reason IS NOT NULL))
);
CREATE UNIQUE INDEX golive_pending ON golive_requests (app_id) WHERE status = 'pending';
CREATE INDEX golive_app ON golive_requests (app_id, id);
CREATE INDEX golive_queue ON golive_requests (id) WHERE status = 'pending';

-- Provider keys of developers, one per provider. Written by package providerkeys.
CREATE TABLE provider_keys (
  account_id TEXT NOT NULL REFERENCES accounts(id),
  provider   TEXT NOT NULL CHECK (provider IN ('openai', 'anthropic', 'google')),
  sealed     BYTEA NOT NULL,
  last4      TEXT NOT NULL,                     -- last 4 characters, for display; '' = the key is too short
  created_us BIGINT NOT NULL,                   -- when the first key was stored
  tested_us  BIGINT NOT NULL,                   -- when the provider accepted the present key
  PRIMARY KEY (account_id, provider)
);

-- Spend of live apps in buckets of ten minutes, kept for a week: automatic app suspension reads it
-- (decision 062). Written by package watch, as is watch_turns.
CREATE TABLE app_spend (
  app_id         TEXT NOT NULL,
  bucket         BIGINT NOT NULL,               -- number of the ten minutes since 1970
  user_charge_mc BIGINT NOT NULL,
  PRIMARY KEY (app_id, bucket)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX app_spend_bucket ON app_spend (bucket);

-- The job that fills app_spend. The node that moves next_us runs it.
CREATE TABLE watch_turns (
  name    TEXT PRIMARY KEY,
  next_us BIGINT NOT NULL,                      -- when the next run is due
  bucket  BIGINT NOT NULL                       -- the first bucket that is not summed yet
);
INSERT INTO watch_turns (name, next_us, bucket) VALUES ('apps', 0, 0);

-- Authorization codes, for one use (contract §5, rule 3). Written by package oauth, as all oauth_ tables.
CREATE TABLE oauth_codes (
  hash              TEXT PRIMARY KEY,
  app_id            TEXT NOT NULL REFERENCES apps(id),
  account_id        TEXT NOT NULL REFERENCES accounts(id),
  redirect_uri      TEXT NOT NULL,
  challenge         TEXT NOT NULL,              -- PKCE code challenge, S256
  allocation_mc     BIGINT NOT NULL CHECK (allocation_mc >= 0), -- the spend cap that the user approved
  velocity_limit_mc BIGINT,                     -- the daily limit that the user set
  expires_us        BIGINT NOT NULL,
  failures          BIGINT NOT NULL DEFAULT 0,  -- failed exchanges
  used_us           BIGINT,                     -- when it was exchanged
  connection_id     TEXT,                       -- exchanged: the connection that it made or renewed
  family_id         TEXT                        -- exchanged: the grant family of its tokens
);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_us);

-- Access and refresh tokens. A grant family is all tokens of one code, and is revoked as a whole.
CREATE TABLE oauth_tokens (
  hash          TEXT PRIMARY KEY,
  kind          TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  family_id     TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL REFERENCES apps(id),
  expires_us    BIGINT NOT NULL,
  used_us       BIGINT,                         -- refresh tokens: when it was exchanged
  successor     TEXT,                           -- refresh tokens: hash of the token it was exchanged for
  revoked_us    BIGINT,
  created_us    BIGINT NOT NULL
);
CREATE INDEX oauth_tokens_family ON oauth_tokens (family_id);
CREATE INDEX oauth_tokens_connection ON oauth_tokens (connection_id);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_us);

-- Answers of /oauth/token, kept for 60 seconds for a retry with the same Idempotency-Key (decision 035).
CREATE TABLE oauth_replays (
  app_id      TEXT NOT NULL,
  key         TEXT NOT NULL,                    -- the Idempotency-Key
  fingerprint TEXT NOT NULL,                    -- hash of the request
  sealed      TEXT NOT NULL,                    -- the answer, encrypted under the presented credential and the key
  expires_us  BIGINT NOT NULL,
  PRIMARY KEY (app_id, key)
);

-- Webhook endpoints (contract §2). Written by package webhooks, as all tables below.
CREATE TABLE webhooks (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  url        TEXT NOT NULL,
  events     TEXT NOT NULL,                     -- JSON array of event types; empty = all
  status     TEXT NOT NULL CHECK (status IN ('active', 'disabled')),
  sealed     BYTEA NOT NULL,                    -- the webhook secret
  created_us BIGINT NOT NULL
);
CREATE INDEX webhooks_app ON webhooks (app_id, id);

-- Deliveries: one row per event and endpoint, which is both the queue and the history (contract §2).
CREATE TABLE deliveries (
  id              TEXT PRIMARY KEY,
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
  created_us      BIGINT NOT NULL,
  UNIQUE (webhook_id, event_id)
);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due_us) WHERE status = 'pending';
CREATE INDEX deliveries_history ON deliveries (webhook_id, id);

-- The events of all apps in the order in which they are delivered, redeliveries included. Transactions
-- append one after the other, under the lock of event_log_head: a reader at a place has missed none before it.
CREATE TABLE event_log (
  place    BIGINT PRIMARY KEY,
  app_id   TEXT NOT NULL,
  event_id TEXT NOT NULL
);
CREATE INDEX event_log_app ON event_log (app_id, place);
CREATE INDEX event_log_event ON event_log (event_id);

-- The last place of event_log, in one row.
CREATE TABLE event_log_head (
  one   BIGINT PRIMARY KEY CHECK (one = 1),
  place BIGINT NOT NULL
);
INSERT INTO event_log_head (one, place) VALUES (1, 0);
