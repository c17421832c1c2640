package store

// insertUnbilled writes an attempt that has cost the operator something and bills nobody (decision 133).
const insertUnbilled = `INSERT INTO unbilled_attempts (request_id, attempt, connection_id, app_id, account_id, model,
	provider_cost_mc, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
