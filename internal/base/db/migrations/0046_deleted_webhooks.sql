-- +goose Up

-- When the endpoint was deleted; NULL = it is there. The purge deletes its deliveries in slices, and then the row.
ALTER TABLE webhooks ADD COLUMN deleted_us BIGINT;
