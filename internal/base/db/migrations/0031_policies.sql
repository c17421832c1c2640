-- +goose Up

-- What the operator has set for all calls: the fee, free credit, bounds of the sandbox, thresholds of risk. Each version
-- holds from a time on until the next one, on every node alike (decision 096). Package gateway/policies alone writes it.
CREATE TABLE policies (
  id         TEXT PRIMARY KEY,          -- pol_…
  from_us    BIGINT NOT NULL UNIQUE,    -- 0 = the first
  settings   TEXT NOT NULL,             -- JSON: what changes, by the names that purser.yaml has for the settings
  actor      TEXT NOT NULL,             -- an account, the address that sent the operator's token, or "settings"
  reason     TEXT NOT NULL,
  created_us BIGINT NOT NULL
);

-- What all nodes must have alike, by name and as digests: JSON, '' = the node does not say (decision 096).
ALTER TABLE nodes ADD COLUMN settings TEXT NOT NULL DEFAULT '';
