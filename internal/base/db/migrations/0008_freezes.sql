-- +goose Up

-- Why a connection is frozen (decision 025): risk, user, payment or operator, and the operator's reason in words. '' = it
-- is not frozen, or was before causes were kept.
ALTER TABLE connections ADD COLUMN frozen_by TEXT NOT NULL DEFAULT '' CHECK (frozen_by IN ('', 'risk', 'user', 'payment', 'operator'));
ALTER TABLE connections ADD COLUMN frozen_reason TEXT NOT NULL DEFAULT '';

-- What of spent the risk thresholds leave out, because a resume has forgiven it: "bucket:amount …".
ALTER TABLE connections ADD COLUMN forgiven TEXT NOT NULL DEFAULT '';

-- Revoking a connection now denies its pending allocation request, and a cap that the user raises as high approves it. Those
-- that older versions left pending end here, at the time of the revocation or of the account's newest row.
UPDATE allocation_requests SET status = 'denied',
  decided_us = (SELECT revoked_us FROM connections WHERE connections.id = allocation_requests.connection_id)
  WHERE status = 'pending' AND connection_id IN (SELECT id FROM connections WHERE status = 'revoked');
UPDATE allocation_requests SET status = 'approved',
  decided_us = COALESCE((SELECT l.created_us FROM connections c JOIN balances b ON b.account_id = c.account_id
    JOIN ledger l ON l.account_id = b.account_id AND l.seq = b.seq WHERE c.id = allocation_requests.connection_id), created_us)
  WHERE status = 'pending' AND target_mc <= (SELECT allocation_mc FROM connections WHERE connections.id = allocation_requests.connection_id);
