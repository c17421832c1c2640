-- +goose Up

-- Whether a call that does not fit gets a lower output cap, and the lowest cap. Written by packages apps and features.
ALTER TABLE apps ADD COLUMN fit BIGINT NOT NULL DEFAULT 0 CHECK (fit IN (0, 1));
ALTER TABLE apps ADD COLUMN fit_min_tokens BIGINT NOT NULL DEFAULT 256 CHECK (fit_min_tokens > 0);
ALTER TABLE features ADD COLUMN fit BIGINT CHECK (fit IN (0, 1));                       -- NULL = the app's
ALTER TABLE features ADD COLUMN fit_min_tokens BIGINT CHECK (fit_min_tokens > 0);       -- NULL = the app's
