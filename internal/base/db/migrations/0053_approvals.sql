-- +goose Up

-- What a consent that is not exchanged yet stands on: who approved it, if not the account that connects, and the epoch of
-- the approver's credentials; how many connections of the app and account were revoked by then. It ends when one of them
-- changes. NULL: an older version made it.
ALTER TABLE oauth_codes ADD COLUMN approver_id TEXT;
ALTER TABLE oauth_codes ADD COLUMN approver_epoch BIGINT;
ALTER TABLE oauth_codes ADD COLUMN revocations BIGINT;
ALTER TABLE oauth_codes ADD COLUMN own_work BIGINT NOT NULL DEFAULT 0; -- 1 = the screen named work of the app's own
ALTER TABLE oauth_device_codes ADD COLUMN approver_id TEXT;
ALTER TABLE oauth_device_codes ADD COLUMN approver_epoch BIGINT;
ALTER TABLE oauth_device_codes ADD COLUMN revocations BIGINT;
ALTER TABLE oauth_device_codes ADD COLUMN own_work BIGINT NOT NULL DEFAULT 0;

-- The connection that a consent to an app's own work holds for (decision 109); NULL = none. Consents were kept by app and
-- account: those of a connection that lives were made at most ten minutes, the life of a device code, before it.
ALTER TABLE work_consents ADD COLUMN connection_id TEXT;
UPDATE work_consents SET connection_id = (SELECT c.id FROM connections c
  WHERE c.app_id = work_consents.app_id AND c.account_id = work_consents.account_id AND c.status <> 'revoked'
    AND c.created_us <= work_consents.created_us + 600000000);

-- The grant family of the token that made a child of the connection itself: the child ends with the family (decision 107).
-- NULL: a child's token made it, or an older version did.
ALTER TABLE children ADD COLUMN family_id TEXT;
