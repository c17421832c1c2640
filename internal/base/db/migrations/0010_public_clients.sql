-- +goose Up

-- Public clients run on their users' devices and use the token endpoint without a client secret (decision 065).
ALTER TABLE apps ADD COLUMN client_type TEXT NOT NULL DEFAULT 'confidential' CHECK (client_type IN ('confidential', 'public'));
