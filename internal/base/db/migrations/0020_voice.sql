-- +goose Up
-- Voice sessions (spec §2, Realtime session), written by package voice. A session that
-- is not ended has one of its connection's two slots. Whoever runs it renews its lease.
CREATE TABLE realtime_sessions (
  id              TEXT PRIMARY KEY,
  connection_id   TEXT NOT NULL,
  account_id      TEXT NOT NULL,
  app_id          TEXT NOT NULL,
  feature         TEXT,                            -- the slug as sent
  model           TEXT NOT NULL,
  mock            BIGINT NOT NULL CHECK (mock IN (0, 1)),
  status          TEXT NOT NULL CHECK (status IN ('pending', 'live', 'ended')),
  slot            BIGINT CHECK (slot IN (1, 2)),
  ticket_hash     TEXT NOT NULL,
  ticket_until_us BIGINT NOT NULL,
  ticket_used_us  BIGINT,
  node_id         TEXT,                            -- who runs it; NULL = nobody yet
  node_url        TEXT NOT NULL DEFAULT '',        -- where other nodes reach that one; '' = they cannot
  lease_us        BIGINT NOT NULL,                 -- until when
  call_id         TEXT,                            -- the provider's name of the call
  own_key         BIGINT NOT NULL CHECK (own_key IN (0, 1)), -- the developer's own key serves it
  hang_up         BIGINT NOT NULL CHECK (hang_up IN (0, 1)), -- the call may still be there
  end_asked       TEXT CHECK (end_asked IN ('after_heard', 'immediate')),
  state           TEXT NOT NULL,                   -- JSON: what its next node must know
  max_duration_s  BIGINT NOT NULL CHECK (max_duration_s BETWEEN 30 AND 3540),
  max_cost_mc     BIGINT CHECK (max_cost_mc > 0),
  charged_mc      BIGINT CHECK (charged_mc >= 0),  -- these three: once it has ended
  response_count  BIGINT CHECK (response_count >= 0),
  end_reason      TEXT,
  created_us      BIGINT NOT NULL,
  started_us      BIGINT,
  ended_us        BIGINT,
  CHECK ((status = 'ended') = (ended_us IS NOT NULL) AND (status = 'ended') = (end_reason IS NOT NULL) AND (status = 'ended') = (slot IS NULL)),
  CHECK ((status = 'ended') = (charged_mc IS NOT NULL) AND (status = 'ended') = (response_count IS NOT NULL)),
  CHECK (status <> 'live' OR started_us IS NOT NULL)
);
CREATE UNIQUE INDEX realtime_sessions_slot ON realtime_sessions (connection_id, slot) WHERE slot IS NOT NULL;
CREATE INDEX realtime_sessions_open ON realtime_sessions (id) WHERE status <> 'ended' OR hang_up = 1;
CREATE INDEX realtime_sessions_connection ON realtime_sessions (connection_id, id);
CREATE INDEX realtime_sessions_app ON realtime_sessions (app_id, id);

-- What each reply of a session is called in the ledger. A reply that was billed has its
-- row there, led_… instead of req_…: that row is its receipt (spec §2, Realtime receipt).
CREATE TABLE realtime_replies (
  request_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES realtime_sessions (id),
  n          BIGINT NOT NULL CHECK (n > 0),
  UNIQUE (session_id, n)
);

-- +goose Down
DROP TABLE realtime_replies; DROP TABLE realtime_sessions;
