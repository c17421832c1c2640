-- +goose Up

-- The body of a mail that was sent or given up, sealed, so that its links cannot be read and an operator can send it
-- again. text and html are '' from then on. NULL = not done yet, or done before this column was there.
ALTER TABLE mails ADD COLUMN sealed BYTEA;
UPDATE mails SET text = '', html = '' WHERE status <> 'pending';
