-- +goose Up

-- Money and who may spend it. All tables here are written by package ledger alone.
--
-- The CHECKs repeat the invariants of money, so that the database refuses what a bug would write. Those
-- of the ledger read a = x OR a = y, because SQLite builds a table for an IN of three or more values at
-- each insert. On SQLite, small hot tables are WITHOUT ROWID, which saves a look-up.

-- Balances of accounts (contract §2).
CREATE TABLE balances (
  account_id   TEXT PRIMARY KEY,
  sandbox      BIGINT NOT NULL CHECK (sandbox IN (0, 1)), -- of a test account
  available_mc BIGINT NOT NULL,
  disputed     BIGINT NOT NULL DEFAULT 0 CHECK (disputed IN (0, 1)), -- 1 = a payment was reversed: only then may available_mc be negative
  reserved_mc  BIGINT NOT NULL CHECK (reserved_mc >= 0), -- allocated to connections and not consumed
  seq          BIGINT NOT NULL CHECK (seq >= 0), -- of the account's newest ledger row
  head         TEXT NOT NULL,                   -- hash of that row
  CHECK (available_mc >= 0 OR disputed = 1)
)
-- sqlite: WITHOUT ROWID
;

-- Connections: the grant of one user to one app, with its allocation (contract §2).
CREATE TABLE connections (
  id                TEXT PRIMARY KEY,           -- conn_…
  app_id            TEXT NOT NULL,
  account_id        TEXT NOT NULL,
  allocation_mc     BIGINT NOT NULL CHECK (allocation_mc >= 0),
  consumed_mc       BIGINT NOT NULL CHECK (consumed_mc >= 0),
  held_mc           BIGINT NOT NULL CHECK (held_mc >= 0), -- sum of its open and pending holds
  velocity_limit_mc BIGINT CHECK (velocity_limit_mc >= 0), -- the user's limit per rolling 24 hours
  status            TEXT NOT NULL CHECK (status IN ('active', 'frozen', 'revoked')),
  spent             TEXT NOT NULL,              -- settled spend of the last 24 hours, "bucket:amount …"
  faster            BIGINT NOT NULL DEFAULT 1 CHECK (faster BETWEEN 1 AND 3), -- factor of the usual spend that the user allows (decision 025)
  warned_us         BIGINT NOT NULL DEFAULT 0,  -- when connection.risk_warning was last sent
  event_seq         BIGINT NOT NULL,            -- seq of its newest event
  created_us        BIGINT NOT NULL,
  revoked_us        BIGINT,
  CHECK (consumed_mc + held_mc <= allocation_mc),
  CHECK ((status = 'revoked') = (revoked_us IS NOT NULL))
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX connections_live ON connections (app_id, account_id) WHERE status <> 'revoked';
CREATE INDEX connections_app ON connections (app_id, id);
CREATE INDEX connections_account ON connections (account_id, id);
CREATE INDEX connections_frozen ON connections (id) WHERE status = 'frozen';
CREATE INDEX connections_revoked ON connections (revoked_us, app_id) WHERE revoked_us IS NOT NULL;

-- Allocation requests: an app asks for a higher allocation, and the user decides (contract §2, §3).
CREATE TABLE allocation_requests (
  id            TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'superseded')),
  current_mc    BIGINT NOT NULL CHECK (current_mc >= 0), -- the allocation when the app asked
  target_mc     BIGINT NOT NULL CHECK (target_mc > current_mc), -- the allocation that it asks for
  reason        TEXT NOT NULL,                  -- given by the app; '' = none
  superseded_by TEXT,                           -- the newer request
  created_us    BIGINT NOT NULL,
  decided_us    BIGINT,                         -- when the user decided
  CHECK ((status = 'superseded') = (superseded_by IS NOT NULL)),
  CHECK ((status = 'approved' OR status = 'denied') = (decided_us IS NOT NULL))
);
CREATE INDEX allocation_requests_connection ON allocation_requests (connection_id, id);
CREATE UNIQUE INDEX allocation_requests_pending ON allocation_requests (connection_id) WHERE status = 'pending';

-- Holds: calls in flight (open), calls that are settled later from the provider's record (pending), and
-- idempotency keys whose last attempt failed. A billed call has no hold: the ledger has its key.
CREATE TABLE holds (
  connection_id TEXT NOT NULL,
  key           TEXT NOT NULL,                  -- idempotency key
  request_id    TEXT NOT NULL,                  -- req_…
  fingerprint   TEXT NOT NULL,                  -- hash of the request
  state         TEXT NOT NULL CHECK (state IN ('open', 'pending', 'failed')),
  attempt       BIGINT NOT NULL CHECK (attempt > 0),
  node_id       TEXT NOT NULL,                  -- the node that runs the attempt
  claim         TEXT NOT NULL,                  -- the HTTP request that runs the attempt
  amount_mc     BIGINT NOT NULL CHECK (amount_mc > 0),
  account_id    TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  feature       TEXT,                           -- the slug as the app sent it
  bucket        TEXT,                           -- the feature's label in daily totals
  model         TEXT NOT NULL,
  terms         TEXT NOT NULL,                  -- JSON: price terms and token counts at the time of the hold
  created_us    BIGINT NOT NULL,
  paid_by       TEXT NOT NULL CHECK (paid_by IN ('wallet', 'free_credit')),
  counts        TEXT NOT NULL,                  -- what it reserves in windows, "subject|unit|seconds|held …"
  PRIMARY KEY (connection_id, key)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX holds_failed ON holds (request_id) WHERE state = 'failed';

-- Where the charge of each pending hold will come from. The node that moves next_us asks the provider.
CREATE TABLE deferred (
  request_id    TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  key           TEXT NOT NULL,                  -- idempotency key
  provider      TEXT NOT NULL,
  record        TEXT NOT NULL,                  -- the provider's id of the answer; '' = not known
  tries         BIGINT NOT NULL CHECK (tries >= 0),
  since_us      BIGINT NOT NULL,                -- when the call was deferred
  next_us       BIGINT NOT NULL                 -- when to ask next
);

-- Nodes that own holds. When a node's lease has ended, another node recovers its holds.
CREATE TABLE nodes (
  id         TEXT PRIMARY KEY,
  started_us BIGINT NOT NULL,
  lease_us   BIGINT NOT NULL                    -- end of the lease
);

-- The ledger: one row per movement of money, in one hash chain per account. Rows are never changed or
-- deleted. The types spend and topup are the contract's; connect, cap, revoke and release move money
-- between available and reserved.
CREATE TABLE ledger (
  id                  TEXT PRIMARY KEY,         -- led_…
  account_id          TEXT NOT NULL,
  seq                 BIGINT NOT NULL,          -- 1, 2, … per account
  type                TEXT NOT NULL CHECK (type = 'spend' OR type = 'topup' OR type = 'connect' OR type = 'cap' OR type = 'revoke' OR type = 'release'),
  status              TEXT NOT NULL CHECK (status = 'settled' OR status = 'reversed' OR status = 'pending'),
  reversal_of         TEXT,                     -- reversals: the row that it takes back
  reason              TEXT,
  connection_id       TEXT,
  app_id              TEXT,
  feature             TEXT,                     -- the slug as the app sent it
  bucket              TEXT,                     -- the feature's label in daily totals: the slug, or other
  model               TEXT,
  key                 TEXT,                     -- spends: idempotency key
  fingerprint         TEXT,                     -- spends: hash of the request
  paid_by             TEXT CHECK (paid_by IN ('wallet', 'free_credit')),
  settlement          TEXT CHECK (settlement IN ('settled', 'estimated')),
  terms               TEXT,                     -- JSON: price terms of the hold
  usage               TEXT,                     -- JSON: token counts by token class
  hold_amount_mc      BIGINT,
  provider_cost_mc    BIGINT,
  svc_fee_mc          BIGINT,
  dev_margin_mc       BIGINT,
  user_charge_mc      BIGINT,
  remaining_mc        BIGINT,                   -- allocation remaining after the row
  amount_mc           BIGINT,                   -- top-ups: the amount
  available_delta_mc  BIGINT NOT NULL,          -- how the row changes the balance and the connection
  reserved_delta_mc   BIGINT NOT NULL,
  allocation_delta_mc BIGINT NOT NULL,
  consumed_delta_mc   BIGINT NOT NULL,
  created_us          BIGINT NOT NULL,
  hash                TEXT NOT NULL,            -- of the row and the hash of the row before it
  key_hash            BIGINT,                   -- of connection_id and key: keeps the index of all keys small
  CHECK (user_charge_mc = provider_cost_mc + svc_fee_mc + dev_margin_mc),
  CHECK (type <> 'spend' OR user_charge_mc IS NOT NULL),
  CHECK (status <> 'settled' OR type <> 'spend' OR (provider_cost_mc >= 0 AND dev_margin_mc >= 0 AND user_charge_mc >= 0)),
  CHECK ((status = 'reversed') = (reversal_of IS NOT NULL))
);
CREATE UNIQUE INDEX ledger_chain ON ledger (account_id, seq);
CREATE INDEX ledger_key ON ledger (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX ledger_reversal ON ledger (reversal_of) WHERE reversal_of IS NOT NULL;
CREATE INDEX ledger_app ON ledger (app_id, id) WHERE type = 'spend';
CREATE INDEX ledger_chargebacks ON ledger (app_id, created_us) WHERE reason = 'chargeback';

-- Answers of providers, kept for 7 days for replays. The amounts of a replay come from the ledger row.
CREATE TABLE answers (
  request_id TEXT PRIMARY KEY,
  encoding   TEXT NOT NULL,                     -- raw, or s2 (compressed)
  body       BYTEA NOT NULL,
  created_us BIGINT NOT NULL
);

-- Checkpoints of streams that run longer than a second, for other nodes and for recovery.
CREATE TABLE chunks (
  request_id TEXT NOT NULL,
  attempt    BIGINT NOT NULL,
  n          BIGINT NOT NULL,                   -- number within the attempt
  body       BYTEA NOT NULL,
  PRIMARY KEY (request_id, attempt, n)
);

-- Counters of limits, one row per subject: an app's spend, a free pool, the calls of a feature.
CREATE TABLE windows (
  subject TEXT PRIMARY KEY,
  buckets TEXT NOT NULL,                        -- what is settled, "bucket:count …"
  held    BIGINT NOT NULL CHECK (held >= 0),    -- what calls in flight have reserved (holds.counts)
  told    BIGINT NOT NULL CHECK (told IN (0, 1)) -- 1 = the event "limit reached" was sent
)
-- sqlite: WITHOUT ROWID
;

-- Daily totals per connection, feature label and model.
CREATE TABLE rollups (
  day              TEXT NOT NULL,               -- UTC, as 2026-11-21
  connection_id    TEXT NOT NULL,
  feature          TEXT NOT NULL,               -- '' = none, 'other' = not registered
  model            TEXT NOT NULL,
  app_id           TEXT NOT NULL,
  account_id       TEXT NOT NULL,
  calls            BIGINT NOT NULL,
  input_tokens     BIGINT NOT NULL,
  output_tokens    BIGINT NOT NULL,
  provider_cost_mc BIGINT NOT NULL,
  svc_fee_mc       BIGINT NOT NULL,
  dev_margin_mc    BIGINT NOT NULL,
  user_charge_mc   BIGINT NOT NULL,
  PRIMARY KEY (connection_id, day, feature, model)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX rollups_app ON rollups (app_id, day);
CREATE INDEX rollups_day ON rollups (day);

-- Refusals, for the request log. They are not money.
CREATE TABLE refusals (
  request_id    TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  status        BIGINT NOT NULL,                -- of the HTTP response
  code          TEXT NOT NULL,
  message       TEXT NOT NULL,
  details       TEXT NOT NULL,                  -- JSON object
  feature       TEXT,
  model         TEXT,
  created_us    BIGINT NOT NULL
);
CREATE INDEX refusals_app ON refusals (app_id, request_id);
CREATE INDEX refusals_created ON refusals (created_us);

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
  test          BIGINT NOT NULL DEFAULT 0 CHECK (test = 0 OR test = 1 AND connection_id IS NULL) -- 1 = a test event of the developer
);
CREATE INDEX events_app ON events (app_id, id);
CREATE UNIQUE INDEX events_seq ON events (connection_id, seq) WHERE connection_id IS NOT NULL;
CREATE INDEX events_new ON events (id) WHERE passed = 0;
CREATE INDEX events_risk ON events (id) WHERE type = 'connection.frozen' OR type = 'connection.risk_warning' OR type = 'app.spend_limit_reached';

-- Notices: emails to users about money, written in the transaction of the change that they report.
CREATE TABLE notices (
  id            TEXT PRIMARY KEY,
  kind          TEXT NOT NULL,
  account_id    TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  data          TEXT NOT NULL,                  -- JSON object
  created_us    BIGINT NOT NULL,
  passed        BIGINT NOT NULL DEFAULT 0       -- 1 = in the mail outbox
);
CREATE INDEX notices_new ON notices (id) WHERE passed = 0;
CREATE INDEX notices_account ON notices (account_id, id);

-- Types of the rows that a batch sends to PostgreSQL, as one array per table. They are not the types of
-- the tables, so that a table may get a column while older nodes run. Their columns have a fixed order.
-- postgres: CREATE TYPE key_row AS (connection_id TEXT, key TEXT, hash BIGINT);
-- postgres: CREATE TYPE balance_row AS (account_id TEXT, available_mc BIGINT, reserved_mc BIGINT, seq BIGINT, head TEXT);
-- postgres: CREATE TYPE connection_row AS (
-- postgres:   id TEXT, allocation_mc BIGINT, consumed_mc BIGINT, held_mc BIGINT, velocity_limit_mc BIGINT, status TEXT,
-- postgres:   spent TEXT, event_seq BIGINT, revoked_us BIGINT, faster BIGINT, warned_us BIGINT);
-- postgres: CREATE TYPE hold_row AS (
-- postgres:   connection_id TEXT, key TEXT, request_id TEXT, fingerprint TEXT, state TEXT, attempt BIGINT, node_id TEXT,
-- postgres:   claim TEXT, amount_mc BIGINT, account_id TEXT, app_id TEXT, feature TEXT, bucket TEXT, model TEXT, terms TEXT,
-- postgres:   created_us BIGINT, paid_by TEXT, counts TEXT);
-- postgres: CREATE TYPE ledger_row AS (
-- postgres:   id TEXT, account_id TEXT, seq BIGINT, type TEXT, status TEXT, reversal_of TEXT, reason TEXT,
-- postgres:   connection_id TEXT, app_id TEXT, feature TEXT, bucket TEXT, model TEXT, key TEXT, fingerprint TEXT,
-- postgres:   paid_by TEXT, settlement TEXT, terms TEXT, usage TEXT, hold_amount_mc BIGINT, provider_cost_mc BIGINT,
-- postgres:   svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT, remaining_mc BIGINT, amount_mc BIGINT,
-- postgres:   available_delta_mc BIGINT, reserved_delta_mc BIGINT, allocation_delta_mc BIGINT, consumed_delta_mc BIGINT,
-- postgres:   created_us BIGINT, hash TEXT, key_hash BIGINT);
-- postgres: CREATE TYPE answer_row AS (request_id TEXT, encoding TEXT, body BYTEA, created_us BIGINT);
-- postgres: CREATE TYPE rollup_row AS (
-- postgres:   connection_id TEXT, day TEXT, feature TEXT, model TEXT, app_id TEXT, account_id TEXT, calls BIGINT,
-- postgres:   input_tokens BIGINT, output_tokens BIGINT, provider_cost_mc BIGINT, svc_fee_mc BIGINT, dev_margin_mc BIGINT,
-- postgres:   user_charge_mc BIGINT);
