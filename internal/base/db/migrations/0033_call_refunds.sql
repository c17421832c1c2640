-- +goose Up

-- Refunds of calls by the app's developer (decision 106): who paid what the user got back. Appended in the transaction of the reversal, and never changed. Written by package ledger.
CREATE TABLE call_refunds (
  app_id          TEXT NOT NULL,
  n               BIGINT NOT NULL CHECK (n > 0),  -- 1, 2, … per app
  entry_id        TEXT NOT NULL UNIQUE,           -- the spend row of the call: each is refunded once
  reversal_id     TEXT NOT NULL UNIQUE,           -- the row that reverses it
  developer_id    TEXT NOT NULL,                  -- the account that pays balance_mc
  sandbox         BIGINT NOT NULL CHECK (sandbox IN (0, 1)), -- 1 = a test account's call: no money is real, nothing is paid
  margin_mc       BIGINT NOT NULL CHECK (margin_mc >= 0),  -- paid from the margin that the app has earned
  balance_mc      BIGINT NOT NULL CHECK (balance_mc >= 0), -- paid from the developer's balance
  debit_id        TEXT UNIQUE,                    -- the ledger row that takes balance_mc
  margin_used_mc  BIGINT NOT NULL,                -- Σ (margin_mc − the margin of the call) of the app so far
  earned_day      TEXT NOT NULL,                  -- the app's margin of the days before this one, which are over,
  earned_mc       BIGINT NOT NULL,                -- so that the next refund sums from there
  reason          TEXT NOT NULL CHECK (reason <> ''),
  created_us      BIGINT NOT NULL,
  PRIMARY KEY (app_id, n),
  CHECK ((balance_mc > 0) = (debit_id IS NOT NULL)),
  CHECK (sandbox = 0 OR margin_mc + balance_mc = 0)
)
-- sqlite: WITHOUT ROWID
;
-- +goose StatementBegin
-- sqlite: CREATE TRIGGER call_refunds_no_update BEFORE UPDATE ON call_refunds BEGIN SELECT RAISE(ABORT, 'refunds of calls are append-only'); END;
-- sqlite: CREATE TRIGGER call_refunds_no_delete BEFORE DELETE ON call_refunds BEGIN SELECT RAISE(ABORT, 'refunds of calls are append-only'); END;
-- postgres: CREATE FUNCTION call_refunds_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refunds of calls are append-only'; END $$;
-- postgres: CREATE TRIGGER call_refunds_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON call_refunds FOR EACH STATEMENT EXECUTE FUNCTION call_refunds_are_append_only();
-- +goose StatementEnd
