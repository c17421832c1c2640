-- +goose Up

-- The answer to a refresh is kept until the refresh token in it is used for the first time, or has expired, so that a
-- lost answer costs nobody a connection (decision 035). successor is the hash of that token; NULL = the answer to a
-- code, which is kept for a minute.
ALTER TABLE oauth_replays ADD COLUMN successor TEXT;
CREATE UNIQUE INDEX oauth_replays_successor ON oauth_replays (successor) WHERE successor IS NOT NULL;
CREATE INDEX oauth_replays_expires ON oauth_replays (expires_us);
