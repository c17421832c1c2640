package voice

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// row is one row of realtime_sessions.
type row struct {
	ID, ConnectionID, AccountID, AppID, Feature, Model string
	Mock                                               bool
	Status                                             session.Status
	TicketUntilUS                                      int64
	NodeID, NodeURL                                    string
	LeaseUS                                            int64
	CallID                                             string
	OwnKey                                             bool
	EndAsked                                           string
	State                                              string
	MaxDurationS                                       int64
	MaxCostMC                                          *money.MC
	EndReason                                          *string
	CreatedUS                                          int64
	StartedUS, EndedUS                                 *int64
	ChargedMC                                          *money.MC // with Replies: once it has ended
	Replies                                            *int64
}

const rowColumns = `id, connection_id, account_id, app_id, COALESCE(feature, ''), model, mock, status, ticket_until_us, COALESCE(node_id, ''), node_url, lease_us, COALESCE(call_id, ''),
	own_key, COALESCE(end_asked, ''), state, max_duration_s, max_cost_mc, end_reason, created_us, started_us, ended_us, charged_mc, response_count`

func scanRow(s db.Row) (r row, err error) {
	var mock, own int64
	err = s.Scan(&r.ID, &r.ConnectionID, &r.AccountID, &r.AppID, &r.Feature, &r.Model, &mock, &r.Status, &r.TicketUntilUS, &r.NodeID, &r.NodeURL, &r.LeaseUS, &r.CallID,
		&own, &r.EndAsked, &r.State, &r.MaxDurationS, &r.MaxCostMC, &r.EndReason, &r.CreatedUS, &r.StartedUS, &r.EndedUS, &r.ChargedMC, &r.Replies)
	r.Mock, r.OwnKey = mock == 1, own == 1
	return r, err
}

// getRow returns a session, or sql.ErrNoRows.
func getRow(ctx context.Context, q db.Queryer, id string) (row, error) {
	return scanRow(q.QueryRowContext(ctx, `SELECT `+rowColumns+` FROM realtime_sessions WHERE id = $1`, id))
}

// insert adds a pending session in a free slot of its connection, and says whether
// there was one (spec §8).
func insert(ctx context.Context, d *db.DB, r *row, ticketHash string) (ok bool, err error) {
	for slot := 1; slot <= 2 && !ok && err == nil; slot++ {
		var res sql.Result
		res, err = d.ExecContext(ctx, `INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, feature, model, mock, status, slot, ticket_hash, ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s, max_cost_mc, created_us)
			VALUES ($1, $2, $3, $4, NULLIF($5, ''), $6, $7, 'pending', $8, $9, $10, 0, 0, 0, $11, $12, $13, $14) ON CONFLICT DO NOTHING`,
			r.ID, r.ConnectionID, r.AccountID, r.AppID, r.Feature, r.Model, bit(r.Mock), slot, ticketHash, r.TicketUntilUS, r.State, r.MaxDurationS, r.MaxCostMC, r.CreatedUS)
		ok = err == nil && changed(res)
	}
	return ok, err
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func changed(res sql.Result) bool {
	n, err := res.RowsAffected()
	return err == nil && n > 0
}

// forget removes a session whose first hold was refused: it never was.
func forget(ctx context.Context, d *db.DB, id string) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM realtime_replies WHERE session_id = $1`, id)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM realtime_sessions WHERE id = $1 AND status = 'pending'`, id)
		}
		return err
	})
}

// useTicket spends a ticket and makes this node run the session; one of several
// that try at once succeeds (F-91).
func (h *Handler) useTicket(ctx context.Context, id, hash string) (bool, error) {
	now := h.Now().UnixMicro()
	res, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET ticket_used_us = $1, node_id = $2, lease_us = $3, node_url = $6
		WHERE id = $4 AND ticket_hash = $5 AND status = 'pending' AND ticket_used_us IS NULL AND ticket_until_us > $1 AND node_id IS NULL AND end_asked IS NULL`,
		now, h.Node, now+lease.Microseconds(), id, hash, h.NodeURL)
	return err == nil && changed(res), err
}

// claim makes this node run a session that nobody runs.
func (h *Handler) claim(ctx context.Context, id string) (bool, error) {
	now := h.Now().UnixMicro()
	res, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET node_id = $1, lease_us = $2, node_url = $5 WHERE id = $3 AND status <> 'ended' AND (node_id IS NULL OR lease_us <= $4)`,
		h.Node, now+lease.Microseconds(), id, now, h.NodeURL)
	return err == nil && changed(res), err
}

// Renew keeps this node's sessions. It is called once a second, and by itself: whatever
// else takes long, four may be late before another node takes over.
func (h *Handler) Renew(ctx context.Context) error {
	h.writes.rows.Lock()
	defer h.writes.rows.Unlock()
	_, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET lease_us = $1 WHERE node_id = $2 AND status <> 'ended'`, h.Now().Add(lease).UnixMicro(), h.Node)
	return err
}

// keep saves a session that this node runs, and says whether it still does.
func (h *Handler) keep(s *session.State, state string) (mine bool, err error) {
	var started *int64
	if s.StartedUS > 0 {
		started = &s.StartedUS
	}
	err = h.write(func(ctx context.Context, tx statements) error {
		res, err := tx.ExecContext(ctx, `UPDATE realtime_sessions SET status = $1, started_us = $2, state = $3 WHERE id = $4 AND node_id = $5 AND status <> 'ended'`,
			s.Status, started, state, s.ID, h.Node)
		mine = err == nil && changed(res)
		return err
	})
	return mine, err
}

// called notes that there is a call at the provider, before anybody else knows it.
func (h *Handler) called(ctx context.Context, id, callID string) error {
	_, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET call_id = $1, hang_up = 1 WHERE id = $2`, callID, id)
	return err
}

// hungUp notes that the call is gone.
func (h *Handler) hungUp(ctx context.Context, id string) error {
	_, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET hang_up = 0 WHERE id = $1`, id)
	return err
}

// addReply names reply n of a session, and returns the name that it has.
func (h *Handler) addReply(sessionID string, n int64) (requestID string, err error) {
	fresh := id.New(id.Request, h.Now())
	err = h.write(func(ctx context.Context, tx statements) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO realtime_replies (request_id, session_id, n) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, fresh, sessionID, n); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT request_id FROM realtime_replies WHERE session_id = $1 AND n = $2`, sessionID, n).Scan(&requestID)
	})
	return requestID, err
}

// billed returns the ledger rows of a session's replies, oldest first.
func billed(ctx context.Context, q db.Queryer, sessionID string) (list []session.Receipt, err error) {
	ids, err := db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT request_id FROM realtime_replies WHERE session_id = $1 ORDER BY n`, sessionID)
	if err != nil {
		return nil, err
	}
	list = []session.Receipt{}
	for _, id := range ids {
		e, err := store.GetEntry(ctx, q, entryOf(id))
		switch {
		case errors.Is(err, sql.ErrNoRows): // it said nothing, or is not over
		case err != nil:
			return nil, err
		default:
			list = append(list, session.NewReceipt(&e))
		}
	}
	return list, nil
}

// Get returns a session of a connection, or 404.
func (h *Handler) Get(ctx context.Context, connectionID, id string) (Session, error) {
	return h.whole(ctx, id, func(r *row) bool { return r.ConnectionID == connectionID })
}

// OfApp returns a session of an app, or 404.
func (h *Handler) OfApp(ctx context.Context, appID, id string) (Session, error) {
	return h.whole(ctx, id, func(r *row) bool { return r.AppID == appID })
}

// whole returns a session with its receipts if it is what it must be, or 404.
func (h *Handler) whole(ctx context.Context, id string, is func(*row) bool) (Session, error) {
	r, err := getRow(ctx, h.DB, id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !is(&r) {
		return Session{}, apierr.NotFound.Errorf("no such session")
	} else if err != nil {
		return Session{}, err
	}
	receipts, err := billed(ctx, h.DB, id)
	if err != nil {
		return Session{}, err
	}
	return r.resource(receipts)
}

// A Filter chooses sessions for List: of a connection, an app or an account.
type Filter struct {
	ConnectionID, AppID, AccountID string
	Before                         string // an id; "" = from the newest
	Limit                          int
}

// List returns sessions, newest first, without receipts: of those that have not
// ended, charge and count are what is billed so far.
func (h *Handler) List(ctx context.Context, f Filter) (list []Session, err error) {
	if f.Before == "" {
		f.Before = "~" // behind every id
	}
	found, err := db.QueryAll(ctx, h.DB, scanRow, `SELECT `+rowColumns+` FROM realtime_sessions
		WHERE ($1 = '' OR connection_id = $1) AND ($2 = '' OR app_id = $2) AND ($3 = '' OR account_id = $3) AND id < $4 ORDER BY id DESC LIMIT $5`,
		f.ConnectionID, f.AppID, f.AccountID, f.Before, f.Limit)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		var receipts []session.Receipt
		if r.ChargedMC == nil {
			if receipts, err = billed(ctx, h.DB, r.ID); err != nil {
				return nil, err
			}
		}
		s, err := r.resource(receipts)
		if err != nil {
			return nil, err
		}
		s.Receipts = nil
		list = append(list, s)
	}
	return list, nil
}

// errEnded says that a session has its end already.
var errEnded = errors.New("voice: the session has ended before")

// finish ends a session and announces it, in one transaction.
func (h *Handler) finish(ctx context.Context, id, reason, state string, gone bool) (s Session, err error) {
	err = h.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		receipts, err := billed(ctx, tx, id)
		if err != nil {
			return err
		}
		var charged money.MC
		for _, r := range receipts {
			charged += r.UserChargeMC
		}
		res, err := tx.ExecContext(ctx, `UPDATE realtime_sessions SET status = 'ended', slot = NULL, end_reason = $1, ended_us = $2, charged_mc = $3, response_count = $4, state = $5,
			hang_up = CASE WHEN $6 = 1 THEN 0 ELSE hang_up END WHERE id = $7 AND status <> 'ended' AND node_id = $8`,
			reason, h.Now().UnixMicro(), charged, len(receipts), state, bit(gone), id, h.Node)
		if err != nil {
			return err
		}
		if !changed(res) {
			return errEnded
		}
		r, err := getRow(ctx, tx, id)
		if err != nil {
			return err
		}
		if s, err = r.resource(receipts); err != nil {
			return err
		}
		_, err = h.Ledger.DoTx(ctx, tx, rules.EmitEvent{ConnectionID: r.ConnectionID, Type: "realtime_session.ended", Data: string(mustJSON(map[string]any{"session": s}))})
		return err
	})
	if err != nil && !errors.Is(err, errEnded) {
		err = fmt.Errorf("voice: end of %s: %w", id, err)
	}
	return s, err
}
