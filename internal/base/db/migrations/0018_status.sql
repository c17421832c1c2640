-- +goose Up

-- How the parts of the service fared, for the operator and the public page. Written by package status.

-- What a node counted in five minutes. A node writes its row again while the five minutes run.
CREATE TABLE health (
  from_us  BIGINT NOT NULL,                     -- start of the five minutes
  service  TEXT NOT NULL,                       -- api, sign_in, payments, email, or the name of a provider
  model    TEXT NOT NULL,                       -- of a provider; '' = not one model
  node_id  TEXT NOT NULL,
  attempts BIGINT NOT NULL,                     -- calls, or samples of the node's readiness
  failures BIGINT NOT NULL,                     -- of attempts
  t0       BIGINT NOT NULL,                     -- calls that took up to 0.1 s, and so on: metrics.Limits
  t1       BIGINT NOT NULL,
  t2       BIGINT NOT NULL,
  t3       BIGINT NOT NULL,
  t4       BIGINT NOT NULL,
  t5       BIGINT NOT NULL,
  t6       BIGINT NOT NULL,
  t7       BIGINT NOT NULL,
  t8       BIGINT NOT NULL,
  t9       BIGINT NOT NULL,
  t10      BIGINT NOT NULL,
  t11      BIGINT NOT NULL,
  t12      BIGINT NOT NULL,                     -- longer than the last limit
  PRIMARY KEY (from_us, service, model, node_id)
)
-- sqlite: WITHOUT ROWID
;

-- The same of all nodes, by day. A day is summed again while its rows of health exist.
CREATE TABLE health_days (
  day       TEXT NOT NULL,                      -- UTC, as 2026-11-21
  service   TEXT NOT NULL,
  model     TEXT NOT NULL,
  attempts  BIGINT NOT NULL,
  failures  BIGINT NOT NULL,
  intervals BIGINT NOT NULL,                    -- five minutes in which something was counted
  t0        BIGINT NOT NULL,
  t1        BIGINT NOT NULL,
  t2        BIGINT NOT NULL,
  t3        BIGINT NOT NULL,
  t4        BIGINT NOT NULL,
  t5        BIGINT NOT NULL,
  t6        BIGINT NOT NULL,
  t7        BIGINT NOT NULL,
  t8        BIGINT NOT NULL,
  t9        BIGINT NOT NULL,
  t10       BIGINT NOT NULL,
  t11       BIGINT NOT NULL,
  t12       BIGINT NOT NULL,
  PRIMARY KEY (day, service, model)
)
-- sqlite: WITHOUT ROWID
;

-- What operators tell visitors about an incident.
CREATE TABLE incidents (
  id          TEXT PRIMARY KEY,                 -- inc_…
  service     TEXT NOT NULL,                    -- as in health; '' = the whole service
  impact      TEXT NOT NULL CHECK (impact IN ('none', 'degraded', 'down')),
  title       TEXT NOT NULL,
  text        TEXT NOT NULL,
  from_us     BIGINT NOT NULL,
  resolved_us BIGINT,                           -- NULL = it lasts
  created_us  BIGINT NOT NULL
);
