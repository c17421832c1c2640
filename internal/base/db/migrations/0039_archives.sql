-- +goose Up

-- Years of the ledger that stand in files (decision 115). Package ledger/archive alone writes these tables. They are
-- empty on SQLite, unless the database was restored from a backup of PostgreSQL.

-- One row per file.
CREATE TABLE ledger_archives (
  year            BIGINT PRIMARY KEY,           -- UTC
  file            TEXT NOT NULL,                -- its name, without the folder
  sha256          TEXT NOT NULL,                -- of the whole file, in hexadecimal digits
  row_count       BIGINT NOT NULL CHECK (row_count > 0),
  first_id        TEXT NOT NULL,                -- of its rows, in order of their ids
  last_id         TEXT NOT NULL,
  from_id         TEXT NOT NULL,                -- bounds of the partition; '' = from the first row on
  to_id           TEXT NOT NULL,
  last_created_us BIGINT NOT NULL,              -- of its rows; a call may end in the year after
  archived_us     BIGINT NOT NULL
);

-- The keys of archived calls, which stay used. key_hash is that of the ledger.
CREATE TABLE ledger_archived_keys (
  key_hash      BIGINT NOT NULL,
  connection_id TEXT NOT NULL,
  PRIMARY KEY (key_hash, connection_id)
)
-- sqlite: WITHOUT ROWID
;

-- Where the archived part of each account's hash chain ends.
CREATE TABLE ledger_archived_accounts (
  account_id      TEXT NOT NULL,
  year            BIGINT NOT NULL,
  last_seq        BIGINT NOT NULL,
  last_hash       TEXT NOT NULL,                -- of the row last_seq
  last_created_us BIGINT NOT NULL,
  PRIMARY KEY (account_id, year)
)
-- sqlite: WITHOUT ROWID
;

-- The partitions come in three steps, each in a transaction of its own, so that calls wait for none that reads rows.
-- The first names the bound below which all rows of a table are: it will be that of the first partition. A table
-- without rows gets the first year of Purser, so that a restored database has a partition for each of its years.
-- +goose StatementBegin
-- postgres: CREATE FUNCTION id_floor(prefix TEXT, year INT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
-- postgres:   SELECT prefix || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz',
-- postgres:     1 + ((ms * 4 >> (45 - 5 * i)) & 31)::int, 1), '' ORDER BY i) || repeat('0', 16)
-- postgres:   FROM generate_series(0, 9) AS i,
-- postgres:     (SELECT (extract(epoch FROM make_timestamptz(year, 1, 1, 0, 0, 0, 'UTC')) * 1000)::bigint AS ms) AS t $$;
-- +goose StatementEnd
-- +goose StatementBegin
-- postgres: DO $$
-- postgres: DECLARE t RECORD; has_rows BOOLEAN; bound_year INT;
-- postgres: BEGIN
-- postgres:   FOR t IN SELECT * FROM (VALUES ('ledger', 'id', 'led_'), ('answers', 'request_id', 'req_'),
-- postgres:     ('deliveries', 'id', 'whd_')) AS v(name, key, prefix) LOOP
-- postgres:     EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', t.name) INTO has_rows;
-- postgres:     bound_year := 2027;
-- postgres:     IF has_rows THEN
-- postgres:       bound_year := greatest(2027, 1 + extract(year FROM clock_timestamp() AT TIME ZONE 'UTC')::int);
-- postgres:     END IF;
-- postgres:     EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%I < %L) NOT VALID', t.name,
-- postgres:       t.name || '_before_' || bound_year, t.key, id_floor(t.prefix, bound_year));
-- postgres:   END LOOP;
-- postgres: END $$;
-- +goose StatementEnd
