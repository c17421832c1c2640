-- +goose Up

-- Why connections are stopped (decision 123): a connection is frozen while it has a row. connections.frozen_by and
-- frozen_reason are those of the strongest cause, the one that it shows. Package ledger/store alone writes both tables.
CREATE TABLE freezes (
  connection_id TEXT NOT NULL,
  cause         TEXT NOT NULL CHECK (cause IN ('risk', 'user', 'payment', 'operator')),
  subject       TEXT NOT NULL,  -- payment: Stripe's id of the dispute, or below_zero; operator: opl_… or suspension; or ''
  actor         TEXT NOT NULL,  -- who stopped it; '' = a rule, or an earlier version
  reason        TEXT NOT NULL,  -- the operator's
  since_us      BIGINT NOT NULL,
  PRIMARY KEY (connection_id, cause, subject)
)
-- sqlite: WITHOUT ROWID
;

-- Disputes that are not decided. While an account has one, its user cannot connect, resume or raise a spend cap.
CREATE TABLE open_disputes (
  dispute_id TEXT PRIMARY KEY,  -- Stripe's
  payment_id TEXT NOT NULL,
  account_id TEXT NOT NULL,
  since_us   BIGINT NOT NULL
);
CREATE INDEX open_disputes_account ON open_disputes (account_id);

INSERT INTO open_disputes (dispute_id, payment_id, account_id, since_us)
  SELECT r.reason, MIN(r.payment_id), MIN(r.account_id), MIN(r.created_us) FROM payment_records r
  JOIN disputes d ON d.id = r.reason AND d.contested = 1
  WHERE r.kind = 'disputed' AND NOT EXISTS (SELECT 1 FROM payment_records o WHERE o.payment_id = r.payment_id
    AND (o.kind = 'failed' OR o.kind = 'reversed' AND o.reason = 'dispute_lost'))
  GROUP BY r.reason;

-- Versions before causes were kept did not say which it was. Its user may end it.
UPDATE connections SET frozen_by = 'risk' WHERE status = 'frozen' AND frozen_by = '';

-- Each connection had one cause. A pause by an operator with the reason of the account's suspension ended with it, and
-- still does. That of a payment ends with the dispute, or by its user once the balance is not below zero.
INSERT INTO freezes (connection_id, cause, subject, actor, reason, since_us)
  SELECT c.id, c.frozen_by, CASE WHEN c.frozen_by = 'payment' THEN 'below_zero'
      WHEN c.frozen_by = 'operator' AND a.suspended_us IS NOT NULL AND a.suspended_reason = c.frozen_reason THEN 'suspension'
      ELSE '' END, '', c.frozen_reason, COALESCE((SELECT MAX(e.created_us) FROM events e
      WHERE e.connection_id = c.id AND e.type = 'connection.frozen'), c.created_us)
  FROM connections c LEFT JOIN accounts a ON a.id = c.account_id
  WHERE c.status = 'frozen' AND (c.frozen_by <> 'payment'
    OR NOT EXISTS (SELECT 1 FROM open_disputes o WHERE o.account_id = c.account_id)
    OR EXISTS (SELECT 1 FROM balances b WHERE b.account_id = c.account_id AND b.available_mc < 0));

-- What the first cause had kept out: disputes that are open, balances below zero, suspensions.
INSERT INTO freezes (connection_id, cause, subject, actor, reason, since_us)
  SELECT c.id, 'payment', o.dispute_id, o.payment_id, '', o.since_us FROM connections c
  JOIN open_disputes o ON o.account_id = c.account_id WHERE c.status = 'frozen';
INSERT INTO freezes (connection_id, cause, subject, actor, reason, since_us)
  SELECT c.id, 'payment', 'below_zero', '', '', c.created_us FROM connections c
  JOIN balances b ON b.account_id = c.account_id AND b.available_mc < 0
  WHERE c.status = 'frozen' AND c.frozen_by <> 'payment';
INSERT INTO freezes (connection_id, cause, subject, actor, reason, since_us)
  SELECT c.id, 'operator', 'suspension', '', a.suspended_reason, a.suspended_us FROM connections c
  JOIN accounts a ON a.id = c.account_id AND a.suspended_us IS NOT NULL
  WHERE c.status = 'frozen' AND NOT (c.frozen_by = 'operator' AND a.suspended_reason = c.frozen_reason);

-- The connection shows the strongest; of operators' causes the oldest.
UPDATE connections SET frozen_by = 'payment' WHERE status = 'frozen' AND frozen_by IN ('user', 'risk')
  AND EXISTS (SELECT 1 FROM freezes f WHERE f.connection_id = connections.id AND f.cause = 'payment');
UPDATE connections SET frozen_by = 'operator', frozen_reason = (SELECT f.reason FROM freezes f
    WHERE f.connection_id = connections.id AND f.cause = 'operator')
  WHERE status = 'frozen' AND frozen_by <> 'operator'
  AND EXISTS (SELECT 1 FROM freezes f WHERE f.connection_id = connections.id AND f.cause = 'operator');
