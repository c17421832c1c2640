-- +goose Up

-- People: accounts, sign-in and mail.

-- Accounts (contract §2). Test accounts (sandbox = 1) belong to the developer in owner_id; their rows stay when
-- they end, because the ledger names them. Written by package accounts.
CREATE TABLE accounts (
  id               TEXT PRIMARY KEY,            -- wac_…
  email            TEXT NOT NULL UNIQUE,        -- in lower case
  password_hash    TEXT NOT NULL,               -- argon2id
  sandbox          BIGINT NOT NULL DEFAULT 0 CHECK (sandbox IN (0, 1)),
  developer        BIGINT NOT NULL DEFAULT 0 CHECK (developer IN (0, 1)),
  operator         BIGINT NOT NULL DEFAULT 0 CHECK (operator IN (0, 1)),
  -- viewer = may only read
  operator_role    TEXT NOT NULL DEFAULT 'operator' CHECK (operator_role IN ('operator', 'viewer')),
  owner_id         TEXT REFERENCES accounts(id), -- test accounts: the developer
  -- test accounts: the tester it was made for, if any
  tester_id        TEXT CHECK (tester_id IS NULL OR sandbox = 1),
  notices          BIGINT NOT NULL DEFAULT 1 CHECK (notices IN (0, 1)), -- 1 = wants email about what apps spend
  -- 1 = the email address is not confirmed: no sign-in
  unconfirmed      BIGINT NOT NULL DEFAULT 0 CHECK (unconfirmed IN (0, 1)),
  two_step         BIGINT NOT NULL DEFAULT 0 CHECK (two_step IN (0, 1)), -- 1 = a password alone does not sign in
  epoch            BIGINT NOT NULL DEFAULT 0,   -- sessions and links of an earlier epoch are void
  created_us       BIGINT NOT NULL,
  -- test accounts: when the developer deactivated it
  deactivated_us   BIGINT CHECK (deactivated_us IS NULL OR sandbox = 1),
  closed_us        BIGINT CHECK (closed_us IS NULL OR sandbox = 0), -- when its owner closed it; only the id remains
  suspended_us     BIGINT,                      -- since when; NULL = not suspended
  suspended_reason TEXT NOT NULL DEFAULT '',    -- given by the operator
  -- How often the address of an account was changed. A mailed link or pending step is bound to epoch +
  -- address_changes, so that it ends with the address; sessions are bound to epoch alone and go on.
  address_changes  BIGINT NOT NULL DEFAULT 0,
  CHECK ((sandbox = 1) = (owner_id IS NOT NULL))
);
CREATE INDEX accounts_owner ON accounts (owner_id) WHERE owner_id IS NOT NULL;
-- The closed accounts, of which an operator sees those that are owed money (decision 124).
CREATE INDEX accounts_closed ON accounts (id) WHERE closed_us IS NOT NULL;
-- Accounts that no one has confirmed are deleted when their links have expired.
CREATE INDEX accounts_unconfirmed ON accounts (id) WHERE unconfirmed = 1;
-- The test accounts of a developer that are not deleted, of which there are at most 25.
CREATE INDEX accounts_tests ON accounts (owner_id, id) WHERE owner_id IS NOT NULL AND deactivated_us IS NULL;

-- Sign-in sessions of browsers. Written by package accounts.
CREATE TABLE sessions (
  token_hash TEXT PRIMARY KEY,                  -- of the cookie
  account_id TEXT NOT NULL DEFAULT '',          -- '' = not signed in
  pending    BIGINT NOT NULL DEFAULT 0 CHECK (pending IN (0, 1)), -- 1 = waits for the second step
  data       BYTEA NOT NULL,                    -- the session's values, encoded
  agent      TEXT NOT NULL DEFAULT '',          -- the browser's User-Agent
  started_us BIGINT NOT NULL DEFAULT 0,         -- when it was signed in
  seen_us    BIGINT NOT NULL DEFAULT 0,         -- when it was last used
  expires_us BIGINT NOT NULL
);
-- For the purges.
CREATE INDEX sessions_expires ON sessions (expires_us);
-- The sessions of an account that were used last.
CREATE INDEX sessions_seen ON sessions (account_id, seen_us);

-- Security events of an account, for its owner to read. Written by package accounts.
CREATE TABLE security_events (
  id         TEXT PRIMARY KEY,
  account_id TEXT NOT NULL REFERENCES accounts(id),
  kind       TEXT NOT NULL,
  address    TEXT NOT NULL,                     -- IP address of the client
  agent      TEXT NOT NULL,                     -- its User-Agent
  created_us BIGINT NOT NULL
);
CREATE INDEX security_events_account ON security_events (account_id, id);
CREATE INDEX security_events_created ON security_events (created_us);
-- The last sign-ins of an account, among up to a year of failed attempts of strangers.
CREATE INDEX security_events_sign_ins ON security_events (account_id, id) WHERE kind = 'signed-in';

-- Closed accounts of which security events are left, for the purge to delete in slices. Written by package
-- accounts.
CREATE TABLE erasures (
  account_id TEXT PRIMARY KEY
)
-- sqlite: WITHOUT ROWID
;

-- Links in email, each for one use. Written by package identity, as all tables up to mails.
CREATE TABLE identity_links (
  token_hash    TEXT PRIMARY KEY,
  kind          TEXT NOT NULL CHECK (kind IN ('sign-up', 'reset', 'email')),
  account_id    TEXT REFERENCES accounts(id),   -- NULL = no email was sent
  email         TEXT NOT NULL,                  -- the address that the link confirms
  password_hash TEXT NOT NULL,                  -- sign-up: of the password chosen with it; '' otherwise
  epoch         BIGINT NOT NULL,                -- of the account when it was sent; the link is void in another
  next          TEXT NOT NULL,                  -- the page to go to afterwards
  expires_us    BIGINT NOT NULL
);
CREATE INDEX identity_links_expires ON identity_links (expires_us);
CREATE INDEX identity_links_account ON identity_links (account_id);

-- Seeds of one-time codes (TOTP, RFC 6238).
CREATE TABLE totp_seeds (
  account_id TEXT PRIMARY KEY REFERENCES accounts(id),
  sealed     BYTEA NOT NULL,
  active     BIGINT NOT NULL CHECK (active IN (0, 1)), -- 0 = set up, but no code was entered yet
  last_step  BIGINT NOT NULL,                   -- time step of the last accepted code; a code is accepted once
  -- A set-up of an authenticator app (active = 0) belongs to one browser, one epoch and a short time, as a
  -- challenge of a passkey does. One that began before these columns has expired.
  epoch      BIGINT NOT NULL DEFAULT 0,
  holder     TEXT NOT NULL DEFAULT '',
  expires_us BIGINT NOT NULL DEFAULT 0          -- 0 = of an active seed, or expired
);
-- Set-ups of authenticator apps, for their purge: nearly all seeds are active.
CREATE INDEX totp_seeds_setups ON totp_seeds (expires_us) WHERE active = 0;

CREATE TABLE recovery_codes (
  account_id TEXT NOT NULL REFERENCES accounts(id),
  code_hash  TEXT NOT NULL,
  PRIMARY KEY (account_id, code_hash)
);

-- Passkeys (WebAuthn).
CREATE TABLE passkeys (
  id              TEXT PRIMARY KEY,             -- pky_…
  account_id      TEXT NOT NULL REFERENCES accounts(id),
  credential_id   BYTEA NOT NULL UNIQUE,        -- chosen by the authenticator
  public_key      BYTEA NOT NULL,               -- in COSE
  name            TEXT NOT NULL,                -- given by the user
  -- how browsers reach the authenticator, joined by commas: a hint for them
  transports      TEXT NOT NULL,
  -- 1 = may exist on several devices; never changes
  backup_eligible BIGINT NOT NULL CHECK (backup_eligible IN (0, 1)),
  counter         BIGINT NOT NULL CHECK (counter >= 0), -- signature counter; 0 = the authenticator has none
  created_us      BIGINT NOT NULL,
  used_us         BIGINT NOT NULL               -- when it last signed in; 0 = never
);
CREATE INDEX passkeys_account ON passkeys (account_id, id);

-- What a browser was asked to sign with a passkey. The answer deletes the row: a challenge is answered once.
CREATE TABLE passkey_challenges (
  holder     TEXT PRIMARY KEY,                  -- the browser: hash of its session, or before sign-in of a cookie
  kind       TEXT NOT NULL CHECK (kind IN ('add', 'sign-in', 'second-step')),
  account_id TEXT REFERENCES accounts(id),      -- NULL = sign-in: the answer names the account
  epoch      BIGINT NOT NULL,                   -- of the account when the challenge was made
  name       TEXT NOT NULL,                     -- add: of the new passkey
  options    TEXT NOT NULL,                     -- JSON for the browser
  session    TEXT NOT NULL,                     -- JSON that the answer is verified with
  expires_us BIGINT NOT NULL,
  CHECK ((kind = 'sign-in') = (account_id IS NULL))
);
CREATE INDEX passkey_challenges_expires ON passkey_challenges (expires_us);

-- Sign-ins under way at an OpenID Connect provider.
CREATE TABLE openid_attempts (
  state_hash   TEXT PRIMARY KEY,                -- of the parameter state
  browser_hash TEXT NOT NULL,                   -- of a cookie: the answer is valid in this browser only
  account_id   TEXT REFERENCES accounts(id),    -- the account to link the login with; NULL = to sign in
  epoch        BIGINT NOT NULL,                 -- of that account when its password was entered
  next         TEXT NOT NULL,                   -- the page to go to afterwards
  expires_us   BIGINT NOT NULL
);
CREATE INDEX openid_attempts_expires ON openid_attempts (expires_us);

-- Logins at OpenID Connect providers that sign in to an account. Issuer and subject identify a login; an email
-- address does not, because it may change hands.
CREATE TABLE openid_logins (
  issuer     TEXT NOT NULL,
  subject    TEXT NOT NULL,
  account_id TEXT NOT NULL REFERENCES accounts(id),
  -- as the provider gave it when it was linked, for display; '' = none
  email      TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  PRIMARY KEY (issuer, subject),
  UNIQUE (account_id, issuer)
);

-- Invitations by the operator to have an account (decision 095). An invitation that was accepted has no row.
-- Written by package identity.
CREATE TABLE invitations (
  email      TEXT PRIMARY KEY,                  -- in lower case; a second invitation replaces the first
  account_id TEXT NOT NULL REFERENCES accounts(id), -- not confirmed until the link is used
  token_hash TEXT NOT NULL UNIQUE,              -- of the token in the link
  expires_us BIGINT NOT NULL
);
CREATE INDEX invitations_expires ON invitations (expires_us);
CREATE INDEX invitations_account ON invitations (account_id);

-- The mail outbox: queued in the transaction of the change that an email reports. The node that sends one leases it
-- by moving next_us. Written by package mail.
CREATE TABLE mails (
  id           TEXT PRIMARY KEY,
  account_id   TEXT NOT NULL REFERENCES accounts(id),
  recipient    TEXT NOT NULL,
  subject      TEXT NOT NULL,
  text         TEXT NOT NULL,
  html         TEXT NOT NULL,                   -- '' = none
  unsubscribe  TEXT NOT NULL,                   -- URL for RFC 8058; '' = none
  created_us   BIGINT NOT NULL,
  status       TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
  attempts     BIGINT NOT NULL DEFAULT 0,
  next_us      BIGINT NOT NULL,                 -- no attempt before this time
  lease        TEXT NOT NULL DEFAULT '',        -- of the node that is sending it; '' = none
  last_error   TEXT NOT NULL DEFAULT '',
  done_us      BIGINT,                          -- when it was sent or given up
  -- The body of a mail that was sent or given up, sealed, so that its links cannot be read and an operator can
  -- send it again. text and html are '' from then on. NULL = not done yet, or done before this column was there.
  sealed       BYTEA,
  -- 1 = a person waits for the mail, such as for a link: it goes before all that are due.
  urgent       BIGINT NOT NULL DEFAULT 0,
  -- The text of an email that names another person is deleted once it is sent: that person may close the account.
  names_others BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX mails_due ON mails (next_us, id) WHERE status = 'pending';
CREATE INDEX mails_done ON mails (done_us) WHERE done_us IS NOT NULL;
CREATE INDEX mails_failed ON mails (id) WHERE status = 'failed';
CREATE INDEX mails_account ON mails (account_id, id);
-- 1 = a person waits for the mail, such as for a link: it goes before all that are due.
CREATE INDEX mails_urgent ON mails (next_us, id) WHERE status = 'pending' AND urgent = 1;
