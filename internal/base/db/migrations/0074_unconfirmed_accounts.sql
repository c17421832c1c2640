-- +goose Up

-- Accounts that no one has confirmed are deleted when their links have expired.
CREATE INDEX accounts_unconfirmed ON accounts (id) WHERE unconfirmed = 1;
