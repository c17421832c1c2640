-- +goose Up

-- The closed accounts, of which an operator sees those that are owed money (decision 124).
CREATE INDEX accounts_closed ON accounts (id) WHERE closed_us IS NOT NULL;
