-- +goose Up

-- The price lists that nodes used, so that an operator can compare two versions. A node writes the row of its list
-- when it first uses it. Written by package operatorpages.
CREATE TABLE price_lists (
  version  TEXT PRIMARY KEY,                    -- as in the price terms of ledger rows
  first_us BIGINT NOT NULL,                     -- when a node first used it
  models   BIGINT NOT NULL,                     -- number of models
  lines    TEXT NOT NULL                        -- JSON array: the prices of each model, period and step
);
CREATE INDEX price_lists_first ON price_lists (first_us);
