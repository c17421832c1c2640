-- +goose Up

-- The weekly summary of an account's spend, by email.
ALTER TABLE accounts ADD COLUMN digest BIGINT NOT NULL DEFAULT 1 CHECK (digest IN (0, 1)); -- 1 = wants it

-- How far the summaries of a week are queued. The node that moves after_account queues those of the accounts up to it, in
-- the same transaction. Written by package notices.
CREATE TABLE digest_runs (
  week          TEXT PRIMARY KEY,               -- its Monday, UTC: 2026-11-16
  after_account TEXT NOT NULL,                  -- accounts up to this id are done; '' = none
  done          BIGINT NOT NULL CHECK (done IN (0, 1)) -- 1 = all accounts are done
);
