-- +goose Up

-- Voice sessions, and the calibration of token estimates.

-- Voice sessions (contract §2, Realtime session). A session that has not ended occupies one of the two slots of
-- its connection. The node that runs it renews its lease. Written by package voice, as is realtime_replies.
CREATE TABLE realtime_sessions (
  id              TEXT PRIMARY KEY,             -- rts_…
  connection_id   TEXT NOT NULL,
  account_id      TEXT NOT NULL,
  app_id          TEXT NOT NULL,
  feature         TEXT,                         -- the slug as the app sent it
  model           TEXT NOT NULL,
  mock            BIGINT NOT NULL CHECK (mock IN (0, 1)),
  status          TEXT NOT NULL CHECK (status IN ('pending', 'live', 'ended')),
  slot            BIGINT CHECK (slot IN (1, 2)),
  ticket_hash     TEXT NOT NULL,
  ticket_until_us BIGINT NOT NULL,              -- when the ticket expires
  ticket_used_us  BIGINT,
  node_id         TEXT,                         -- the node that runs it; NULL = none yet
  node_url        TEXT NOT NULL DEFAULT '',     -- where other nodes reach that node; '' = they cannot
  lease_us        BIGINT NOT NULL,              -- end of the node's lease
  call_id         TEXT,                         -- the provider's id of the call
  own_key         BIGINT NOT NULL CHECK (own_key IN (0, 1)), -- 1 = the developer's provider key serves it
  hang_up         BIGINT NOT NULL CHECK (hang_up IN (0, 1)), -- 1 = the call may still exist at the provider
  end_asked       TEXT CHECK (end_asked IN ('after_heard', 'immediate')), -- how the app asked to end it
  state           TEXT NOT NULL,                -- JSON: what another node needs to take it over
  max_duration_s  BIGINT NOT NULL CHECK (max_duration_s BETWEEN 30 AND 3540), -- seconds
  max_cost_mc     BIGINT CHECK (max_cost_mc > 0),
  charged_mc      BIGINT CHECK (charged_mc >= 0), -- ended: the sum of its replies
  response_count  BIGINT CHECK (response_count >= 0), -- ended: the number of its replies
  end_reason      TEXT,                         -- ended
  created_us      BIGINT NOT NULL,
  started_us      BIGINT,                       -- when it went live
  ended_us        BIGINT,
  CHECK ((status = 'ended') = (ended_us IS NOT NULL) AND (status = 'ended') = (end_reason IS NOT NULL) AND (status = 'ended') = (slot IS NULL)),
  CHECK ((status = 'ended') = (charged_mc IS NOT NULL) AND (status = 'ended') = (response_count IS NOT NULL)),
  CHECK (status <> 'live' OR started_us IS NOT NULL)
);
CREATE UNIQUE INDEX realtime_sessions_slot ON realtime_sessions (connection_id, slot) WHERE slot IS NOT NULL;
CREATE INDEX realtime_sessions_open ON realtime_sessions (id) WHERE status <> 'ended' OR hang_up = 1;
CREATE INDEX realtime_sessions_connection ON realtime_sessions (connection_id, id);
CREATE INDEX realtime_sessions_app ON realtime_sessions (app_id, id);

-- The request id of each reply. A billed reply has the ledger row led_… of its req_…, which is its receipt
-- (contract §2, Realtime receipt).
CREATE TABLE realtime_replies (
  request_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES realtime_sessions (id),
  n          BIGINT NOT NULL CHECK (n > 0),     -- 1, 2, … per session
  UNIQUE (session_id, n)
);

-- Estimate calibration per model: real input tokens compared with our count (package estimates). Each node keeps
-- its own numbers and saves them here; the last write wins. A node starts from them, and no charge depends on them.
CREATE TABLE estimates (
  model     TEXT PRIMARY KEY,
  calls     BIGINT NOT NULL CHECK (calls >= 0),
  mean_ppm  BIGINT NOT NULL CHECK (mean_ppm >= 0), -- decayed mean of real / counted
  telling   BIGINT NOT NULL CHECK (telling >= 0), -- sampled calls of the present block: small calls are not sampled
  max_ppm   BIGINT NOT NULL CHECK (max_ppm >= 0), -- largest ratio of the present block
  prior_ppm BIGINT NOT NULL CHECK (prior_ppm >= 0) -- largest ratio of the block before; 0 = there was none
);
