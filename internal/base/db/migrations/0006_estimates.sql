-- +goose Up
-- How well the input of calls was estimated, per model; package estimates says what
-- the numbers mean. Each node keeps its own and saves them here, the last one wins:
-- they are where a node begins, and no money depends on them.
CREATE TABLE estimates (
  model     TEXT PRIMARY KEY,
  calls     BIGINT NOT NULL CHECK (calls >= 0),
  mean_ppm  BIGINT NOT NULL CHECK (mean_ppm >= 0),
  telling   BIGINT NOT NULL CHECK (telling >= 0),
  max_ppm   BIGINT NOT NULL CHECK (max_ppm >= 0),
  prior_ppm BIGINT NOT NULL CHECK (prior_ppm >= 0)
);

-- +goose Down
DROP TABLE estimates;
