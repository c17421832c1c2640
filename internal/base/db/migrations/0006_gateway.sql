-- +goose Up

-- Calls, voice sessions, and how the service fares.

-- Nodes that own holds. When a node's lease has ended, another node recovers its holds.
CREATE TABLE nodes (
  id         TEXT PRIMARY KEY,
  started_us BIGINT NOT NULL,
  lease_us   BIGINT NOT NULL,                   -- end of the lease
  -- What all nodes must have alike, by name and as digests: JSON, '' = the node does not say (decision 096).
  settings   TEXT NOT NULL DEFAULT ''
);

-- Answers of providers, kept for 7 days for replays. The amounts of a replay come from the ledger row.
CREATE TABLE stored_responses (
-- sqlite:   request_id TEXT PRIMARY KEY,
-- postgres:   request_id TEXT COLLATE "C" PRIMARY KEY,
  encoding   TEXT NOT NULL,                     -- raw, or s2 (compressed)
  body       BYTEA NOT NULL,
  created_us BIGINT NOT NULL
)
-- postgres: PARTITION BY RANGE (request_id)
;
-- postgres: CREATE TABLE stored_responses_y2026 PARTITION OF stored_responses
-- postgres:   FOR VALUES FROM (MINVALUE) TO ('req_06hcx2ym000000000000000000');
-- postgres: CREATE TABLE stored_responses_default PARTITION OF stored_responses DEFAULT;

-- Checkpoints of streams that run longer than a second, for other nodes and for recovery.
CREATE TABLE checkpoints (
  request_id       TEXT NOT NULL,
  attempt          BIGINT NOT NULL,
  n                BIGINT NOT NULL,             -- number within the attempt
  body             BYTEA NOT NULL,
  -- Output tokens that a stream has delivered whose frames are not saved because they are too many (decision 027);
  -- 0 of others.
  delivered_tokens BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (request_id, attempt, n)
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

-- Voice sessions (contract §2, Realtime session). A session that has not ended occupies one of the two slots of its
-- connection. The node that runs it renews its lease. Written by package voice, as is realtime_replies.
CREATE TABLE realtime_sessions (
  id               TEXT PRIMARY KEY,            -- rts_…
  connection_id    TEXT NOT NULL,
  account_id       TEXT NOT NULL,
  app_id           TEXT NOT NULL,
  feature          TEXT,                        -- the slug as the app sent it
  model            TEXT NOT NULL,
  mock             BIGINT NOT NULL CHECK (mock IN (0, 1)),
  status           TEXT NOT NULL CHECK (status IN ('pending', 'live', 'ended')),
  slot             BIGINT CHECK (slot IN (1, 2)),
  ticket_hash      TEXT NOT NULL,
  ticket_until_us  BIGINT NOT NULL,             -- when the ticket expires
  ticket_used_us   BIGINT,
  node_id          TEXT,                        -- the node that runs it; NULL = none yet
  node_url         TEXT NOT NULL DEFAULT '',    -- where other nodes reach that node; '' = they cannot
  lease_us         BIGINT NOT NULL,             -- end of the node's lease
  call_id          TEXT,                        -- the provider's id of the call
  own_key          BIGINT NOT NULL CHECK (own_key IN (0, 1)), -- 1 = the developer's provider key serves it
  hang_up          BIGINT NOT NULL CHECK (hang_up IN (0, 1)), -- 1 = the call may still exist at the provider
  end_asked        TEXT CHECK (end_asked IN ('after_heard', 'immediate')), -- how the app asked to end it
  state            TEXT NOT NULL,               -- JSON: what another node needs to take it over
  max_duration_s   BIGINT NOT NULL CHECK (max_duration_s BETWEEN 30 AND 3540), -- seconds
  max_cost_mc      BIGINT CHECK (max_cost_mc > 0),
  charged_mc       BIGINT CHECK (charged_mc >= 0), -- ended: the sum of its replies
  response_count   BIGINT CHECK (response_count >= 0), -- ended: the number of its replies
  end_reason       TEXT,                        -- ended
  created_us       BIGINT NOT NULL,
  started_us       BIGINT,                      -- when it went live
  ended_us         BIGINT,
  -- The child of its connection that has made a voice session and pays for it (decision 107); NULL = the
  -- connection itself.
  child_id         TEXT,
  -- When the call of an ended session with hang_up = 1 is hung up next: each try puts it off.
  hang_up_us       BIGINT NOT NULL DEFAULT 0,
  -- What lists and resources say of the state of a live session, so that they do not read all of it: 1 = yes.
  -- Written by package voice.
  ending           BIGINT NOT NULL DEFAULT 0,
  control_attached BIGINT NOT NULL DEFAULT 0,
  CHECK ((status = 'ended') = (ended_us IS NOT NULL) AND (status = 'ended') = (end_reason IS NOT NULL)
    AND (status = 'ended') = (slot IS NULL)),
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
  -- The provider's id of each reply that is charged. Two nodes may hear one reply while a session moves between
  -- them: the first one gives the reply its number, and with it the key by which the ledger charges it once.
  reply_id   TEXT,
  UNIQUE (session_id, n)
);
-- The provider's id of each reply that is charged. Two nodes may hear one reply while a session moves between them:
-- the first one gives the reply its number, and with it the key by which the ledger charges it once.
CREATE UNIQUE INDEX realtime_replies_reply ON realtime_replies (session_id, reply_id) WHERE reply_id IS NOT NULL;

-- What a node counted in five minutes. A node writes its row again while the five minutes run.
CREATE TABLE health (
  from_us  BIGINT NOT NULL,                     -- start of the five minutes
  service  TEXT NOT NULL,                       -- api, sign_in, payments, email, or the name of a provider
  model    TEXT NOT NULL,                       -- of a provider; '' = not one model
  node_id  TEXT NOT NULL,
  attempts BIGINT NOT NULL,                     -- calls, or samples of the node's readiness
  failures BIGINT NOT NULL,                     -- of attempts
  t0       BIGINT NOT NULL,                     -- calls that took up to 0.1 s, and so on: metrics.Limits
  t1       BIGINT NOT NULL,
  t2       BIGINT NOT NULL,
  t3       BIGINT NOT NULL,
  t4       BIGINT NOT NULL,
  t5       BIGINT NOT NULL,
  t6       BIGINT NOT NULL,
  t7       BIGINT NOT NULL,
  t8       BIGINT NOT NULL,
  t9       BIGINT NOT NULL,
  t10      BIGINT NOT NULL,
  t11      BIGINT NOT NULL,
  t12      BIGINT NOT NULL,                     -- longer than the last limit
  PRIMARY KEY (from_us, service, model, node_id)
)
-- sqlite: WITHOUT ROWID
;

-- What operators tell visitors about an incident.
CREATE TABLE incidents (
  id          TEXT PRIMARY KEY,                 -- inc_…
  service     TEXT NOT NULL,                    -- as in health; '' = the whole service
  impact      TEXT NOT NULL CHECK (impact IN ('none', 'degraded', 'down')),
  title       TEXT NOT NULL,
  text        TEXT NOT NULL,
  from_us     BIGINT NOT NULL,
  resolved_us BIGINT,                           -- NULL = it lasts
  created_us  BIGINT NOT NULL
);
