-- +goose Up
-- People. Test accounts (sandbox = 1) belong to the developer in owner_id (spec §2, Account).
CREATE TABLE accounts (
  id            TEXT PRIMARY KEY,
  email         TEXT NOT NULL UNIQUE,          -- lower case
  password_hash TEXT NOT NULL,
  sandbox       BIGINT NOT NULL DEFAULT 0 CHECK (sandbox IN (0, 1)),
  developer     BIGINT NOT NULL DEFAULT 0 CHECK (developer IN (0, 1)),
  operator      BIGINT NOT NULL DEFAULT 0 CHECK (operator IN (0, 1)),
  owner_id      TEXT REFERENCES accounts(id),
  created_us    BIGINT NOT NULL,
  CHECK ((sandbox = 1) = (owner_id IS NOT NULL))
);
CREATE INDEX accounts_owner ON accounts (owner_id) WHERE owner_id IS NOT NULL;

-- Browser sessions.
CREATE TABLE sessions (
  token_hash TEXT PRIMARY KEY,
  data       BYTEA NOT NULL,
  expires_us BIGINT NOT NULL
);

-- Apps: OAuth clients (spec §2, App). Lists are JSON arrays of strings.
CREATE TABLE apps (
  id                 TEXT PRIMARY KEY,
  owner_id           TEXT NOT NULL REFERENCES accounts(id),
  name               TEXT NOT NULL,
  client_id          TEXT NOT NULL UNIQUE,
  secret_hash        TEXT NOT NULL,
  redirect_uris      TEXT NOT NULL,
  allowed_models     TEXT NOT NULL,
  default_max_tokens BIGINT CHECK (default_max_tokens > 0),
  tier               TEXT NOT NULL CHECK (tier IN ('sandbox', 'limited-live', 'full-live')),
  provider_mode      TEXT NOT NULL CHECK (provider_mode IN ('mock', 'live')),
  test_allowlist     TEXT NOT NULL,
  dev_margin_ppm     BIGINT NOT NULL CHECK (dev_margin_ppm >= 0),
  suspended          BIGINT NOT NULL DEFAULT 0 CHECK (suspended IN (0, 1)),
  created_us         BIGINT NOT NULL
);
CREATE INDEX apps_owner ON apps (owner_id);

-- Features: labels with optional guardrails (spec §2, Feature).
CREATE TABLE features (
  app_id               TEXT NOT NULL REFERENCES apps(id),
  slug                 TEXT NOT NULL,
  display_name         TEXT NOT NULL,
  description          TEXT NOT NULL,
  max_cost_per_call_mc BIGINT CHECK (max_cost_per_call_mc >= 0),
  max_tokens           BIGINT CHECK (max_tokens > 0),
  rate_limit           BIGINT CHECK (rate_limit > 0),
  default_model        TEXT,
  dev_margin_ppm       BIGINT CHECK (dev_margin_ppm >= 0),
  created_us           BIGINT NOT NULL,
  PRIMARY KEY (app_id, slug)
);

-- Authorization codes, single use (spec §5, rule 3). Only the hash is stored.
CREATE TABLE oauth_codes (
  hash              TEXT PRIMARY KEY,
  app_id            TEXT NOT NULL REFERENCES apps(id),
  account_id        TEXT NOT NULL REFERENCES accounts(id),
  redirect_uri      TEXT NOT NULL,
  challenge         TEXT NOT NULL,
  allocation_mc     BIGINT NOT NULL CHECK (allocation_mc >= 0),
  velocity_limit_mc BIGINT,
  expires_us        BIGINT NOT NULL,
  failures          BIGINT NOT NULL DEFAULT 0,
  used_us           BIGINT,
  connection_id     TEXT,
  family_id         TEXT
);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_us);

-- Tokens. A family is all tokens that came from one code; it is revoked as a whole.
CREATE TABLE oauth_tokens (
  hash          TEXT PRIMARY KEY,
  kind          TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  family_id     TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL REFERENCES apps(id),
  expires_us    BIGINT NOT NULL,
  used_us       BIGINT,             -- refresh tokens: when it was exchanged
  successor     TEXT,               -- refresh tokens: hash of the one it was exchanged for
  revoked_us    BIGINT,
  created_us    BIGINT NOT NULL
);
CREATE INDEX oauth_tokens_family ON oauth_tokens (family_id);
CREATE INDEX oauth_tokens_connection ON oauth_tokens (connection_id);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_us);

-- Answers of /oauth/token kept 60 s for a retry with the same Idempotency-Key, sealed with the key.
CREATE TABLE oauth_replays (
  app_id      TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  sealed      TEXT NOT NULL,
  expires_us  BIGINT NOT NULL,
  PRIMARY KEY (app_id, key)
);

-- +goose Down
DROP TABLE oauth_replays; DROP TABLE oauth_tokens; DROP TABLE oauth_codes; DROP TABLE features; DROP TABLE apps; DROP TABLE sessions; DROP TABLE accounts;
