-- +goose Up

-- The token of a child, sealed, so that a repeated request answers the same one. NULL = a child of an older version,
-- whose token was derived from a key that is never replaced: it opens nothing any more.
ALTER TABLE children ADD COLUMN sealed BYTEA;
