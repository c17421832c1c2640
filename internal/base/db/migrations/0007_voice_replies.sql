-- +goose Up

-- The provider's id of each reply that is charged. Two nodes may hear one reply while a session moves between them:
-- the first one gives the reply its number, and with it the key by which the ledger charges it once.
ALTER TABLE realtime_replies ADD COLUMN reply_id TEXT;
CREATE UNIQUE INDEX realtime_replies_reply ON realtime_replies (session_id, reply_id) WHERE reply_id IS NOT NULL;
