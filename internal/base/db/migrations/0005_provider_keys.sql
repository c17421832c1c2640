-- +goose Up
-- Developers' own keys at AI providers, one for each provider, encrypted under the
-- envelope key and bound to their row. Written by package providerkeys.
CREATE TABLE provider_keys (
  account_id TEXT NOT NULL REFERENCES accounts(id),
  provider   TEXT NOT NULL CHECK (provider IN ('openai', 'anthropic', 'google')),
  sealed     BYTEA NOT NULL,
  last4      TEXT NOT NULL,     -- '' of a key too short to show any of it
  created_us BIGINT NOT NULL,   -- when there first was one
  tested_us  BIGINT NOT NULL,   -- when the provider took the present one
  PRIMARY KEY (account_id, provider)
);

-- +goose Down
DROP TABLE provider_keys;
