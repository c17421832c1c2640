package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// This file stops connections and lets them go on (decisions 025, 123). A connection has a set of causes: it is frozen
// while there is one, and each is ended by who may end it. A call looks only at the connection's status.

// FreezeCause is the kind of a cause why a connection is frozen.
type FreezeCause string

// The causes of a freeze.
const (
	FrozenByRisk     FreezeCause = "risk"     // it spent far more than usual
	FrozenByUser     FreezeCause = "user"     // its user paused it
	FrozenByPayment  FreezeCause = "payment"  // a payment of its user is disputed, or the balance is below zero
	FrozenByOperator FreezeCause = "operator" // the operator paused it, or suspended its account
)

// freezeCauses are the causes from the weakest to the strongest. A connection shows its strongest: its user can do
// least about that.
var freezeCauses = []FreezeCause{FrozenByUser, FrozenByRisk, FrozenByPayment, FrozenByOperator}

// strength orders the causes. Of no cause it is -1.
func (c FreezeCause) strength() int { return slices.Index(freezeCauses, c) }

// Subjects of causes that are no ids: an account has one of each at most.
const (
	BelowZero  = "below_zero" // of FrozenByPayment: the balance is below zero
	Suspension = "suspension" // of FrozenByOperator: the operator has suspended the account
)

// FreezeRow is one row of freezes: a cause that holds now.
type FreezeRow struct {
	ConnectionID string
	Cause        FreezeCause
	Subject      string // tells two of a kind apart: a dispute, an operator's action, BelowZero, Suspension
	Actor        string // who stopped it: an account, an operator, the payment; "" = a rule, or an earlier version
	Reason       string // the operator's, in words that app and user may read; "" = none
	SinceUS      int64
}

// Key names a cause, and no later one of its kind, for a page that says which causes it showed.
func (f FreezeRow) Key() string {
	return string(cmp.Or(f.Cause, FrozenByRisk)) + ":" + f.Subject + ":" + strconv.FormatInt(f.SinceUS, 10)
}

// JoinKeys writes the keys of causes as one text.
func JoinKeys(causes []FreezeRow) string {
	var keys []string
	for _, f := range causes {
		keys = append(keys, f.Key())
	}
	return strings.Join(keys, ",")
}

// SplitKeys reads the text of JoinKeys. It is never nil, which would name all causes.
func SplitKeys(text string) []string { return strings.Split(text, ",") }

// OpenDispute is one row of open_disputes: a dispute of a payment that is not decided.
type OpenDispute struct {
	DisputeID, PaymentID, AccountID string
	SinceUS                         int64
}

// Freeze adds a cause to a connection, which is frozen from then on. A cause that it has already stays as it is. A user
// who pauses it gets no notice. Running calls end now if its user or the operator pauses it (decision 067).
type Freeze struct {
	ConnectionID string
	By           FreezeCause
	Subject      string // the operator's action; "" for the others
	Actor        string // who pauses it
	Reason       string // the operator's, in words that app and user may read; "" = none
}

// Resume ends the causes that who resumes may end; the connection is active once none is left. Its user ends the pauses
// by the user and by the risk layer, an operator those by operators and by the risk layer. Both end the cause of a
// balance below zero once it no longer is. If no cause can be ended, Resume is refused. The risk thresholds count spend
// from the moment when the connection is active.
type Resume struct {
	ConnectionID   string
	By             FreezeCause // FrozenByUser or FrozenByOperator; "" = the user
	DespiteDispute bool        // the operator ends the causes of open disputes, too
	FasterSpend    int64       // 1 to 3: times the usual pace that the user allows from now on; 0 leaves it
	OnlyFrozenBy   FreezeCause // refuse a freeze that shows another cause; "" = any
	Shown          []string    // keys of the causes that who resumes was shown, the only ones that end; nil = all
}

// AddFreeze adds a cause that a command may end.
func (s *State) AddFreeze(row FreezeRow) {
	s.freezes[row.ConnectionID] = append(s.freezes[row.ConnectionID], row)
}

// AddOpenDispute adds a dispute that a command may end, or that refuses one.
func (s *State) AddOpenDispute(d OpenDispute) { s.disputes = append(s.disputes, d) }

func (s *State) openDispute(d OpenDispute) {
	s.AddOpenDispute(d)
	s.Changes.OpenedDisputes, s.Changes.MustSync = append(s.Changes.OpenedDisputes, d), true
}

// endDispute reports whether the dispute was open.
func (s *State) endDispute(paymentID, disputeID string) bool {
	i := slices.IndexFunc(s.disputes, func(d OpenDispute) bool {
		return d.PaymentID == paymentID && d.DisputeID == disputeID
	})
	if i < 0 {
		return false
	}
	s.Changes.EndedDisputes, s.Changes.MustSync = append(s.Changes.EndedDisputes, s.disputes[i]), true
	s.disputes = slices.Delete(s.disputes, i, i+1)
	return true
}

// refuseDisputed refuses what the user of an account may not do while one of its payments is disputed.
func (s *State) refuseDisputed(accountID, connectionID string) error {
	if !slices.ContainsFunc(s.disputes, func(d OpenDispute) bool { return d.AccountID == accountID }) {
		return nil
	}
	return apierr.ConnectionFrozen.On(connectionID, "One of your payments is disputed. Until your bank has decided, "+
		"you can’t connect apps, resume them or raise a spend cap.")
}

// frozenText is what an app reads of a frozen connection, by the cause that it shows.
var frozenText = map[FreezeCause]string{
	"":               "this connection is paused until its user resumes it",
	FrozenByUser:     "this connection is paused until its user resumes it",
	FrozenByRisk:     "this connection is paused until its user resumes it",
	FrozenByPayment:  "this connection is paused because of a payment of its user",
	FrozenByOperator: "this connection is paused by the service",
}

// freezeNotices are the notices to the user, by the cause of the freeze.
var freezeNotices = map[FreezeCause]string{
	FrozenByRisk:     NoticeFrozen,
	FrozenByPayment:  NoticeFrozenPayment,
	FrozenByOperator: NoticeFrozenOperator,
}

// addFreeze adds a cause to a connection that is not revoked. If the connection shows it from now on, app and user are
// told. The other causes need not be loaded: the connection shows the strongest of them already.
func (s *State) addFreeze(conn *Connection, row FreezeRow, nowUS int64) {
	row.ConnectionID, row.SinceUS = conn.ID, nowUS
	shows := row.Cause.strength() > conn.FrozenBy.strength()
	event := "connection.updated"
	if conn.Status == Active {
		// An older node resumes without the rows.
		delete(s.freezes, conn.ID)
		s.Changes.EndedFreezes = append(s.Changes.EndedFreezes, FreezeRow{ConnectionID: conn.ID})
		shows, event = true, "connection.frozen"
	}
	isSame := func(f FreezeRow) bool { return f.Cause == row.Cause && f.Subject == row.Subject }
	if !slices.ContainsFunc(s.freezes[conn.ID], isSame) {
		s.AddFreeze(row)
		s.Changes.Freezes, s.Changes.MustSync = append(s.Changes.Freezes, row), true
	}
	if !shows {
		return
	}
	conn.Status, conn.FrozenBy, conn.FrozenReason = Frozen, row.Cause, row.Reason
	s.emitConnectionEvent(event, conn, nowUS)
	if notice := freezeNotices[row.Cause]; notice != "" {
		s.notifyUser(notice, conn, nowUS)
	}
}

// endFreezes ends the causes of a frozen connection that match, and reports whether there were any. Without another one
// the connection is active, unless the balance is below zero. The causes must be loaded.
func (s *State) endFreezes(conn *Connection, match func(*FreezeRow) bool, nowUS int64) bool {
	var left []FreezeRow
	ended := 0
	for _, f := range s.causesOf(conn) {
		if !match(&f) {
			left = append(left, f)
			continue
		}
		ended++
		s.Changes.EndedFreezes = append(s.Changes.EndedFreezes, f)
	}
	if ended == 0 {
		return false
	}
	s.Changes.MustSync = true
	if len(left) == 0 && s.Balances[conn.AccountID].AvailableMC < 0 {
		below := FreezeRow{ConnectionID: conn.ID, Cause: FrozenByPayment, Subject: BelowZero, SinceUS: nowUS}
		left, s.Changes.Freezes = append(left, below), append(s.Changes.Freezes, below)
	}
	s.freezes[conn.ID] = left
	before := FreezeRow{Cause: conn.FrozenBy, Reason: conn.FrozenReason}
	if len(left) == 0 {
		delete(s.freezes, conn.ID)
		conn.Status, conn.FrozenBy, conn.FrozenReason = Active, "", ""
		conn.Forgiven = conn.Spent.Since(time.UnixMicro(nowUS), limits.RiskWindow)
		s.emitConnectionEvent("connection.resumed", conn, nowUS)
		return true
	}
	shown := strongest(left)
	if conn.FrozenBy, conn.FrozenReason = shown.Cause, shown.Reason; shown.Cause != before.Cause ||
		shown.Reason != before.Reason {
		s.emitConnectionEvent("connection.updated", conn, nowUS)
	}
	return true
}

// causesOf returns the causes of a frozen connection. An older node keeps only the one that the connection shows.
func (s *State) causesOf(conn *Connection) []FreezeRow {
	if list := s.freezes[conn.ID]; len(list) > 0 || conn.Status != Frozen {
		return list
	}
	return []FreezeRow{{
		ConnectionID: conn.ID,
		Cause:        cmp.Or(conn.FrozenBy, FrozenByRisk),
		Reason:       conn.FrozenReason,
	}}
}

// compareFreezes orders the causes of a connection: the strongest first, of one kind the oldest.
func compareFreezes(a, b FreezeRow) int {
	return cmp.Or(b.Cause.strength()-a.Cause.strength(), cmp.Compare(a.SinceUS, b.SinceUS),
		cmp.Compare(a.Subject, b.Subject))
}

// strongest returns the cause that a connection shows.
func strongest(list []FreezeRow) FreezeRow { return slices.MinFunc(list, compareFreezes) }

// SortFreezes puts the causes of a connection in order: the one that it shows comes first.
func SortFreezes(list []FreezeRow) { slices.SortFunc(list, compareFreezes) }

func (c Freeze) addKeys(w *RowKeys) { w.Connections[c.ConnectionID] = "" }

func (c Resume) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.Freezes = true
}

func (c Freeze) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	switch {
	case err != nil:
		return Result{}, err
	case conn.Status == Revoked:
		return Result{}, cannotChangeRevoked(c.ConnectionID)
	case c.By.strength() < 0:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "by: %q is not a cause of a freeze", c.By)
	}
	s.addFreeze(conn, FreezeRow{Cause: c.By, Subject: c.Subject, Actor: c.Actor, Reason: c.Reason}, nowUS)
	if c.By == FrozenByUser || c.By == FrozenByOperator {
		s.stopCalls(conn.ID, StoppedByPause, nowUS)
	}
	return Result{Connection: *conn}, nil
}

func (c Resume) apply(s *State, nowUS int64) (Result, error) {
	if c.FasterSpend < 0 || c.FasterSpend > 3 {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "faster: must be from 1 to 3")
	}
	conn, err := s.connection(c.ConnectionID)
	switch {
	case err != nil:
		return Result{}, err
	case conn.Status == Revoked:
		return Result{}, cannotChangeRevoked(c.ConnectionID)
	case conn.Status == Active:
		return Result{Connection: *conn}, nil
	case c.OnlyFrozenBy != "" && conn.FrozenBy != c.OnlyFrozenBy:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "this connection is paused for another reason")
	case s.Balances[conn.AccountID].AvailableMC < 0:
		return Result{},
			apierr.InvalidRequest.On(c.ConnectionID,
				"A payment was reversed and your balance is %s below zero. Top up first.",
				(-s.Balances[conn.AccountID].AvailableMC).Display())
	}
	if !s.endFreezes(conn, func(f *FreezeRow) bool { return c.isShown(f) && c.Ends(f) }, nowUS) {
		causes := s.causesOf(conn)
		if slices.ContainsFunc(causes, func(f FreezeRow) bool { return !c.isShown(&f) }) {
			return Result{}, apierr.InvalidRequest.On(c.ConnectionID,
				"What keeps this connection paused has changed since the page was shown. Look again before you "+
					"resume it.")
		}
		return Result{}, c.refuse(strongest(causes))
	}
	if c.FasterSpend > 0 {
		conn.FasterSpend = c.FasterSpend
		s.Changes.Connections[conn.ID], s.Changes.Settings[conn.ID] = true, true
	}
	return Result{Connection: *conn}, nil
}

// isShown reports whether who resumes was shown a cause.
func (c Resume) isShown(f *FreezeRow) bool {
	return c.Shown == nil || slices.Contains(c.Shown, f.Key())
}

// Ends reports whether who resumes may end a cause.
func (c Resume) Ends(f *FreezeRow) bool {
	byOperator := c.By == FrozenByOperator
	switch f.Cause {
	case FrozenByUser:
		return !byOperator
	case FrozenByRisk:
		return true
	case FrozenByPayment:
		return f.Subject == BelowZero || byOperator && c.DespiteDispute
	}
	return byOperator && f.Subject != Suspension
}

// refuse says what keeps a connection stopped.
func (c Resume) refuse(f FreezeRow) error {
	text := map[FreezeCause]string{
		FrozenByUser: "its user has paused this connection, and only the user resumes it",
		FrozenByPayment: "One of your payments is disputed. This app stays paused until your bank has decided, and " +
			"goes on by itself if nothing else keeps it paused.",
		FrozenByOperator: "We paused this app. Please contact support.",
	}[f.Cause]
	if c.By == FrozenByOperator {
		switch {
		case f.Subject == Suspension:
			text = "the account is suspended; lifting the suspension resumes the connection"
		case f.Cause == FrozenByPayment:
			text = "a payment of the account is disputed (" + f.Subject + "); to resume the connection before it is " +
				"decided, give a reason"
		}
	}
	return apierr.InvalidRequest.On(c.ConnectionID, "%s", text)
}
