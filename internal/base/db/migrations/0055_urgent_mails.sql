-- +goose Up

-- 1 = a person waits for the mail, such as for a link: it goes before all that are due.
ALTER TABLE mails ADD COLUMN urgent BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mails_urgent ON mails (next_us, id) WHERE status = 'pending' AND urgent = 1;
