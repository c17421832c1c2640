-- +goose Up

-- The timeline of an account, for operators: its ledger rows but calls, and pauses of its connections.
CREATE INDEX ledger_moves ON ledger (account_id, created_us) WHERE type <> 'spend' OR status = 'reversed';
CREATE INDEX events_pauses ON events (connection_id, created_us) WHERE type = 'connection.frozen' OR type = 'connection.resumed';
