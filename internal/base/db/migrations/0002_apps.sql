-- +goose Up

-- Apps: who may do what, and what users have allowed.

-- Apps: OAuth clients (contract §2). Lists are JSON arrays of strings. A suspension by the developer (suspended)
-- and one by the service (suspension_…) are separate: lifting one leaves the other. Written by package apps.
CREATE TABLE apps (
  id                       TEXT PRIMARY KEY,    -- app_…
  owner_id                 TEXT NOT NULL REFERENCES accounts(id),
  name                     TEXT NOT NULL,
  client_id                TEXT NOT NULL UNIQUE,
  secret_hash              TEXT NOT NULL,       -- of the client secret
  redirect_uris            TEXT NOT NULL,       -- list
  allowed_models           TEXT NOT NULL,       -- list; empty = all
  default_max_tokens       BIGINT CHECK (default_max_tokens > 0), -- output tokens of a call
  tier                     TEXT NOT NULL CHECK (tier IN ('sandbox', 'limited-live', 'full-live')),
  provider_mode            TEXT NOT NULL CHECK (provider_mode IN ('mock', 'live')),
  test_allowlist           TEXT NOT NULL,       -- list of testers
  dev_margin_ppm           BIGINT NOT NULL CHECK (dev_margin_ppm >= 0), -- margin rate
  suspended                BIGINT NOT NULL DEFAULT 0 CHECK (suspended IN (0, 1)), -- by its developer
  suspended_us             BIGINT,              -- when its developer last suspended or resumed it
  -- by the service; NULL = not suspended
  suspension_by            TEXT CHECK (suspension_by IN ('operator', 'risk')),
  suspension_reason        TEXT,
  suspension_us            BIGINT,              -- when the service suspended it
  -- when an operator last lifted a suspension; risk rules ignore what came before
  lifted_us                BIGINT,
  created_us               BIGINT NOT NULL,
  -- A client secret that was replaced with an overlap still works for a while. Written by package apps.
  previous_secret_hash     TEXT,
  previous_secret_until_us BIGINT,
  -- Public clients run on their users' devices and use the token endpoint without a client secret (decision 065).
  client_type              TEXT NOT NULL DEFAULT 'confidential' CHECK (client_type IN ('confidential', 'public')),
  -- Whether a call that does not fit gets a lower output cap, and the lowest cap. Written by packages apps and
  -- features.
  fit                      BIGINT NOT NULL DEFAULT 0 CHECK (fit IN (0, 1)),
  fit_min_tokens           BIGINT NOT NULL DEFAULT 256 CHECK (fit_min_tokens > 0),
  -- Whether Purser marks long prefixes of the app's calls for the provider's cache (decision 071). Written by
  -- package apps.
  prompt_cache             BIGINT NOT NULL DEFAULT 1 CHECK (prompt_cache IN (0, 1)),
  -- Who stands behind an app, for the consent screen (decision 090). '' = not given. Written by package apps.
  developer_name           TEXT NOT NULL DEFAULT '',
  website_url              TEXT NOT NULL DEFAULT '',
  privacy_policy_url       TEXT NOT NULL DEFAULT '',
  support                  TEXT NOT NULL DEFAULT '',
  domain                   TEXT NOT NULL DEFAULT '',
  domain_verified_us       BIGINT NOT NULL DEFAULT 0, -- 0 = not verified
  -- Whether an app may charge for work of its own, at its own prices (decision 109).
  own_work                 BIGINT NOT NULL DEFAULT 0 CHECK (own_work IN (0, 1)),
  -- What the developer of a live app has changed and nobody has reviewed yet, as JSON; '' = nothing.
  proposed                 TEXT NOT NULL DEFAULT ''
);
CREATE INDEX apps_owner ON apps (owner_id);
CREATE INDEX apps_suspended ON apps (id) WHERE suspended = 1 OR suspension_by IS NOT NULL;

-- The logos of apps. Pages name a logo by its hash, so that browsers may cache it. Written by package apps.
CREATE TABLE app_logos (
  app_id     TEXT PRIMARY KEY REFERENCES apps(id),
  -- first 32 hexadecimal digits of SHA-256 of png; two apps may share it
  hash       TEXT NOT NULL,
  png        BYTEA NOT NULL,                    -- redrawn by us
  created_us BIGINT NOT NULL
);
CREATE INDEX app_logos_hash ON app_logos (hash);

-- The logos of such changes. Written by package apps.
CREATE TABLE app_logo_proposals (
  app_id     TEXT PRIMARY KEY REFERENCES apps(id),
  hash       TEXT NOT NULL,
  png        BYTEA NOT NULL,
  created_us BIGINT NOT NULL
);

-- Accounts that may use the console pages of an app besides the app's own account, which is always an owner and has
-- no row here (decision 088). Written by package members, as app_invitations.
CREATE TABLE app_members (
  app_id     TEXT NOT NULL REFERENCES apps(id),
  account_id TEXT NOT NULL REFERENCES accounts(id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'developer', 'viewer')),
  invited_by TEXT NOT NULL REFERENCES accounts(id),
  created_us BIGINT NOT NULL,
  PRIMARY KEY (app_id, account_id)
);
CREATE INDEX app_members_account ON app_members (account_id, app_id);

-- Invitations by email that wait for an answer. An invitation that was accepted or revoked has no row.
CREATE TABLE app_invitations (
  id         TEXT PRIMARY KEY,                  -- inv_…
  app_id     TEXT NOT NULL REFERENCES apps(id),
  email      TEXT NOT NULL,                     -- in lower case; only its account may accept
  role       TEXT NOT NULL CHECK (role IN ('owner', 'developer', 'viewer')),
  token_hash TEXT NOT NULL UNIQUE,              -- of the token in the mailed link
  invited_by TEXT NOT NULL REFERENCES accounts(id),
  created_us BIGINT NOT NULL,
  expires_us BIGINT NOT NULL,
  UNIQUE (app_id, email)
);
CREATE INDEX app_invitations_expires ON app_invitations (expires_us);
CREATE INDEX app_invitations_inviter ON app_invitations (invited_by);
CREATE INDEX app_invitations_email ON app_invitations (email);

-- Features: labels of calls with optional guardrails (contract §2). Written by package features.
CREATE TABLE features (
  app_id               TEXT NOT NULL REFERENCES apps(id),
  slug                 TEXT NOT NULL,
  display_name         TEXT NOT NULL,
  description          TEXT NOT NULL,
  max_cost_per_call_mc BIGINT CHECK (max_cost_per_call_mc >= 0),
  max_tokens           BIGINT CHECK (max_tokens > 0), -- output tokens of a call
  rate_limit           BIGINT CHECK (rate_limit > 0), -- calls in any 60 seconds, per connection
  default_model        TEXT,
  dev_margin_ppm       BIGINT CHECK (dev_margin_ppm >= 0), -- margin rate; NULL = the app's
  created_us           BIGINT NOT NULL,
  -- Whether a call that does not fit gets a lower output cap, and the lowest cap. Written by packages apps and
  -- features.
  fit                  BIGINT CHECK (fit IN (0, 1)),
  fit_min_tokens       BIGINT CHECK (fit_min_tokens > 0),
  PRIMARY KEY (app_id, slug)
);

-- Provider keys of developers, one per provider. Written by package providerkeys.
CREATE TABLE provider_keys (
  account_id TEXT NOT NULL REFERENCES accounts(id),
  provider   TEXT NOT NULL CHECK (provider IN ('openai', 'anthropic', 'google')),
  sealed     BYTEA NOT NULL,
  last4      TEXT NOT NULL,                     -- last 4 characters, for display; '' = the key is too short
  created_us BIGINT NOT NULL,                   -- when the first key was stored
  tested_us  BIGINT NOT NULL,                   -- when the provider accepted the present key
  PRIMARY KEY (account_id, provider)
);

-- Go-live requests, at most one pending per app (contract §3). Written by package golive.
CREATE TABLE golive_requests (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  from_tier  TEXT NOT NULL,
  to_tier    TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'refused')),
  reason     TEXT,                              -- refused: why
  created_us BIGINT NOT NULL,
  decided_us BIGINT,
  -- What a review was asked about: members of the app as they were shown, as JSON. It approves these alone.
  -- A request whose tiers are equal is about a change of a live app.
  reviewed   TEXT NOT NULL DEFAULT '',
  CHECK ((status = 'pending') = (decided_us IS NULL)),
  CHECK ((status = 'refused') = (reason IS NOT NULL))
);
CREATE UNIQUE INDEX golive_pending ON golive_requests (app_id) WHERE status = 'pending';
CREATE INDEX golive_app ON golive_requests (app_id, id);
CREATE INDEX golive_queue ON golive_requests (id) WHERE status = 'pending';

-- Changes of the margin rates of live apps, by which their users pay (decision 125). feature is '' for the app's
-- own rate, name is what users read of the feature. done = 1: all users of the app have been told. Written by
-- package apps.
CREATE TABLE margin_changes (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL REFERENCES apps(id),
  feature    TEXT NOT NULL,
  name       TEXT NOT NULL,
  before_ppm BIGINT NOT NULL,
  after_ppm  BIGINT NOT NULL,
  changed_us BIGINT NOT NULL,
  done       BIGINT NOT NULL DEFAULT 0 CHECK (done IN (0, 1))
);
CREATE INDEX margin_changes_app ON margin_changes (app_id, changed_us);
CREATE INDEX margin_changes_waiting ON margin_changes (changed_us) WHERE done = 0;

-- What a user of an app has been told of them: the changes up to seen_us, the last email at mailed_us. Written by
-- package notices.
CREATE TABLE margin_notices (
  app_id     TEXT NOT NULL REFERENCES apps(id),
  account_id TEXT NOT NULL REFERENCES accounts(id),
  seen_us    BIGINT NOT NULL,
  mailed_us  BIGINT NOT NULL,
  PRIMARY KEY (app_id, account_id)
)
-- sqlite: WITHOUT ROWID
;

-- Authorization codes, for one use (contract §5, rule 3). Written by package oauth, as all oauth_ tables.
CREATE TABLE oauth_codes (
  hash              TEXT PRIMARY KEY,
  app_id            TEXT NOT NULL REFERENCES apps(id),
  account_id        TEXT NOT NULL REFERENCES accounts(id),
  redirect_uri      TEXT NOT NULL,
  challenge         TEXT NOT NULL,              -- PKCE code challenge, S256
  allocation_mc     BIGINT NOT NULL CHECK (allocation_mc >= 0), -- the spend cap that the user approved
  velocity_limit_mc BIGINT,                     -- the daily limit that the user set
  expires_us        BIGINT NOT NULL,
  failures          BIGINT NOT NULL DEFAULT 0,  -- failed exchanges
  used_us           BIGINT,                     -- when it was exchanged
  connection_id     TEXT,                       -- exchanged: the connection that it made or renewed
  family_id         TEXT,                       -- exchanged: the grant family of its tokens
  -- What a consent that is not exchanged yet stands on: who approved it, if not the account that connects, and the
  -- epoch of the approver's credentials; how many connections of the app and account were revoked by then. It ends
  -- when one of them changes.
  approver_id       TEXT,
  approver_epoch    BIGINT,
  revocations       BIGINT,
  own_work          BIGINT NOT NULL DEFAULT 0,  -- 1 = the screen named work of the app's own
  -- What the user left as the consent screen of a live connection showed it stays as it is: 1 = the spend cap, the
  -- daily limit.
  keeps_cap         BIGINT NOT NULL DEFAULT 0,
  keeps_velocity    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_us);

-- Requests of devices to connect (RFC 8628, decision 068). Written by package oauth.
CREATE TABLE oauth_device_codes (
  hash              TEXT PRIMARY KEY,           -- of the device code
  user_code_hash    TEXT NOT NULL UNIQUE,       -- of the letters that the user types
  app_id            TEXT NOT NULL REFERENCES apps(id),
  requested_mc      BIGINT NOT NULL CHECK (requested_mc >= 0), -- the spend cap that the app proposes; 0 = none
  features          TEXT NOT NULL,              -- slugs that the app names, separated by commas
  expires_us        BIGINT NOT NULL,
  interval_us       BIGINT NOT NULL,            -- the least time between two polls
  polled_us         BIGINT,                     -- the last poll
  account_id        TEXT REFERENCES accounts(id), -- approved: who connects
  allocation_mc     BIGINT NOT NULL DEFAULT 0 CHECK (allocation_mc >= 0), -- approved: the spend cap
  velocity_limit_mc BIGINT,                     -- approved: the daily limit that the user set
  decided_us        BIGINT,                     -- when the user approved or denied
  used_us           BIGINT,                     -- when it was exchanged
  connection_id     TEXT,                       -- exchanged: the connection that it made or renewed
  family_id         TEXT,                       -- exchanged: the grant family of its tokens
  approver_id       TEXT,
  approver_epoch    BIGINT,
  revocations       BIGINT,
  own_work          BIGINT NOT NULL DEFAULT 0,
  -- What the user left as the consent screen of a live connection showed it stays as it is: 1 = the spend cap, the
  -- daily limit.
  keeps_cap         BIGINT NOT NULL DEFAULT 0,
  keeps_velocity    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX oauth_device_codes_expires ON oauth_device_codes (expires_us);

-- Access and refresh tokens. A grant family is all tokens of one code, and is revoked as a whole.
CREATE TABLE oauth_tokens (
  hash          TEXT PRIMARY KEY,
  kind          TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  family_id     TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL REFERENCES apps(id),
  expires_us    BIGINT NOT NULL,
  used_us       BIGINT,                         -- refresh tokens: when it was exchanged
  successor     TEXT,                           -- refresh tokens: hash of the token it was exchanged for
  revoked_us    BIGINT,
  created_us    BIGINT NOT NULL
);
CREATE INDEX oauth_tokens_family ON oauth_tokens (family_id);
CREATE INDEX oauth_tokens_connection ON oauth_tokens (connection_id);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_us);

-- Answers of /oauth/token, kept for 60 seconds for a retry with the same Idempotency-Key (decision 035).
CREATE TABLE oauth_replays (
  app_id      TEXT NOT NULL,
  key         TEXT NOT NULL,                    -- the Idempotency-Key
  fingerprint TEXT NOT NULL,                    -- hash of the request
  sealed      TEXT NOT NULL,                    -- the answer, encrypted under the presented credential and the key
  expires_us  BIGINT NOT NULL,
  -- The answer to a refresh is kept until the refresh token in it is used for the first time, or has expired, so
  -- that a lost answer costs nobody a connection (decision 035). successor is the hash of that token; NULL = the
  -- answer to a code, which is kept for a minute.
  successor   TEXT,
  PRIMARY KEY (app_id, key)
);
-- The answer to a refresh is kept until the refresh token in it is used for the first time, or has expired, so that
-- a lost answer costs nobody a connection (decision 035). successor is the hash of that token; NULL = the answer to
-- a code, which is kept for a minute.
CREATE UNIQUE INDEX oauth_replays_successor ON oauth_replays (successor) WHERE successor IS NOT NULL;
CREATE INDEX oauth_replays_expires ON oauth_replays (expires_us);

-- How often an app's consent screen was shown, and what users decided: one row per app and UTC day, kept as the
-- daily totals are. Written by package oauth, never on the path of a call.
CREATE TABLE consent_counts (
  app_id   TEXT NOT NULL,
  day      TEXT NOT NULL,                       -- UTC, as 2026-11-21
  shown    BIGINT NOT NULL,
  approved BIGINT NOT NULL,
  denied   BIGINT NOT NULL,
  PRIMARY KEY (app_id, day)
)
-- sqlite: WITHOUT ROWID
;

-- Users whom the consent screen told so, and who allowed it. Package oauth alone writes it.
CREATE TABLE work_consents (
  app_id        TEXT NOT NULL,
  account_id    TEXT NOT NULL,
  created_us    BIGINT NOT NULL,
  -- The connection that a consent to an app's own work holds for (decision 109); NULL = none. Consents were kept
  -- by app and account: those of a connection that lives were made at most ten minutes, the life of a device code,
  -- before it.
  connection_id TEXT,
  PRIMARY KEY (app_id, account_id)
);

-- Spend of live apps in buckets of ten minutes, kept for a week: automatic app suspension reads it (decision 062).
-- Written by package watch, as is watch_turns.
CREATE TABLE app_spend (
  app_id         TEXT NOT NULL,
  bucket         BIGINT NOT NULL,               -- number of the ten minutes since 1970
  user_charge_mc BIGINT NOT NULL,
  PRIMARY KEY (app_id, bucket)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX app_spend_bucket ON app_spend (bucket);

-- The job that fills app_spend. The node that moves next_us runs it.
CREATE TABLE watch_turns (
  name    TEXT PRIMARY KEY,
  next_us BIGINT NOT NULL,                      -- when the next run is due
  bucket  BIGINT NOT NULL                       -- the first bucket that is not summed yet
);
INSERT INTO watch_turns (name, next_us, bucket) VALUES ('apps', 0, 0);

-- Notices: emails to users about money, written in the transaction of the change that they report.
CREATE TABLE notices (
  id            TEXT PRIMARY KEY,
  kind          TEXT NOT NULL,
  account_id    TEXT NOT NULL,
  connection_id TEXT NOT NULL,
  app_id        TEXT NOT NULL,
  data          TEXT NOT NULL,                  -- JSON object
  created_us    BIGINT NOT NULL,
  passed        BIGINT NOT NULL DEFAULT 0       -- 1 = in the mail outbox
);
CREATE INDEX notices_new ON notices (id) WHERE passed = 0;
CREATE INDEX notices_account ON notices (account_id, id);
