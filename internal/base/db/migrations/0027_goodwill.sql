-- +goose Up

-- Goodwill credits: money that the operator gives an account without a payment (decision 095). What happened to each is
-- appended and never changed; a credit's state is the fold of its records. Each record has a ledger row of type topup,
-- which has the reason. Written by package ledger, together with these rows.
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
-- sqlite: CREATE TRIGGER goodwill_records_no_update BEFORE UPDATE ON goodwill_records BEGIN SELECT RAISE(ABORT, 'goodwill records are append-only'); END;
-- sqlite: CREATE TRIGGER goodwill_records_no_delete BEFORE DELETE ON goodwill_records BEGIN SELECT RAISE(ABORT, 'goodwill records are append-only'); END;
-- postgres: CREATE FUNCTION goodwill_records_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'goodwill records are append-only'; END $$;
-- postgres: CREATE TRIGGER goodwill_records_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON goodwill_records FOR EACH STATEMENT EXECUTE FUNCTION goodwill_records_are_append_only();
-- +goose StatementEnd
