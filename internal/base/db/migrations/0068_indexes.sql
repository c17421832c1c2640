-- +goose Up

-- The last sign-ins of an account, among up to a year of failed attempts of strangers.
CREATE INDEX security_events_sign_ins ON security_events (account_id, id) WHERE kind = 'signed-in';

-- Set-ups of authenticator apps, for their purge: nearly all seeds are active.
CREATE INDEX totp_seeds_setups ON totp_seeds (expires_us) WHERE active = 0;

-- The endpoints of an app without those that are deleted and wait for the purge of their deliveries.
CREATE INDEX webhooks_live ON webhooks (app_id, id) WHERE deleted_us IS NULL;
