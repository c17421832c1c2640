package voice

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// leaseTTL is how long a node owns a session without renewing its lease. Another node takes the
// session over after it: audio goes unmetered for at most 15 s (F-86). A node that was only slow
// loses no money by that, because the ledger charges a reply once.
const leaseTTL = 5 * time.Second

// maxSessions is how many pending and live sessions a connection may have (contract §8).
const maxSessions = 2

// Store reads and writes voice sessions. It has all SQL of realtime_sessions and realtime_replies.
type Store struct {
	DB      *db.DB
	Ledger  *store.Writer // announces the end of a session in its transaction
	NodeID  string        // this process
	NodeURL string        // where other nodes reach it; "" = they cannot
	Now     func() time.Time

	clock   func() time.Time // in place of all clocks by which leases last, for tests
	commits groupCommitter
}

// leaseMoment returns the moment by which leases are written and judged: by the clock that all nodes share (decision
// 121).
func (s *Store) leaseMoment() db.Moment {
	if s.clock != nil {
		return db.At(s.clock())
	}
	return s.DB.Moment()
}

// passing returns a time for durations.
func (s *Store) passing() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

// row is one row of realtime_sessions.
type row struct {
	ID              string
	ConnectionID    string
	AccountID       string
	AppID           string
	Feature         string
	Model           string
	Mock            bool
	Status          session.Status
	TicketExpiresUS int64
	NodeID          string // the node that runs it; "" = none
	NodeURL         string
	LeaseUS         int64
	CallID          string
	DeveloperKey    bool
	EndRequested    string // "", after_heard or immediate
	TicketUsed      bool
	State           string // a savedSession; only to insert it, as lists do not read it
	Ending          bool   // with ControlAttached: as the state says
	ControlAttached bool
	MaxDurationS    int64
	MaxCostMC       *money.MC
	ChildID         string // the child that pays; "" = the connection itself
	EndReason       *string
	CreatedUS       int64
	StartedUS       *int64
	EndedUS         *int64
	ChargedMC       *money.MC // with ReplyCount: once the session has ended
	ReplyCount      *int64
}

const rowColumns = `id, connection_id, account_id, app_id, COALESCE(feature, ''), model, mock, status, ticket_until_us,
	COALESCE(node_id, ''), node_url, lease_us, COALESCE(call_id, ''), own_key, COALESCE(end_asked, ''),
	max_duration_s, max_cost_mc, COALESCE(child_id, ''), end_reason, created_us, started_us, ended_us, charged_mc,
	response_count, CASE WHEN ticket_used_us IS NULL THEN 0 ELSE 1 END, ending, control_attached`

func scanRow(s db.Row) (r row, err error) {
	var mock, developerKey, ticketUsed, ending, attached int64
	err = s.Scan(&r.ID, &r.ConnectionID, &r.AccountID, &r.AppID, &r.Feature, &r.Model, &mock, &r.Status,
		&r.TicketExpiresUS,
		&r.NodeID, &r.NodeURL, &r.LeaseUS, &r.CallID, &developerKey, &r.EndRequested,
		&r.MaxDurationS, &r.MaxCostMC, &r.ChildID, &r.EndReason, &r.CreatedUS, &r.StartedUS, &r.EndedUS, &r.ChargedMC,
		&r.ReplyCount, &ticketUsed, &ending, &attached)
	r.Mock, r.DeveloperKey, r.TicketUsed = mock == 1, developerKey == 1, ticketUsed == 1
	r.Ending, r.ControlAttached = ending == 1, attached == 1
	return r, err
}

// endedAt returns when a session ended.
func (r *row) endedAt() time.Time {
	if r.EndedUS == nil {
		return time.Time{}
	}
	return time.UnixMicro(*r.EndedUS)
}

// getRow returns a session, or sql.ErrNoRows.
func getRow(ctx context.Context, q db.Queryer, sessionID string) (row, error) {
	return scanRow(q.QueryRowContext(ctx, `SELECT `+rowColumns+` FROM realtime_sessions WHERE id = $1`, sessionID))
}

// changed reports whether a statement changed a row.
func changed(res sql.Result) bool {
	n, err := res.RowsAffected()
	return err == nil && n > 0
}

// savedSession is what a row keeps of a session for the node that runs it.
type savedSession struct {
	State session.State
	Terms billingTerms
	// FirstCall is the first reply as it is held, until the browser comes.
	FirstCall *rules.Call `json:",omitempty"`
}

// loadSession returns what a session's row keeps.
func (s *Store) loadSession(ctx context.Context, sessionID string) (saved savedSession, err error) {
	var state string
	err = s.DB.QueryRowContext(ctx, `SELECT state FROM realtime_sessions WHERE id = $1`, sessionID).Scan(&state)
	if err != nil {
		return saved, err
	}
	if err := json.Unmarshal([]byte(state), &saved); err != nil {
		return saved, err
	}
	return saved, saved.Terms.parseRates()
}

// insertSession adds a pending session. It reports false if its connection has maxSessions already.
func (s *Store) insertSession(ctx context.Context, r *row, ticketHash string) (ok bool, err error) {
	for slot := 1; slot <= maxSessions && !ok && err == nil; slot++ {
		var res sql.Result
		res, err = s.DB.ExecContext(ctx,
			`INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, feature, model,
				mock, status, slot, ticket_hash, ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s,
				max_cost_mc, created_us, child_id)
			VALUES ($1, $2, $3, $4, NULLIF($5, ''), $6, $7, 'pending', $8, $9, $10, 0, 0, 0, $11, $12, $13, $14, $15)
			ON CONFLICT DO NOTHING`,
			r.ID, r.ConnectionID, r.AccountID, r.AppID, r.Feature, r.Model, db.BoolInt(r.Mock), slot, ticketHash,
			r.TicketExpiresUS, r.State, r.MaxDurationS, r.MaxCostMC, r.CreatedUS, db.NullText(r.ChildID))
		ok = err == nil && changed(res)
	}
	return ok, err
}

// listOpen returns the sessions that a holder sees and that have not ended, oldest first.
func (s *Store) listOpen(ctx context.Context, h Holder) (sessionIDs []string, err error) {
	return db.QueryAll(ctx, s.DB, db.ScanColumn[string], `SELECT id FROM realtime_sessions
		WHERE connection_id = $1 AND slot IS NOT NULL AND ($2 = '' OR child_id = $2) ORDER BY id`,
		h.ConnectionID, h.ChildID)
}

// deletePending removes a session whose first hold was refused, and its reply.
func (s *Store) deletePending(ctx context.Context, sessionID string) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM realtime_replies WHERE session_id = $1`, sessionID)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM realtime_sessions WHERE id = $1 AND status = 'pending'`,
				sessionID)
		}
		return err
	})
}

// saveFirstHold saves a session whose first hold is made.
func (s *Store) saveFirstHold(ctx context.Context, saved *savedSession) error {
	_, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET state = $1, own_key = $2 WHERE id = $3`,
		string(mustJSON(saved)), db.BoolInt(saved.Terms.DeveloperKey), saved.State.ID)
	return err
}

// isTicketUsable reports whether a ticket is the session's and may still be used.
func (s *Store) isTicketUsable(ctx context.Context, sessionID, ticketHash string) (bool, error) {
	var n int
	err := s.DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM realtime_sessions WHERE id = $1 AND ticket_hash = $2
			AND status = 'pending' AND ticket_used_us IS NULL AND ticket_until_us > $3`,
		sessionID, ticketHash, s.Now().UnixMicro()).Scan(&n)
	return n > 0, err
}

// useTicket spends a ticket and makes this node own the session. Of several that try at once, one
// succeeds (F-91).
func (s *Store) useTicket(ctx context.Context, sessionID, ticketHash string) (ok bool, err error) {
	now, end := s.Now().UnixMicro(), s.leaseMoment().Add(leaseTTL)
	res, err := s.DB.ExecContext(ctx,
		`UPDATE realtime_sessions SET ticket_used_us = $1, node_id = $2, lease_us = `+end.SQL("$3")+`, node_url = $6
		WHERE id = $4 AND ticket_hash = $5 AND status = 'pending' AND ticket_used_us IS NULL AND ticket_until_us > $1
			AND node_id IS NULL AND end_asked IS NULL
			AND EXISTS (SELECT 1 FROM connections c WHERE c.id = connection_id AND c.status = 'active')
			AND (child_id IS NULL OR EXISTS (SELECT 1 FROM children d WHERE d.id = child_id
				AND d.ended_us IS NULL AND d.expires_us > $1))`,
		now, s.NodeID, end.Arg(), sessionID, ticketHash, s.NodeURL)
	return err == nil && changed(res), err
}

// requestEnd notes that a session is to end. An immediate end replaces an end after the reply is
// heard.
func (s *Store) requestEnd(ctx context.Context, sessionID, when string) error {
	_, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET end_asked = $1
		WHERE id = $2 AND status <> 'ended' AND (end_asked IS NULL OR $1 = 'immediate')`, when, sessionID)
	return err
}

// claim makes this node own a session that no node owns, or, if isOwn, one that this node owns already. It reports
// false if another node owns it. knownUS is as in listUnowned.
func (s *Store) claim(ctx context.Context, sessionID string, isOwn bool, knownUS int64) (ok bool, err error) {
	now := s.leaseMoment()
	end := now.Add(leaseTTL)
	res, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET node_id = $1, lease_us = `+end.SQL("$2")+`,
			node_url = $5
		WHERE id = $3 AND status <> 'ended' AND (node_id IS NULL OR
			lease_us <= `+now.SQL("$4")+` AND lease_us <= $7 OR $6 = 1 AND node_id = $1)`,
		s.NodeID, end.Arg(), sessionID, now.Arg(), s.NodeURL, db.BoolInt(isOwn), knownUS)
	return err == nil && changed(res), err
}

// ownerOf returns the node that runs a session; "" = none does.
func (s *Store) ownerOf(ctx context.Context, sessionID string) (nodeID string, err error) {
	err = s.DB.QueryRowContext(ctx, `SELECT COALESCE(node_id, '') FROM realtime_sessions WHERE id = $1`,
		sessionID).Scan(&nodeID)
	return nodeID, err
}

// listOwned returns the sessions that this node owns.
func (s *Store) listOwned(ctx context.Context) (sessionIDs []string, err error) {
	return db.QueryAll(ctx, s.DB, db.ScanColumn[string],
		`SELECT id FROM realtime_sessions WHERE node_id = $1 AND status <> 'ended'`, s.NodeID)
}

// endForeignLeases ends the leases of all other processes.
func (s *Store) endForeignLeases(ctx context.Context) error {
	now := s.leaseMoment()
	_, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET lease_us = `+now.SQL("$1")+`
		WHERE node_id <> $2 AND status <> 'ended' AND lease_us > `+now.SQL("$1"), now.Arg(), s.NodeID)
	return err
}

// renewLeases renews the leases of this node's sessions until endUS, and returns the ids of all of them. It leaves out
// rows that are locked, so that one that stays locked ends no other lease; saveState renews the lease of the row that
// it locks.
func (s *Store) renewLeases(ctx context.Context) (sessionIDs []string, endUS int64, err error) {
	end := s.leaseMoment().Add(leaseTTL)
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT CAST(`+end.SQL("$1")+` AS BIGINT)`, end.Arg()).Scan(&endUS)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE realtime_sessions SET lease_us = $1 WHERE id IN (
				SELECT id FROM realtime_sessions WHERE node_id = $2 AND status <> 'ended'`+s.DB.Engine.SkipLocked()+`)`,
			endUS, s.NodeID)
		if err == nil {
			sessionIDs, err = db.QueryAll(ctx, tx, db.ScanColumn[string],
				`SELECT id FROM realtime_sessions WHERE node_id = $1 AND status <> 'ended'`, s.NodeID)
		}
		return err
	})
	return sessionIDs, endUS, err
}

// saveState saves a session, and reports whether this node still owns it.
func (s *Store) saveState(saved *savedSession) (owned bool, err error) {
	state, text := &saved.State, string(mustJSON(saved))
	var started *int64
	if state.StartedUS > 0 {
		started = &state.StartedUS
	}
	end := s.leaseMoment().Add(leaseTTL)
	endSQL := end.SQL("$6")
	err = s.commits.commitInGroup(s.DB, func(ctx context.Context, tx statements) error {
		res, err := tx.ExecContext(ctx, `UPDATE realtime_sessions SET status = $1, started_us = $2, state = $3,
				ending = $7, control_attached = $8,
				lease_us = CASE WHEN lease_us < `+endSQL+` THEN `+endSQL+` ELSE lease_us END
			WHERE id = $4 AND node_id = $5 AND status <> 'ended'`,
			state.Status, started, text, state.ID, s.NodeID, end.Arg(), db.BoolInt(state.Ending != nil),
			db.BoolInt(state.ControlAttached))
		owned = err == nil && changed(res)
		return err
	})
	return owned, err
}

// errAlreadyEnded says that a session has its end, or belongs to another node.
var errAlreadyEnded = errors.New("voice: the session has ended before")

// saveEnd ends a session that this node owns; saveTotals follows. Its call is to be hung up afterwards,
// unless it is gone.
func (s *Store) saveEnd(ctx context.Context, tx *db.Tx, saved *savedSession, callGone bool) error {
	res, err := tx.ExecContext(ctx,
		`UPDATE realtime_sessions SET status = 'ended', slot = NULL, end_reason = $1, ended_us = $2,
			charged_mc = 0, response_count = 0, state = $3, hang_up = CASE WHEN $4 = 1 THEN 0 ELSE hang_up END
		WHERE id = $5 AND status <> 'ended' AND node_id = $6`,
		saved.State.EndReason, s.Now().UnixMicro(), string(mustJSON(saved)), db.BoolInt(callGone), saved.State.ID,
		s.NodeID)
	if err == nil && !changed(res) {
		err = errAlreadyEnded
	}
	return err
}

// saveLateTotals follows each charge: a node that has lost a session may charge a reply after another node has ended
// it. Both lock the session's row before they read its charges, so that whichever comes last counts them all.
func (s *Store) saveLateTotals(ctx context.Context, sessionID string) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var status session.Status
		err := tx.QueryRowContext(ctx, `SELECT status FROM realtime_sessions WHERE id = $1`+s.DB.Engine.ForUpdate(),
			sessionID).Scan(&status)
		if err != nil || status != session.Ended {
			return err
		}
		return s.saveTotals(ctx, tx, sessionID)
	})
}

// saveTotals saves what an ended session charged and how often, by its ledger rows. The caller has locked the
// session's row.
func (s *Store) saveTotals(ctx context.Context, tx *db.Tx, sessionID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE realtime_sessions SET (charged_mc, response_count) = (
			SELECT COALESCE(SUM(l.user_charge_mc), 0), COUNT(CASE WHEN `+isReply+` THEN l.id END)
			FROM realtime_replies r
			JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5) WHERE r.session_id = $1)
		WHERE id = $1 AND status = 'ended'`, sessionID)
	return err
}

// setCall notes that the provider has a call for a session, which is to be hung up.
func (s *Store) setCall(ctx context.Context, sessionID, callID string) error {
	_, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET call_id = $1, hang_up = 1 WHERE id = $2`, callID,
		sessionID)
	return err
}

// setCallOfEnded does so for a session that has ended. It reports false if it has not.
func (s *Store) setCallOfEnded(ctx context.Context, sessionID, callID string) (ok bool, err error) {
	res, err := s.DB.ExecContext(ctx,
		`UPDATE realtime_sessions SET call_id = $1, hang_up = 1 WHERE id = $2 AND status = 'ended'`, callID, sessionID)
	return err == nil && changed(res), err
}

// setCallGone notes that a session's call is hung up.
func (s *Store) setCallGone(ctx context.Context, sessionID string) error {
	_, err := s.DB.ExecContext(ctx, `UPDATE realtime_sessions SET hang_up = 0 WHERE id = $1`, sessionID)
	return err
}

// listCallsToHangUp returns ended sessions whose call may still exist and is to be hung up now, the longest due first.
func (s *Store) listCallsToHangUp(ctx context.Context, nowUS int64) (sessionIDs []string, err error) {
	return db.QueryAll(ctx, s.DB, db.ScanColumn[string], `SELECT id FROM realtime_sessions
		WHERE status = 'ended' AND hang_up = 1 AND hang_up_us <= $1 ORDER BY hang_up_us LIMIT 100`, nowUS)
}

// postponeHangUp puts the next try of a hang-up off by a pause. It reports false if another node has begun the one of
// now.
func (s *Store) postponeHangUp(
	ctx context.Context, sessionID string, now time.Time, pause time.Duration,
) (ok bool, err error) {
	res, err := s.DB.ExecContext(ctx,
		`UPDATE realtime_sessions SET hang_up_us = $1 WHERE id = $2 AND hang_up = 1 AND hang_up_us <= $3`,
		now.Add(pause).UnixMicro(), sessionID, now.UnixMicro())
	return err == nil && changed(res), err
}

// requestIDOf returns the request id of reply n of a session, and assigns one at the first call.
func (s *Store) requestIDOf(sessionID string, n int64) (requestID string, err error) {
	fresh := id.New(id.Request, s.Now())
	err = s.commits.commitInGroup(s.DB, func(ctx context.Context, tx statements) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO realtime_replies (request_id, session_id, n) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, fresh, sessionID, n)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT request_id FROM realtime_replies WHERE session_id = $1 AND n = $2`,
			sessionID, n).Scan(&requestID)
	})
	return requestID, err
}

// errNumberTaken says that the number of a reply belongs to another reply.
var errNumberTaken = errors.New("voice: the reply's number is taken")

// numberReply returns the number by which a reply is charged: n, unless another node has numbered the
// reply before.
func (s *Store) numberReply(sessionID, replyID string, n int64) (number int64, err error) {
	for range 2 { // two nodes may number one reply at the same time
		if number, err = s.tryNumberReply(sessionID, replyID, n); !db.IsDuplicate(err) {
			break
		}
	}
	return number, err
}

func (s *Store) tryNumberReply(sessionID, replyID string, n int64) (number int64, err error) {
	fresh := id.New(id.Request, s.Now())
	err = s.commits.commitInGroup(s.DB, func(ctx context.Context, tx statements) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO realtime_replies (request_id, session_id, n) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, fresh, sessionID, n)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE realtime_replies SET reply_id = $1
			WHERE session_id = $2 AND n = $3 AND reply_id IS NULL AND NOT EXISTS (SELECT 1 FROM realtime_replies
				WHERE session_id = $2 AND reply_id = $1)`, replyID, sessionID, n)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `SELECT n FROM realtime_replies WHERE session_id = $1 AND reply_id = $2`,
			sessionID, replyID).Scan(&number)
		if errors.Is(err, sql.ErrNoRows) {
			number, err = 0, nil // an error would fail the whole batch
		}
		return err
	})
	if err == nil && number == 0 {
		err = errNumberTaken
	}
	return number, err
}

// isReply is the condition that r is a reply and no transcript.
const isReply = `COALESCE(r.reply_id, '') NOT LIKE 'transcript/%'`

// listReceipts returns the receipts of a session's billed replies and transcripts, oldest first.
func listReceipts(ctx context.Context, q db.Queryer, sessionID string) (receipts []session.Receipt, err error) {
	scan := func(r db.Row) (session.Receipt, error) {
		var e rules.Entry // what a receipt needs of it
		var replyID string
		err := r.Scan(&replyID, &e.ID, &e.CreatedUS, &e.Settlement, &e.Usage, &e.ProviderCostMC, &e.SvcFeeMC,
			&e.DevMarginMC,
			&e.UserChargeMC, &e.HoldMC, &e.PaidBy)
		return session.NewReceipt(&e, session.KindOf(replyID)), err
	}
	receipts, err = db.QueryAll(ctx, q, scan, `SELECT COALESCE(r.reply_id, ''), l.id, l.created_us,
			COALESCE(l.settlement, ''),
			COALESCE(l.usage, ''), COALESCE(l.provider_cost_mc, 0), COALESCE(l.svc_fee_mc, 0),
			COALESCE(l.dev_margin_mc, 0), COALESCE(l.user_charge_mc, 0), COALESCE(l.hold_amount_mc, 0),
			COALESCE(l.paid_by, '')
		FROM realtime_replies r JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
		WHERE r.session_id = $1 ORDER BY r.n`, sessionID)
	if receipts == nil {
		receipts = []session.Receipt{} // nil is that of lists
	}
	return receipts, err
}

// setCharged sets what the sessions among rows are billed so far that have not ended.
func setCharged(ctx context.Context, q db.Queryer, rows []row) error {
	open, args := map[string]*row{}, []any{}
	for i := range rows {
		if rows[i].ChargedMC == nil {
			open[rows[i].ID], args = &rows[i], append(args, rows[i].ID)
		}
	}
	if len(args) == 0 {
		return nil
	}
	places := make([]string, len(args))
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	type sum struct {
		sessionID string
		chargedMC money.MC
		replies   int64
	}
	scan := func(r db.Row) (s sum, err error) { return s, r.Scan(&s.sessionID, &s.chargedMC, &s.replies) }
	sums, err := db.QueryAll(ctx, q, scan, `SELECT r.session_id, SUM(l.user_charge_mc),
			COUNT(CASE WHEN `+isReply+` THEN l.id END)
		FROM realtime_replies r JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
		WHERE r.session_id IN (`+strings.Join(places, ", ")+`) GROUP BY r.session_id`, args...)
	for _, s := range sums {
		open[s.sessionID].ChargedMC, open[s.sessionID].ReplyCount = &s.chargedMC, &s.replies
	}
	return err
}

// sessionChange is what happened elsewhere to a session of this node.
type sessionChange struct {
	SessionID        string
	EndRequested     string // "", after_heard or immediate
	ConnectionStatus rules.ConnectionStatus
	AppSuspended     bool
	Stopped          bool // by its user
	ChildEnded       bool // the child that pays has ended
}

// isAppSuspended is the condition that app a is suspended.
var isAppSuspended = apps.SuspendedSQL("a")

// isStopped is the condition that the user of session s has stopped it.
const isStopped = `EXISTS (SELECT 1 FROM stops x WHERE x.request_id = s.id AND x.connection_id = s.connection_id)`

// hasChildEnded is the condition that the child which pays for session s has ended, or that its time is over at $1.
const hasChildEnded = `EXISTS (SELECT 1 FROM children d WHERE d.id = s.child_id
	AND (d.ended_us IS NOT NULL OR d.expires_us <= $1))`

var selectChanges = `SELECT s.id, COALESCE(s.end_asked, ''), c.status,
		CASE WHEN ` + isAppSuspended + ` THEN 1 ELSE 0 END, CASE WHEN ` + isStopped + ` THEN 1 ELSE 0 END,
		CASE WHEN ` + hasChildEnded + ` THEN 1 ELSE 0 END
	FROM realtime_sessions s JOIN connections c ON c.id = s.connection_id JOIN apps a ON a.id = s.app_id`

func scanChange(r db.Row) (c sessionChange, err error) {
	var suspended, stopped, ended int64
	err = r.Scan(&c.SessionID, &c.EndRequested, &c.ConnectionStatus, &suspended, &stopped, &ended)
	c.AppSuspended, c.Stopped, c.ChildEnded = suspended == 1, stopped == 1, ended == 1
	return c, err
}

// haltReason returns why a session's connection, or its child, may not spend now; "" = it may.
func (s *Store) haltReason(ctx context.Context, sessionID string) (string, error) {
	c, err := scanChange(s.DB.QueryRowContext(ctx, selectChanges+` WHERE s.id = $2`, s.Now().UnixMicro(), sessionID))
	return c.haltReason(), err
}

// listChanges returns the sessions of this node that must end, and why.
func (s *Store) listChanges(ctx context.Context) ([]sessionChange, error) {
	return db.QueryAll(ctx, s.DB, scanChange, selectChanges+`
		WHERE s.status <> 'ended' AND s.node_id = $2 AND (s.end_asked IS NOT NULL OR c.status <> 'active' OR `+
		isAppSuspended+` OR `+isStopped+` OR `+hasChildEnded+`)`,
		s.Now().UnixMicro(), s.NodeID)
}

// listUnowned returns sessions that no node owns and that need one: with an expired ticket, asked to
// end, or no longer allowed to spend, and, if ofDead, those of a dead node. knownUS is the clock of leases if it has
// not stepped since this node renewed its own: a step forward ends no lease, and neither does an outage that began
// after knownUS was read.
func (s *Store) listUnowned(ctx context.Context, knownUS int64, ofDead bool) (sessionIDs []string, err error) {
	now := s.leaseMoment()
	return db.QueryAll(ctx, s.DB, db.ScanColumn[string], `SELECT s.id FROM realtime_sessions s
		JOIN connections c ON c.id = s.connection_id JOIN apps a ON a.id = s.app_id
		WHERE s.status <> 'ended' AND ($2 = 1 AND s.node_id IS NOT NULL AND s.lease_us <= `+now.SQL("$3")+`
				AND s.lease_us <= $4
			OR s.node_id IS NULL AND (s.ticket_until_us <= $1 OR s.end_asked IS NOT NULL OR c.status <> 'active'
				OR `+isAppSuspended+` OR `+isStopped+` OR `+hasChildEnded+`))
		LIMIT 200`, s.Now().UnixMicro(), db.BoolInt(ofDead), now.Arg(), knownUS)
}

// listRows returns the sessions that f chooses, newest first.
func (s *Store) listRows(ctx context.Context, f Filter) ([]row, error) {
	if f.Before == "" {
		f.Before = "~" // sorts after every id
	}
	return db.QueryAll(ctx, s.DB, scanRow, `SELECT `+rowColumns+` FROM realtime_sessions
		WHERE ($1 = '' OR connection_id = $1) AND ($2 = '' OR app_id = $2) AND ($3 = '' OR account_id = $3) AND id < $4
			AND ($6 = '' OR child_id = $6)
		ORDER BY id DESC LIMIT $5`,
		f.ConnectionID, f.AppID, f.AccountID, f.Before, f.Limit, f.ChildID)
}

// listOpenOfAccount returns the newest sessions of an account that have not ended.
func (s *Store) listOpenOfAccount(ctx context.Context, accountID string, limit int) ([]row, error) {
	return db.QueryAll(ctx, s.DB, scanRow, `SELECT `+rowColumns+` FROM realtime_sessions
		WHERE slot IS NOT NULL AND account_id = $1 ORDER BY id DESC LIMIT $2`, accountID, limit)
}

// A Filter chooses sessions: those of a connection, of one of its children, of an app or of an account.
type Filter struct {
	ConnectionID string
	ChildID      string
	AppID        string
	AccountID    string
	Before       string // an id; "" = from the newest
	Limit        int
}
