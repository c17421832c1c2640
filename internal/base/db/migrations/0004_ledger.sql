-- +goose Up

-- Money: balances, connections, holds and the ledger.

-- Balances of accounts (contract §2).
CREATE TABLE balances (
  account_id   TEXT PRIMARY KEY,
  sandbox      BIGINT NOT NULL CHECK (sandbox IN (0, 1)), -- of a test account
  available_mc BIGINT NOT NULL,
  -- 1 = a payment was reversed: only then may available_mc be negative
  disputed     BIGINT NOT NULL DEFAULT 0 CHECK (disputed IN (0, 1)),
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
  -- factor of the usual spend that the user allows (decision 025)
  faster_spend      BIGINT NOT NULL DEFAULT 1 CHECK (faster_spend BETWEEN 1 AND 3),
  warned_us         BIGINT NOT NULL DEFAULT 0,  -- when connection.risk_warning was last sent
  event_seq         BIGINT NOT NULL,            -- seq of its newest event
  created_us        BIGINT NOT NULL,
  revoked_us        BIGINT,
  -- Why a connection is frozen (decision 025): risk, user, payment or operator, and the operator's reason in
  -- words. '' = it is not frozen.
  frozen_by         TEXT NOT NULL DEFAULT '' CHECK (frozen_by IN ('', 'risk', 'user', 'payment', 'operator')),
  frozen_reason     TEXT NOT NULL DEFAULT '',
  -- What of spent the risk thresholds leave out, because a resume has forgiven it: "bucket:amount …".
  forgiven          TEXT NOT NULL DEFAULT '',
  -- What is left of the budgets of a connection's children, and what their calls hold of held_mc.
  delegated_mc      BIGINT NOT NULL DEFAULT 0,
  child_held_mc     BIGINT NOT NULL DEFAULT 0,
  -- When the user decided on the limits that a connection has, and when the user approved what it was last
  -- connected by: an approval that is older than the limits leaves them, and a margin that rose after the approval
  -- is told to the user (decision 141).
  limits_us         BIGINT NOT NULL DEFAULT 0,
  approved_us       BIGINT NOT NULL DEFAULT 0,
  CHECK (consumed_mc + held_mc <= allocation_mc),
  CHECK ((status = 'revoked') = (revoked_us IS NOT NULL))
)
-- sqlite: WITHOUT ROWID
;
CREATE UNIQUE INDEX connections_live ON connections (app_id, account_id) WHERE status <> 'revoked';
CREATE INDEX connections_app ON connections (app_id, id);
CREATE INDEX connections_account ON connections (account_id, id);
CREATE INDEX connections_revoked ON connections (revoked_us, app_id) WHERE revoked_us IS NOT NULL;
-- The connections that need an operator, among all that their users paused.
CREATE INDEX connections_paused ON connections (id) WHERE status = 'frozen' AND frozen_by <> 'user';

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

-- Parts of a connection's allocation that can be spent by a token of their own (decision 107). What is left of the
-- budget of one is the counter child/<id> in counters. Package ledger/store alone writes it.
CREATE TABLE children (
  id            TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  parent_id     TEXT,                           -- NULL: the connection itself gave the budget
  depth         BIGINT NOT NULL CHECK (depth BETWEEN 1 AND 4),
  label         TEXT NOT NULL,
  amount_mc     BIGINT NOT NULL CHECK (amount_mc > 0), -- as it was given
  features      TEXT NOT NULL,                  -- JSON array; empty: all of the app
  models        TEXT NOT NULL,
  key           TEXT NOT NULL,                  -- Idempotency-Key of the request that made it
  fingerprint   TEXT NOT NULL,
  token_hash    TEXT NOT NULL,
  expires_us    BIGINT NOT NULL,
  created_us    BIGINT NOT NULL,
  ended_us      BIGINT,
  ended_by      TEXT NOT NULL DEFAULT '' CHECK ((ended_by = '') = (ended_us IS NULL)),
  returned_mc   BIGINT NOT NULL DEFAULT 0 CHECK (returned_mc >= 0),
  -- The grant family of the token that made a child of the connection itself: the child ends with the family
  -- (decision 107). NULL: a child's token made it.
  family_id     TEXT,
  -- The token of a child, sealed, so that a repeated request answers the same one.
  sealed        BYTEA
);
CREATE INDEX children_connection ON children (connection_id, id);
CREATE UNIQUE INDEX children_key ON children (connection_id, key);
CREATE UNIQUE INDEX children_token ON children (token_hash);
CREATE INDEX children_parent ON children (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX children_expires ON children (expires_us) WHERE ended_us IS NULL;
-- The live children of a connection, of which there are at most 100, among all that have ended.
CREATE INDEX children_live ON children (connection_id) WHERE ended_us IS NULL;

-- Why connections are stopped (decision 123): a connection is frozen while it has a row. connections.frozen_by and
-- frozen_reason are those of the strongest cause, the one that it shows. Package ledger/store alone writes both
-- tables.
CREATE TABLE freezes (
  connection_id TEXT NOT NULL,
  cause         TEXT NOT NULL CHECK (cause IN ('risk', 'user', 'payment', 'operator')),
  -- payment: Stripe's id of the dispute, or below_zero; operator: opl_… or suspension; or ''
  subject       TEXT NOT NULL,
  actor         TEXT NOT NULL,                  -- who stopped it; '' = a rule
  reason        TEXT NOT NULL,                  -- the operator's
  since_us      BIGINT NOT NULL,
  PRIMARY KEY (connection_id, cause, subject)
)
-- sqlite: WITHOUT ROWID
;

-- Stops: calls that must end now, for the nodes that run them (decision 067). Each node reads the new rows twice a
-- second. They are deleted after a day. Written by package store.
CREATE TABLE stops (
  id            TEXT PRIMARY KEY,               -- stp_…
  connection_id TEXT NOT NULL,
  request_id    TEXT NOT NULL,                  -- req_… or rts_…; '' = all calls of the connection
  cause         TEXT NOT NULL CHECK (cause IN ('stopped', 'paused', 'revoked')),
  created_us    BIGINT NOT NULL
);
CREATE INDEX stops_request ON stops (request_id);

-- Holds: calls in flight (open), calls that are settled later from the provider's record (pending), and idempotency
-- keys whose last attempt failed. A billed call has no hold: the ledger has its key.
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
  feature_label TEXT,                           -- the feature's label in daily totals
  model         TEXT NOT NULL,
  terms         TEXT NOT NULL,                  -- JSON: price terms and token counts at the time of the hold
  created_us    BIGINT NOT NULL,
  paid_by       TEXT NOT NULL CHECK (paid_by IN ('wallet', 'free_credit')),
  reservations  TEXT NOT NULL,                  -- what it reserves in counters, "subject|unit|seconds|held …"
  PRIMARY KEY (connection_id, key)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX holds_failed ON holds (request_id) WHERE state = 'failed';
-- A hold of a failed call stays, for its key, so most rows of holds are failed ones. What looks for the few others
-- uses holds_live; who sends a failed call again without a key is found by holds_failed_fingerprint. SQLite uses an
-- index with a condition only in a query that has the same condition.
CREATE INDEX holds_live ON holds (request_id) WHERE state <> 'failed';
CREATE INDEX holds_failed_fingerprint ON holds (connection_id, fingerprint, created_us) WHERE state = 'failed';

-- Where the charge of each pending hold will come from. The node that moves next_us asks the provider.
CREATE TABLE deferrals (
  request_id       TEXT PRIMARY KEY,
  connection_id    TEXT NOT NULL,
  key              TEXT NOT NULL,               -- idempotency key
  provider         TEXT NOT NULL,
  record           TEXT NOT NULL,               -- the provider's id of the answer; '' = not known
  tries            BIGINT NOT NULL CHECK (tries >= 0),
  since_us         BIGINT NOT NULL,             -- when the call was deferred
  next_us          BIGINT NOT NULL,             -- when to ask next
  first_byte_ms    BIGINT,                      -- The same of a call whose charge follows later.
  duration_ms      BIGINT,                      -- The same of a call whose charge follows later.
  finish_reason    TEXT,                        -- The same of a call whose charge follows later.
  -- Output tokens that a pending call has delivered, for an estimate (decision 031); 0 = deferred by an earlier
  -- version.
  delivered_tokens BIGINT NOT NULL DEFAULT 0
);

-- The ledger: one row per movement of money, in one hash chain per account. Rows are never changed or deleted. The
-- types spend and topup are the contract's; connect, cap, revoke and release move money between available and
-- reserved.
CREATE TABLE ledger (
-- sqlite:   id                  TEXT PRIMARY KEY,   -- led_…
-- postgres:   id                  TEXT COLLATE "C" PRIMARY KEY,
  account_id          TEXT NOT NULL,
  seq                 BIGINT NOT NULL,          -- 1, 2, … per account
  type                TEXT NOT NULL CHECK (type = 'spend' OR type = 'topup' OR type = 'connect'
    OR type = 'cap' OR type = 'revoke' OR type = 'release'),
  status              TEXT NOT NULL CHECK (status = 'settled' OR status = 'reversed' OR status = 'pending'),
  reversal_of         TEXT,                     -- reversals: the row that it takes back
  reason              TEXT,
  connection_id       TEXT,
  app_id              TEXT,
  feature             TEXT,                     -- the slug as the app sent it
  feature_label       TEXT,                     -- the feature's label in daily totals: the slug, or other
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
  -- from the hold to the first part of a streamed response, rounded up
  first_byte_ms       BIGINT,
  duration_ms         BIGINT,
  finish_reason       TEXT,
  CHECK (user_charge_mc = provider_cost_mc + svc_fee_mc + dev_margin_mc),
  CHECK (type <> 'spend' OR user_charge_mc IS NOT NULL),
  CHECK (status <> 'settled' OR type <> 'spend' OR (provider_cost_mc >= 0 AND dev_margin_mc >= 0
    AND user_charge_mc >= 0)),
  CHECK ((status = 'reversed') = (reversal_of IS NOT NULL))
)
-- postgres: PARTITION BY RANGE (id)
;
-- sqlite: CREATE UNIQUE INDEX ledger_chain ON ledger (account_id, seq);
CREATE INDEX ledger_key ON ledger (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX ledger_reversal ON ledger (reversal_of) WHERE reversal_of IS NOT NULL;
CREATE INDEX ledger_app ON ledger (app_id, id) WHERE type = 'spend';
CREATE INDEX ledger_chargebacks ON ledger (app_id, created_us) WHERE reason = 'chargeback';
-- The timeline of an account, for operators: its ledger rows but calls, and pauses of its connections.
CREATE INDEX ledger_moves ON ledger (account_id, created_us) WHERE type <> 'spend' OR status = 'reversed';
-- Reversed calls of an app, of which the margin has come back.
CREATE INDEX ledger_reversed ON ledger (app_id, created_us) WHERE type = 'spend' AND status = 'reversed';
-- postgres: CREATE TABLE ledger_y2026 PARTITION OF ledger
-- postgres:   FOR VALUES FROM (MINVALUE) TO ('led_06hcx2ym000000000000000000');
-- postgres: CREATE TABLE ledger_default PARTITION OF ledger DEFAULT;
-- postgres: CREATE UNIQUE INDEX ledger_y2026_chain ON ledger_y2026 (account_id, seq);
-- postgres: CREATE UNIQUE INDEX ledger_default_chain ON ledger_default (account_id, seq);

-- What operators recorded as paid to users otherwise than by their cards, once for each id, so that a command whose
-- answer was lost can be repeated (decision 124). Kept when an account is closed. Written by package topups.
CREATE TABLE settlements (
  id         TEXT PRIMARY KEY,                  -- stl_…
  account_id TEXT NOT NULL REFERENCES accounts (id),
  amount_mc  BIGINT NOT NULL CHECK (amount_mc > 0),
  reason     TEXT NOT NULL,
  created_us BIGINT NOT NULL
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX settlements_account ON settlements (account_id);

-- Goodwill credits: money that the operator gives an account without a payment (decision 095). What happened to
-- each is appended and never changed; a credit's state is the fold of its records. Each record has a ledger row of
-- type topup, which has the reason. Written by package ledger, together with these rows.
CREATE TABLE goodwill_records (
  goodwill_id TEXT NOT NULL,                    -- gwc_…
  n           BIGINT NOT NULL CHECK (n > 0),    -- 1, 2, … per credit
  kind        TEXT NOT NULL CHECK (kind IN ('given', 'withdrawn')),
  account_id  TEXT NOT NULL,
  amount_mc   BIGINT NOT NULL CHECK (amount_mc > 0), -- withdrawn: the part that was taken back
  entry_id    TEXT NOT NULL UNIQUE,             -- the ledger row
  reason      TEXT NOT NULL CHECK (reason <> ''),
  created_us  BIGINT NOT NULL,
  PRIMARY KEY (goodwill_id, n),
  CHECK ((kind = 'given') = (n = 1))
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX goodwill_records_account ON goodwill_records (account_id, goodwill_id) WHERE n = 1;
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER goodwill_records_no_update BEFORE UPDATE ON goodwill_records
-- sqlite: BEGIN SELECT RAISE(ABORT, 'goodwill records are append-only'); END;
-- postgres: CREATE FUNCTION goodwill_records_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
-- postgres: BEGIN RAISE EXCEPTION 'goodwill records are append-only'; END $$;
-- +goose StatementEnd
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER goodwill_records_no_delete BEFORE DELETE ON goodwill_records
-- sqlite: BEGIN SELECT RAISE(ABORT, 'goodwill records are append-only'); END;
-- postgres: CREATE TRIGGER goodwill_records_no_change BEFORE DELETE OR UPDATE OR TRUNCATE ON goodwill_records
-- postgres: FOR EACH STATEMENT EXECUTE FUNCTION goodwill_records_are_append_only();
-- +goose StatementEnd

-- Refunds of calls by the app's developer (decision 106): who paid what the user got back. Appended in the
-- transaction of the reversal, and never changed. Written by package ledger.
CREATE TABLE call_refunds (
  app_id         TEXT NOT NULL,
  n              BIGINT NOT NULL CHECK (n > 0), -- 1, 2, … per app
  entry_id       TEXT NOT NULL UNIQUE,          -- the spend row of the call: each is refunded once
  reversal_id    TEXT NOT NULL UNIQUE,          -- the row that reverses it
  developer_id   TEXT NOT NULL,                 -- the account that pays balance_mc
  -- 1 = a test account's call: no money is real, nothing is paid
  sandbox        BIGINT NOT NULL CHECK (sandbox IN (0, 1)),
  margin_mc      BIGINT NOT NULL CHECK (margin_mc >= 0), -- paid from the margin that the app has earned
  balance_mc     BIGINT NOT NULL CHECK (balance_mc >= 0), -- paid from the developer's balance
  debit_id       TEXT UNIQUE,                   -- the ledger row that takes balance_mc
  margin_used_mc BIGINT NOT NULL,               -- Σ (margin_mc − the margin of the call) of the app so far
  earned_day     TEXT NOT NULL,                 -- the app's margin of the days before this one, which are over,
  earned_mc      BIGINT NOT NULL,               -- so that the next refund sums from there
  reason         TEXT NOT NULL CHECK (reason <> ''),
  created_us     BIGINT NOT NULL,
  PRIMARY KEY (app_id, n),
  CHECK ((balance_mc > 0) = (debit_id IS NOT NULL)),
  CHECK (sandbox = 0 OR margin_mc + balance_mc = 0)
)
-- sqlite: WITHOUT ROWID
;
-- The refunds of an app's calls up to a time.
CREATE INDEX call_refunds_created ON call_refunds (app_id, created_us, n);
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER call_refunds_no_update BEFORE UPDATE ON call_refunds
-- sqlite: BEGIN SELECT RAISE(ABORT, 'refunds of calls are append-only'); END;
-- postgres: CREATE FUNCTION call_refunds_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
-- postgres: BEGIN RAISE EXCEPTION 'refunds of calls are append-only'; END $$;
-- +goose StatementEnd
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER call_refunds_no_delete BEFORE DELETE ON call_refunds
-- sqlite: BEGIN SELECT RAISE(ABORT, 'refunds of calls are append-only'); END;
-- postgres: CREATE TRIGGER call_refunds_no_change BEFORE DELETE OR UPDATE OR TRUNCATE ON call_refunds
-- postgres: FOR EACH STATEMENT EXECUTE FUNCTION call_refunds_are_append_only();
-- +goose StatementEnd

-- Attempts that a provider may have accepted and that nobody is billed for, with what they have cost the operator
-- at least (decision 133). Counters count them for 24 hours; rows are deleted after a month. Written by package
-- ledger.
CREATE TABLE unbilled_attempts (
  request_id       TEXT NOT NULL,
  attempt          BIGINT NOT NULL CHECK (attempt > 0),
  connection_id    TEXT NOT NULL,
  app_id           TEXT NOT NULL,
  account_id       TEXT NOT NULL,
  model            TEXT NOT NULL,
  provider_cost_mc BIGINT NOT NULL CHECK (provider_cost_mc > 0),
  created_us       BIGINT NOT NULL,
  PRIMARY KEY (request_id, attempt)
);
CREATE INDEX unbilled_attempts_created ON unbilled_attempts (created_us);

-- Counters of limits, one row per subject: an app's spend, a free pool, the calls of a feature.
CREATE TABLE counters (
  subject        TEXT PRIMARY KEY,
  buckets        TEXT NOT NULL,                 -- what is settled, "bucket:count …"
  held           BIGINT NOT NULL CHECK (held >= 0), -- what calls in flight have reserved (holds.reservations)
  limit_reported BIGINT NOT NULL CHECK (limit_reported IN (0, 1)) -- 1 = the event "limit reached" was sent
)
-- sqlite: WITHOUT ROWID
;
-- The free pools of a month: 'free/', the app, '/' and the month.
CREATE INDEX counters_pools ON counters (substr(subject, length(subject) - 6), subject)
  WHERE subject LIKE 'free/%/____-__';

-- Daily totals per connection, feature label and model.
CREATE TABLE daily_totals (
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
  -- What the provider's cache did for the calls of a day. Days before this migration have 0.
  cached_tokens    BIGINT NOT NULL DEFAULT 0,
  cache_saved_mc   BIGINT NOT NULL DEFAULT 0,   -- of the charges; negative = writing cost more
  PRIMARY KEY (connection_id, day, feature, model)
)
-- sqlite: WITHOUT ROWID
;
-- sqlite: CREATE INDEX daily_totals_app ON daily_totals (app_id, day);
-- sqlite: CREATE INDEX daily_totals_day ON daily_totals (day);
-- Daily totals are read in steps, each of which goes on after the last row of the one before. An index of SQLite
-- has the table's key behind its own columns.
-- postgres: CREATE INDEX daily_totals_app_steps ON daily_totals (app_id, day, connection_id, feature, model);
-- postgres: CREATE INDEX daily_totals_day_steps ON daily_totals (day, connection_id, feature, model);

-- Sums of the daily totals by app, for days that are over: what an app's calls brought in a year is read without
-- those of its connections. Written by package ledger.
CREATE TABLE app_days (
  app_id           TEXT NOT NULL,
  sandbox          BIGINT NOT NULL CHECK (sandbox IN (0, 1)), -- 1 = of test accounts
  day              TEXT NOT NULL,               -- UTC, as 2026-11-21
  feature          TEXT NOT NULL,               -- as in daily_totals
  model            TEXT NOT NULL,
  calls            BIGINT NOT NULL,
  input_tokens     BIGINT NOT NULL,
  cached_tokens    BIGINT NOT NULL,             -- of input_tokens
  output_tokens    BIGINT NOT NULL,
  provider_cost_mc BIGINT NOT NULL,
  svc_fee_mc       BIGINT NOT NULL,
  dev_margin_mc    BIGINT NOT NULL,
  user_charge_mc   BIGINT NOT NULL,
  cache_saved_mc   BIGINT NOT NULL,
  PRIMARY KEY (app_id, sandbox, day, feature, model)
)
-- sqlite: WITHOUT ROWID
;

-- Days before this one are in app_days, and those from it on are not; '' = none are.
CREATE TABLE app_days_head (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  day TEXT NOT NULL
);
INSERT INTO app_days_head (one, day) VALUES (1, '');

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
  created_us    BIGINT NOT NULL,
  -- From the arrival of a refused call to its refusal, in milliseconds, rounded up; NULL = a row of an earlier
  -- version.
  duration_ms   BIGINT
);
CREATE INDEX refusals_app ON refusals (app_id, request_id);
CREATE INDEX refusals_created ON refusals (created_us);

-- The rows of the writer's statements (decision 015).
-- postgres: CREATE TYPE key_row AS (
-- postgres:   connection_id TEXT, key TEXT, hash BIGINT
-- postgres: );
-- postgres: CREATE TYPE balance_row AS (
-- postgres:   account_id TEXT, available_mc BIGINT, reserved_mc BIGINT, seq BIGINT, head TEXT
-- postgres: );
-- postgres: CREATE TYPE connection_row AS (
-- postgres:   id TEXT, allocation_mc BIGINT, consumed_mc BIGINT, held_mc BIGINT, velocity_limit_mc BIGINT,
-- postgres:   status TEXT, spent TEXT, event_seq BIGINT, revoked_us BIGINT, faster_spend BIGINT, warned_us BIGINT
-- postgres: );
-- postgres: CREATE TYPE hold_row AS (
-- postgres:   connection_id TEXT, key TEXT, request_id TEXT, fingerprint TEXT, state TEXT, attempt BIGINT,
-- postgres:   node_id TEXT, claim TEXT, amount_mc BIGINT, account_id TEXT, app_id TEXT, feature TEXT,
-- postgres:   feature_label TEXT, model TEXT, terms TEXT, created_us BIGINT, paid_by TEXT, reservations TEXT
-- postgres: );
-- postgres: CREATE TYPE stored_response_row AS (
-- postgres:   request_id TEXT, encoding TEXT, body BYTEA, created_us BIGINT
-- postgres: );
-- postgres: CREATE TYPE daily_total_row AS (
-- postgres:   connection_id TEXT, day TEXT, feature TEXT, model TEXT, app_id TEXT, account_id TEXT, calls BIGINT,
-- postgres:   input_tokens BIGINT, cached_tokens BIGINT, output_tokens BIGINT, provider_cost_mc BIGINT,
-- postgres:   svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT, cache_saved_mc BIGINT
-- postgres: );
-- postgres: CREATE TYPE ledger_row AS (
-- postgres:   id TEXT, account_id TEXT, seq BIGINT, type TEXT, status TEXT, reversal_of TEXT, reason TEXT,
-- postgres:   connection_id TEXT, app_id TEXT, feature TEXT, feature_label TEXT, model TEXT, key TEXT,
-- postgres:   fingerprint TEXT, paid_by TEXT, settlement TEXT, terms TEXT, usage TEXT, hold_amount_mc BIGINT,
-- postgres:   provider_cost_mc BIGINT, svc_fee_mc BIGINT, dev_margin_mc BIGINT, user_charge_mc BIGINT,
-- postgres:   remaining_mc BIGINT, amount_mc BIGINT, available_delta_mc BIGINT, reserved_delta_mc BIGINT,
-- postgres:   allocation_delta_mc BIGINT, consumed_delta_mc BIGINT, created_us BIGINT, hash TEXT,
-- postgres:   key_hash BIGINT, first_byte_ms BIGINT, duration_ms BIGINT, finish_reason TEXT
-- postgres: );
