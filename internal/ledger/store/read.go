package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const connectionColumns = `id, app_id, account_id, allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status,
	spent, event_seq, created_us, revoked_us, faster_spend, warned_us, forgiven, frozen_by, frozen_reason,
	delegated_mc, child_held_mc, limits_us, approved_us`

func scanConnection(row db.Row) (c rules.Connection, err error) {
	var spent, forgiven string
	if err := row.Scan(&c.ID, &c.AppID, &c.AccountID, &c.AllocationMC, &c.ConsumedMC, &c.HeldMC, &c.VelocityLimitMC,
		&c.Status, &spent, &c.EventSeq, &c.CreatedUS, &c.RevokedUS, &c.FasterSpend, &c.WarnedUS, &forgiven, &c.FrozenBy,
		&c.FrozenReason, &c.DelegatedMC, &c.ChildHeldMC, &c.LimitsUS, &c.ApprovedUS); err != nil {
		return c, err
	}
	if c.Spent, err = limits.ParseSeries(limits.SpendBucketWidth, spent); err != nil {
		return c, err
	}
	c.Forgiven, err = limits.ParseSeries(limits.SpendBucketWidth, forgiven)
	return c, err
}

// GetConnection returns a connection, or sql.ErrNoRows.
func GetConnection(ctx context.Context, q db.Queryer, connectionID string) (c rules.Connection, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		c, err = scanConnection(q.QueryRowContext(ctx, `SELECT `+connectionColumns+` FROM connections WHERE id = $1`,
			connectionID))
		return err
	}, c.AddUnsaved)
	return c, err
}

// LockConnection is GetConnection that keeps other transactions from changing the
// connection, and its account's money, until this one ends: the balance first, as
// the ledger's batches do.
func LockConnection(ctx context.Context, tx *db.Tx, connectionID string) (c rules.Connection, err error) {
	if c, err = GetConnection(ctx, tx, connectionID); err != nil {
		return c, err
	}
	if err := lockBalance(ctx, tx, c.AccountID); err != nil {
		return c, err
	}
	return scanConnection(tx.QueryRowContext(ctx,
		`SELECT `+connectionColumns+` FROM connections WHERE id = $1`+tx.Engine.ForUpdate(), connectionID))
}

// withUnsavedHolds reads connections with everything that they hold: on SQLite open
// holds may not be in the file yet.
func withUnsavedHolds(q db.Queryer, read func() error, add func(unsavedMC map[string]money.MC)) error {
	if d, ok := q.(*db.DB); ok && d.Engine == db.SQLite {
		if st, ok := newBackend(d).(*sqlite); ok {
			return st.readWithUnsaved(read, add)
		}
	}
	return read()
}

// LiveConnection returns the connection of an app and account that is not
// revoked, or sql.ErrNoRows.
func LiveConnection(ctx context.Context, q db.Queryer, appID, accountID string) (rules.Connection, error) {
	return scanConnection(q.QueryRowContext(ctx,
		`SELECT `+connectionColumns+` FROM connections WHERE app_id = $1 AND account_id = $2 AND status <> 'revoked'`,
		appID, accountID))
}

// CountRevokedConnections returns how often an account has revoked, or was revoked from, an app.
func CountRevokedConnections(ctx context.Context, q db.Queryer, appID, accountID string) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM connections
		WHERE account_id = $1 AND app_id = $2 AND status = 'revoked'`, accountID, appID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("ledger: revoked connections: %w", err)
	}
	return n, nil
}

// ConnectionsOfApp returns at most limit connections of an app, newest first,
// those older than the one named by after if it is not empty.
func ConnectionsOfApp(ctx context.Context, q db.Queryer, appID, after string,
	limit int) (list []rules.Connection, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		list, err = connectionsOfApp(ctx, q, appID, after, limit)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].AddUnsaved(unsavedMC)
		}
	})
	return list, err
}

func connectionsOfApp(ctx context.Context, q db.Queryer, appID, after string, limit int) ([]rules.Connection, error) {
	if after == "" {
		after = "~" // behind every id
	}
	return db.QueryAll(ctx, q, scanConnection,
		`SELECT `+connectionColumns+` FROM connections WHERE app_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, appID,
		after, limit)
}

// A ConnectionFilter selects connections. Empty fields select all.
type ConnectionFilter struct {
	AccountID, AppID string
	Status           rules.ConnectionStatus
}

// BrowseConnections returns at most limit connections that pass f, newest first, those older than the one named by
// after if it is not empty. An index by account, app or id serves it; a status is then looked for among these.
func BrowseConnections(ctx context.Context, q db.Queryer, f ConnectionFilter, after string,
	limit int) (list []rules.Connection, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		list, err = browseConnections(ctx, q, f, after, limit)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].AddUnsaved(unsavedMC)
		}
	})
	return list, err
}

func browseConnections(ctx context.Context, q db.Queryer, f ConnectionFilter, after string,
	limit int) ([]rules.Connection, error) {
	if after == "" {
		after = "~" // behind every id
	}
	c := conditions{args: []any{after}}
	for _, column := range []struct{ name, value string }{
		{"account_id", f.AccountID}, {"app_id", f.AppID}, {"status", string(f.Status)},
	} {
		if column.value != "" {
			c.add(column.name+" = $%d", column.value)
		}
	}
	c.args = append(c.args, limit)
	return db.QueryAll(ctx, q, scanConnection, fmt.Sprintf(`SELECT `+connectionColumns+` FROM connections
		WHERE id < $1%s ORDER BY id DESC LIMIT $%d`, c.text.String(), len(c.args)), c.args...)
}

// GetBalance returns an account's balance; an account without one has nothing.
func GetBalance(ctx context.Context, q db.Queryer, accountID string) (rules.Balance, error) {
	b := rules.Balance{AccountID: accountID}
	err := q.QueryRowContext(ctx,
		`SELECT sandbox <> 0, available_mc, reserved_mc, seq, head FROM balances WHERE account_id = $1`, accountID).
		Scan(&b.Sandbox, &b.AvailableMC, &b.ReservedMC, &b.Seq, &b.Head)
	if errors.Is(err, sql.ErrNoRows) {
		return b, nil
	}
	return b, err
}

// LockBalance is GetBalance that keeps other transactions from changing the balance until this one ends.
func LockBalance(ctx context.Context, tx *db.Tx, accountID string) (rules.Balance, error) {
	if err := lockBalance(ctx, tx, accountID); err != nil {
		return rules.Balance{}, err
	}
	return GetBalance(ctx, tx, accountID)
}

// ListEntries returns the ledger rows with some ids, in no order.
func ListEntries(ctx context.Context, q db.Queryer, entryIDs []string) ([]rules.Entry, error) {
	args, places := make([]any, len(entryIDs)), make([]string, len(entryIDs))
	for i, entryID := range entryIDs {
		args[i], places[i] = entryID, fmt.Sprintf("$%d", i+1)
	}
	if len(args) == 0 {
		return nil, nil
	}
	return db.QueryAll(ctx, q, scanEntry, `SELECT `+entryValues+` FROM ledger
		WHERE id IN (`+strings.Join(places, ", ")+`)`, args...)
}

// entryValues reads every column as text and numbers that may be null, and the row by which a
// charge was refunded.
const entryValues = `id, account_id, seq, type, status, COALESCE(reversal_of, ''), COALESCE(reason, ''),
	COALESCE(connection_id, ''), COALESCE(app_id, ''),
	COALESCE(feature, ''), COALESCE(feature_label, ''), COALESCE(model, ''), COALESCE(key, ''), COALESCE(fingerprint,
		''),
	COALESCE(paid_by, ''), COALESCE(settlement, ''),
	COALESCE(terms, ''), COALESCE(usage, ''), COALESCE(hold_amount_mc, 0), COALESCE(provider_cost_mc, 0),
	COALESCE(svc_fee_mc, 0), COALESCE(dev_margin_mc, 0),
	COALESCE(user_charge_mc, 0), COALESCE(remaining_mc, 0), COALESCE(amount_mc, 0), available_delta_mc,
	reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash,
	COALESCE(first_byte_ms, 0), COALESCE(duration_ms, 0), COALESCE(finish_reason, ''),
	COALESCE((SELECT MIN(r.id) FROM ledger r WHERE r.reversal_of = ledger.id AND r.type = 'spend'), '')`

func scanEntry(row db.Row) (e rules.Entry, err error) {
	err = row.Scan(&e.ID, &e.AccountID, &e.Seq, &e.Type, &e.Status, &e.ReversalOf, &e.Reason, &e.ConnectionID, &e.AppID,
		&e.Feature, &e.FeatureLabel, &e.Model, &e.Key, &e.Fingerprint, &e.PaidBy, &e.Settlement,
		&e.Terms, &e.Usage, &e.HoldMC, &e.ProviderCostMC, &e.SvcFeeMC, &e.DevMarginMC,
		&e.UserChargeMC, &e.RemainingMC, &e.AmountMC, &e.AvailableDeltaMC, &e.ReservedDeltaMC, &e.AllocationDeltaMC,
		&e.ConsumedDeltaMC, &e.CreatedUS, &e.Hash,
		&e.Delivery.FirstByteMS, &e.Delivery.DurationMS, &e.Delivery.FinishReason, &e.ReversedBy)
	return e, err
}

// GetEntry returns a ledger row, or sql.ErrNoRows.
func GetEntry(ctx context.Context, q db.Queryer, entryID string) (rules.Entry, error) {
	return scanEntry(q.QueryRowContext(ctx, `SELECT `+entryValues+` FROM ledger WHERE id = $1`, entryID))
}

// RecentEntries returns the newest spend rows of a connection. It walks the
// account's chain backwards.
func RecentEntries(ctx context.Context, q db.Queryer, accountID, connectionID string,
	limit int) ([]rules.Entry, error) {
	return db.QueryAll(ctx, q, scanEntry,
		`SELECT `+entryValues+
			` FROM ledger WHERE account_id = $1 AND connection_id = $2 AND type = 'spend' ORDER BY seq DESC LIMIT $3`,
		accountID, connectionID, limit)
}

// SpendsOfAccount returns the spend rows of an account with a seq below before (0 = from the newest), newest first, at
// most limit.
func SpendsOfAccount(ctx context.Context, q db.Queryer, accountID string, before int64,
	limit int) ([]rules.Entry, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return db.QueryAll(ctx, q, scanEntry,
		`SELECT `+entryValues+` FROM ledger WHERE account_id = $1 AND seq < $2 AND type = 'spend'
		ORDER BY seq DESC LIMIT $3`, accountID, before, limit)
}

// GetStoredResponse returns the response of a settled call, or sql.ErrNoRows if it has
// expired or was never stored.
func GetStoredResponse(ctx context.Context, q db.Queryer, requestID string) (a rules.StoredResponse, err error) {
	err = q.QueryRowContext(ctx, `SELECT encoding, body FROM stored_responses WHERE request_id = $1`,
		requestID).Scan(&a.Encoding, &a.Body)
	return a, err
}

const refusalValues = `request_id, connection_id, app_id, status, code, message, details, COALESCE(feature, ''),
	COALESCE(model, ''), created_us, COALESCE(duration_ms, 0)`

func scanRefusal(row db.Row) (r rules.Refusal, err error) {
	err = row.Scan(&r.RequestID, &r.ConnectionID, &r.AppID, &r.Status, &r.Code, &r.Message, &r.Details, &r.Feature,
		&r.Model, &r.CreatedUS, &r.DurationMS)
	return r, err
}

// GetRefusal returns why a call was refused, or sql.ErrNoRows.
func GetRefusal(ctx context.Context, q db.Queryer, requestID string) (r rules.Refusal, err error) {
	return scanRefusal(q.QueryRowContext(ctx, `SELECT `+refusalValues+` FROM refusals WHERE request_id = $1`,
		requestID))
}

const holdColumns = `connection_id, key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc,
	account_id, app_id, COALESCE(feature, ''), COALESCE(feature_label, ''), model, terms, holds.created_us, paid_by,
		reservations`

func scanHold(row db.Row) (h rules.HoldRow, err error) {
	var counts string
	err = row.Scan(&h.ConnectionID, &h.Key, &h.RequestID, &h.Fingerprint, &h.State, &h.Attempt, &h.NodeID, &h.Claim,
		&h.HoldMC, &h.AccountID, &h.AppID, &h.Feature, &h.FeatureLabel, &h.Model, &h.Terms, &h.CreatedUS, &h.PaidBy,
		&counts)
	if err == nil {
		h.Reservations, err = rules.ParseReservations(counts)
	}
	return h, err
}

// isLive is the condition that a hold is open or pending. It is that of the index holds_live, and stands in the queries
// for open holds too: SQLite does not see that an open hold is no failed one, and would read those of all failed calls
// of a month.
const isLive = `state <> 'failed'`

// isOpen is the condition that a hold is open.
const isOpen = isLive + ` AND state = 'open'`

// GetHold returns the hold of a key, or sql.ErrNoRows.
func GetHold(ctx context.Context, q db.Queryer, k rules.Key) (rules.HoldRow, error) {
	return scanHold(q.QueryRowContext(ctx, `SELECT `+holdColumns+` FROM holds WHERE connection_id = $1 AND key = $2`,
		k.ConnectionID, k.Key))
}

// HoldOfRequest returns the hold of a request, or sql.ErrNoRows.
func HoldOfRequest(ctx context.Context, q db.Queryer, requestID string) (rules.HoldRow, error) {
	h, err := scanHold(q.QueryRowContext(ctx,
		`SELECT `+holdColumns+` FROM holds WHERE request_id = $1 AND state = 'failed'`, requestID))
	if errors.Is(err, sql.ErrNoRows) { // one statement for both would use no index
		return scanHold(q.QueryRowContext(ctx,
			`SELECT `+holdColumns+` FROM holds WHERE request_id = $1 AND `+isLive, requestID))
	}
	return h, err
}

// FindKeyByFingerprint returns the key of the newest call of a connection since
// sinceUS with this fingerprint, held or billed; "" if there is none. It finds the
// retries of clients that send no key.
func FindKeyByFingerprint(ctx context.Context, q db.Queryer, connectionID, accountID, fingerprint string,
	sinceUS int64) (key string, err error) {
	key, err = findHeldKey(ctx, q, connectionID, accountID, fingerprint, sinceUS)
	if err != nil || key != "" {
		return key, err
	}
	err = q.QueryRowContext(ctx,
		`SELECT key FROM (SELECT connection_id, key, fingerprint, created_us, seq FROM ledger WHERE account_id = $1
			ORDER BY seq DESC LIMIT 1000) AS recent
		WHERE connection_id = $2 AND fingerprint = $3 AND created_us >= $4 ORDER BY seq DESC LIMIT 1`, accountID,
		connectionID, fingerprint, sinceUS).Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return key, err
}

// findHeldKey is FindKeyByFingerprint for keys with a hold. Failed and live holds have an index each. The live ones are
// asked for by account, because SQLite would read all failed ones of a connection before it used their index.
func findHeldKey(ctx context.Context, q db.Queryer, connectionID, accountID, fingerprint string,
	sinceUS int64) (key string, err error) {
	var failedUS int64
	err = q.QueryRowContext(ctx, `SELECT key, created_us FROM holds
		WHERE connection_id = $1 AND fingerprint = $2 AND created_us >= $3 AND state = 'failed'
		ORDER BY created_us DESC LIMIT 1`, connectionID, fingerprint, sinceUS).Scan(&key, &failedUS)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	type hold struct {
		connectionID, key string
		createdUS         int64
	}
	live, err := db.QueryAll(ctx, q, db.ScanFields(func(h *hold) []any {
		return []any{&h.connectionID, &h.key, &h.createdUS}
	}), `SELECT connection_id, key, created_us FROM holds
		WHERE account_id = $1 AND fingerprint = $2 AND created_us >= $3 AND `+isLive+` ORDER BY created_us DESC`,
		accountID, fingerprint, sinceUS)
	if err != nil {
		return "", err
	}
	for _, h := range live {
		if h.connectionID == connectionID && h.createdUS >= failedUS {
			return h.key, nil
		}
	}
	return key, nil
}

// RequestOfKey returns the request that a key is held or billed for, or sql.ErrNoRows.
func RequestOfKey(ctx context.Context, q db.Queryer, k rules.Key) (requestID string, err error) {
	hold, err := GetHold(ctx, q, k)
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return hold.RequestID, err
	}
	var entryID string
	err = q.QueryRowContext(ctx, `SELECT id FROM ledger WHERE key_hash = $3 AND connection_id = $1 AND key = $2`,
		k.ConnectionID, k.Key, k.IndexHash()).Scan(&entryID)
	if err != nil {
		return "", err
	}
	return id.ReplacePrefix(entryID, id.Ledger, id.Request), nil
}

// IsKeyUsed reports whether a key is billed, open or pending. A hold may be opened or
// ended at the same time: only the Hold command decides.
func IsKeyUsed(ctx context.Context, q db.Queryer, k rules.Key) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx,
		`SELECT (SELECT COUNT(*) FROM holds WHERE connection_id = $1 AND key = $2 AND state <> 'failed')
		+ (SELECT COUNT(*) FROM ledger WHERE key_hash = $3 AND connection_id = $1 AND key = $2)`,
		k.ConnectionID, k.Key, k.IndexHash()).Scan(&n)
	return n > 0, err
}

// GetCheckpoints returns the saved part of a running attempt's stream, from the n-th
// checkpoint on, and the number of the next one.
func GetCheckpoints(ctx context.Context, q db.Queryer, requestID string,
	attempt, n int64) (body []byte, next int64, err error) {
	rows, err := q.QueryContext(ctx,
		`SELECT n, body FROM checkpoints WHERE request_id = $1 AND attempt = $2 AND n >= $3 ORDER BY
			n`, requestID, attempt,
		n)
	if err != nil {
		return nil, n, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for next = n; rows.Next(); next++ {
		var part []byte
		if err := rows.Scan(&n, &part); err != nil {
			return nil, next, err
		}
		body = append(body, part...)
	}
	return body, next, rows.Err()
}

// GetDeliveredTokens returns the output of a running attempt's stream that is too long for its frames to be saved; 0 of
// others.
func GetDeliveredTokens(ctx context.Context, q db.Queryer, requestID string, attempt int64) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(delivered_tokens), 0) FROM checkpoints
		WHERE request_id = $1 AND attempt = $2`, requestID, attempt).Scan(&n)
	return n, err
}

// A ClaimedKey is the key of an open hold with the claim that holds it.
type ClaimedKey struct {
	rules.Key
	Claim string
}

// isNoReply is the condition that a hold is not of a reply of a voice session, of a connection's own or of a child's:
// those end with their session.
const isNoReply = `key NOT LIKE 'rts%' AND key NOT LIKE 'chd%/rts%'`

// ListOpenHolds returns the keys of at most limit open holds of a node, without those of
// voice sessions.
func ListOpenHolds(ctx context.Context, q db.Queryer, nodeID string, limit int) ([]ClaimedKey, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(c *ClaimedKey) []any {
		return []any{&c.ConnectionID, &c.Key.Key, &c.Claim}
	}), `SELECT connection_id, key, claim FROM holds
		WHERE `+isOpen+` AND node_id = $1 AND `+isNoReply+` LIMIT $2`, nodeID, limit)
}

// IsNodeAlive reports whether the lease of a node holds.
func IsNodeAlive(ctx context.Context, q db.Queryer, nodeID string, now db.Moment) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, `SELECT COUNT(*) FROM nodes WHERE id = $1 AND lease_us > `+now.SQL("$2"), nodeID,
		now.Arg()).Scan(&n)
	return n > 0, err
}

// CountOpenHolds returns how many holds are open in the database, and when the oldest was
// made, without those of voice sessions; 0 = there is none.
func CountOpenHolds(ctx context.Context, q db.Queryer) (count, oldestUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MIN(CASE WHEN `+isNoReply+` THEN created_us END), 0)
		FROM holds WHERE `+isOpen).Scan(&count, &oldestUS)
	return count, oldestUS, err
}

// HoldsOfDeadNodes returns open holds of nodes other than nodeID whose lease has ended,
// oldest first. Those of voice sessions, whose keys are not UUIDs, end with their session.
// A node whose own lease has ended finds none: it, or the clock, was away for others too.
func HoldsOfDeadNodes(ctx context.Context, q db.Queryer, nodeID string, now db.Moment,
	limit int) ([]rules.HoldRow, error) {
	return db.QueryAll(ctx, q, scanHold,
		`SELECT `+holdColumns+` FROM holds LEFT JOIN nodes ON nodes.id = holds.node_id
		WHERE `+isOpen+` AND `+isNoReply+` AND holds.node_id <> $1
		AND (nodes.id IS NULL OR nodes.lease_us <= `+now.SQL("$2")+`)
		AND NOT EXISTS (SELECT 1 FROM nodes own WHERE own.id = $1 AND own.lease_us <= `+now.SQL("$2")+`)
		ORDER BY holds.created_us LIMIT $3`, nodeID, now.Arg(), limit)
}
