-- +goose Up

-- A client secret that was replaced with an overlap still works for a while. Written by package apps.
ALTER TABLE apps ADD COLUMN previous_secret_hash TEXT;          -- NULL = none
ALTER TABLE apps ADD COLUMN previous_secret_until_us BIGINT;    -- when the previous secret stops working
