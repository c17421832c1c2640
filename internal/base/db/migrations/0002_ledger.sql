-- +goose Up
-- Everything here is written by package ledger alone. Small hot tables live in
-- their key's own tree on SQLite, which saves a look-up each time. The CHECKs repeat the
-- money's invariants, so that a bug is refused and not stored. Those of the ledger
-- say a = x OR a = y, because SQLite builds a table for each IN of three or more, on every insert.

-- What an account owns: free to lend, and lent to connections.
CREATE TABLE balances (
  account_id   TEXT PRIMARY KEY,
  sandbox      BIGINT NOT NULL CHECK (sandbox IN (0, 1)),
  available_mc BIGINT NOT NULL,
  disputed     BIGINT NOT NULL DEFAULT 0 CHECK (disputed IN (0, 1)), -- a payment went back: only that may overdraw it
  reserved_mc  BIGINT NOT NULL CHECK (reserved_mc >= 0),
  seq          BIGINT NOT NULL CHECK (seq >= 0),  -- of the account's newest ledger row
  head         TEXT NOT NULL,                     -- hash of that row
  CHECK (available_mc >= 0 OR disputed = 1)
)
-- sqlite: WITHOUT ROWID
;

-- Connections: the grant of one account to one app (spec §2, Connection).
CREATE TABLE connections (
  id                TEXT PRIMARY KEY,
  app_id            TEXT NOT NULL,
  account_id        TEXT NOT NULL,
  allocation_mc     BIGINT NOT NULL CHECK (allocation_mc >= 0),
  consumed_mc       BIGINT NOT NULL CHECK (consumed_mc >= 0),
  held_mc           BIGINT NOT NULL CHECK (held_mc >= 0),
  velocity_limit_mc BIGINT CHECK (velocity_limit_mc >= 0),
  status            TEXT NOT NULL CHECK (status IN ('active', 'frozen', 'revoked')),
  spent             TEXT NOT NULL,                -- spend of the last 24 h, "bucket:amount …"
  faster            BIGINT NOT NULL DEFAULT 1 CHECK (faster BETWEEN 1 AND 3), -- times the usual pace that its user allows
  warned_us         BIGINT NOT NULL DEFAULT 0,    -- when the app was last told that it spends fast
  event_seq         BIGINT NOT NULL,
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

-- Holds: calls in flight (open), calls whose charge follows from the provider's
-- record (pending), and keys whose last attempt failed. A billed call has no hold;
-- its key lives on in the ledger.
CREATE TABLE holds (
  connection_id TEXT NOT NULL,
  key           TEXT NOT NULL,
  request_id    TEXT NOT NULL,
  fingerprint   TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('open', 'pending', 'failed')),
  attempt       BIGINT NOT NULL CHECK (attempt > 0),
  node_id       TEXT NOT NULL,
  claim         TEXT NOT NULL,                    -- which HTTP request runs this attempt
  amount_mc     BIGINT NOT NULL CHECK (amount_mc > 0),
  account_id    TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  feature       TEXT,
  bucket        TEXT,
  model         TEXT NOT NULL,
  terms         TEXT NOT NULL,                    -- prices, rates and counts as they were at the hold
  created_us    BIGINT NOT NULL,
  paid_by       TEXT NOT NULL CHECK (paid_by IN ('wallet', 'free_credit')),
  counts        TEXT NOT NULL,                    -- what it holds of counters in windows, see package ledger
  PRIMARY KEY (connection_id, key)
)
-- sqlite: WITHOUT ROWID
;

CREATE INDEX holds_failed ON holds (request_id) WHERE state = 'failed';

-- Deferred: where the charge of each pending hold will come from. Any node may ask;
-- who does moves next_us ahead first, so that no two ask at once.
CREATE TABLE deferred (
  request_id    TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  key           TEXT NOT NULL,
  provider      TEXT NOT NULL,
  record        TEXT NOT NULL,                    -- the provider's id of the answer; '' = not known
  tries         BIGINT NOT NULL CHECK (tries >= 0),
  since_us      BIGINT NOT NULL,
  next_us       BIGINT NOT NULL                   -- when to ask
);

-- Nodes: who owns holds. A hold outlives its owner's lease by no more than a sweep.
CREATE TABLE nodes (
  id         TEXT PRIMARY KEY,
  started_us BIGINT NOT NULL,
  lease_us   BIGINT NOT NULL
);

-- The ledger: one row per movement of money, chained by hash per account. The
-- types spend and topup are the contract's; connect, cap, revoke and release
-- move money between available and reserved. No row is ever changed or deleted.
CREATE TABLE ledger (
  id                  TEXT PRIMARY KEY,
  account_id          TEXT NOT NULL,
  seq                 BIGINT NOT NULL,
  type                TEXT NOT NULL CHECK (type = 'spend' OR type = 'topup' OR type = 'connect' OR type = 'cap' OR type = 'revoke' OR type = 'release'),
  status              TEXT NOT NULL CHECK (status = 'settled' OR status = 'reversed' OR status = 'pending'),
  reversal_of         TEXT,
  reason              TEXT,
  connection_id       TEXT,
  app_id              TEXT,
  feature             TEXT,                       -- the slug as sent
  bucket              TEXT,                       -- where analytics count it: the slug, or other
  model               TEXT,
  key                 TEXT,                       -- idempotency key of a spend
  fingerprint         TEXT,
  paid_by             TEXT CHECK (paid_by IN ('wallet', 'free_credit')),
  settlement          TEXT CHECK (settlement IN ('settled', 'estimated')),
  terms               TEXT,
  usage               TEXT,                       -- token counts, JSON
  hold_amount_mc      BIGINT,
  provider_cost_mc    BIGINT,
  svc_fee_mc          BIGINT,
  dev_margin_mc       BIGINT,
  user_charge_mc      BIGINT,
  remaining_mc        BIGINT,                     -- allocation remaining after the row
  amount_mc           BIGINT,
  available_delta_mc  BIGINT NOT NULL,
  reserved_delta_mc   BIGINT NOT NULL,
  allocation_delta_mc BIGINT NOT NULL,
  consumed_delta_mc   BIGINT NOT NULL,
  created_us          BIGINT NOT NULL,
  hash                TEXT NOT NULL,
  key_hash            BIGINT,                     -- of connection_id and key: a small index finds a key for good
  CHECK (user_charge_mc = provider_cost_mc + svc_fee_mc + dev_margin_mc),
  CHECK (type <> 'spend' OR user_charge_mc IS NOT NULL),
  CHECK (status <> 'settled' OR type <> 'spend' OR (provider_cost_mc >= 0 AND dev_margin_mc >= 0 AND user_charge_mc >= 0)),
  CHECK ((status = 'reversed') = (reversal_of IS NOT NULL))
);
CREATE UNIQUE INDEX ledger_chain ON ledger (account_id, seq);
CREATE INDEX ledger_key ON ledger (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX ledger_reversal ON ledger (reversal_of) WHERE reversal_of IS NOT NULL;

-- Answers, kept 7 days for replays: what the provider said; the money comes from the ledger row.
CREATE TABLE answers (
  request_id TEXT PRIMARY KEY,
  encoding   TEXT NOT NULL,                       -- raw or s2
  body       BYTEA NOT NULL,
  created_us BIGINT NOT NULL
);

-- Checkpoints of streams that run longer than a second, for other nodes and for recovery.
CREATE TABLE chunks (
  request_id TEXT NOT NULL,
  attempt    BIGINT NOT NULL,
  n          BIGINT NOT NULL,
  body       BYTEA NOT NULL,
  PRIMARY KEY (request_id, attempt, n)
);

-- What limits count, one row per subject: an app's spend, a free pool, a feature's calls.
CREATE TABLE windows (
  subject TEXT PRIMARY KEY,
  buckets TEXT NOT NULL,                          -- "bucket:count …", what is settled
  held    BIGINT NOT NULL CHECK (held >= 0),      -- what calls in flight may still add, as holds.counts say
  told    BIGINT NOT NULL CHECK (told IN (0, 1))  -- the app was told that the limit is reached
)
-- sqlite: WITHOUT ROWID
;

-- The day's totals, per connection, feature and model.
CREATE TABLE rollups (
  day              TEXT NOT NULL,                 -- 2026-11-21, UTC
  connection_id    TEXT NOT NULL,
  feature          TEXT NOT NULL,                 -- '' = none, 'other' = not registered
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

-- Refused calls, for receipts. Not money: nothing else reads them.
CREATE TABLE refusals (
  request_id    TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  status        BIGINT NOT NULL,
  code          TEXT NOT NULL,
  message       TEXT NOT NULL,
  details       TEXT NOT NULL,                    -- JSON object
  feature       TEXT,
  model         TEXT,
  created_us    BIGINT NOT NULL
);
CREATE INDEX refusals_created ON refusals (created_us);

-- The outbox: what apps are told, written with the change that it reports (spec §6).
CREATE TABLE events (
  id            TEXT PRIMARY KEY,
  type          TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  connection_id TEXT,
  seq           BIGINT NOT NULL,
  data          TEXT NOT NULL,                    -- JSON object
  created_us    BIGINT NOT NULL
);
CREATE INDEX events_app ON events (app_id, id);
CREATE UNIQUE INDEX events_seq ON events (connection_id, seq) WHERE connection_id IS NOT NULL;

-- What users are told by mail, written with the change that it reports.
CREATE TABLE notices (
  id            TEXT PRIMARY KEY,
  kind          TEXT NOT NULL,
  account_id    TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  data          TEXT NOT NULL,                    -- JSON object
  created_us    BIGINT NOT NULL,
  passed        BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX notices_new ON notices (id) WHERE passed = 0;

-- Rows on their way to PostgreSQL: a batch sends them as one array of such a type
-- for each table. They are not the tables' own types, so that a column can be added
-- to a table while older nodes run.
-- postgres: CREATE TYPE key_row AS (connection_id TEXT, key TEXT, hash BIGINT);
-- postgres: CREATE TYPE balance_row AS (account_id TEXT, available_mc BIGINT, reserved_mc BIGINT, seq BIGINT, head TEXT);
-- postgres: CREATE TYPE connection_row AS (id TEXT, allocation_mc BIGINT, consumed_mc BIGINT, held_mc BIGINT, velocity_limit_mc BIGINT,
-- postgres:   status TEXT, spent TEXT, event_seq BIGINT, revoked_us BIGINT, faster BIGINT, warned_us BIGINT);
-- postgres: CREATE TYPE hold_row AS (connection_id TEXT, key TEXT, request_id TEXT, fingerprint TEXT, state TEXT, attempt BIGINT, node_id TEXT, claim TEXT,
-- postgres:   amount_mc BIGINT, account_id TEXT, app_id TEXT, feature TEXT, bucket TEXT, model TEXT, terms TEXT, created_us BIGINT, paid_by TEXT, counts TEXT);
-- postgres: CREATE TYPE ledger_row AS (id TEXT, account_id TEXT, seq BIGINT, type TEXT, status TEXT, reversal_of TEXT, reason TEXT, connection_id TEXT,
-- postgres:   app_id TEXT, feature TEXT, bucket TEXT, model TEXT, key TEXT, fingerprint TEXT, paid_by TEXT, settlement TEXT, terms TEXT, usage TEXT,
-- postgres:   hold_amount_mc BIGINT, provider_cost_mc BIGINT, svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT, remaining_mc BIGINT, amount_mc BIGINT,
-- postgres:   available_delta_mc BIGINT, reserved_delta_mc BIGINT, allocation_delta_mc BIGINT, consumed_delta_mc BIGINT, created_us BIGINT, hash TEXT, key_hash BIGINT);
-- postgres: CREATE TYPE answer_row AS (request_id TEXT, encoding TEXT, body BYTEA, created_us BIGINT);
-- postgres: CREATE TYPE rollup_row AS (connection_id TEXT, day TEXT, feature TEXT, model TEXT, app_id TEXT, account_id TEXT, calls BIGINT, input_tokens BIGINT,
-- postgres:   output_tokens BIGINT, provider_cost_mc BIGINT, svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT);

-- +goose Down
-- postgres: DROP TYPE rollup_row, answer_row, ledger_row, hold_row, connection_row, balance_row, key_row;
DROP TABLE notices; DROP TABLE events; DROP TABLE refusals; DROP TABLE rollups; DROP TABLE windows; DROP TABLE chunks; DROP TABLE answers; DROP TABLE ledger; DROP TABLE nodes; DROP TABLE deferred; DROP TABLE holds; DROP TABLE connections; DROP TABLE balances;
