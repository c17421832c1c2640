package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
)

// StopCause is why running calls must end (decision 067).
type StopCause string

// The causes of a stop.
const (
	StoppedByUser       StopCause = "stopped"   // the user stopped this one call
	StoppedByPause      StopCause = "paused"    // the user or the operator paused the connection
	StoppedByRevoke     StopCause = "revoked"   // the user revoked the connection
	StoppedBySuspension StopCause = "suspended" // the operator suspended the app; it has no row of stops
)

// A Stop says that calls that run now must end. The nodes that run them read it. It moves no money: each of the calls
// is settled or released by its node.
type Stop struct {
	ID           string
	ConnectionID string
	RequestID    string // of a call or of a voice session; "" = all calls of the connection
	Cause        StopCause
	CreatedUS    int64
}

// stopCalls has the running calls of a connection ended.
func (s *State) stopCalls(connectionID string, cause StopCause, nowUS int64) {
	s.Changes.Stops = append(s.Changes.Stops, Stop{
		ID:           id.New(id.Stop, time.UnixMicro(nowUS)),
		ConnectionID: connectionID,
		Cause:        cause,
		CreatedUS:    nowUS,
	})
}

// PauseAccount adds a cause to all connections of an account, stopped ones too, and has their running calls ended.
type PauseAccount struct {
	AccountID string
	By        FreezeCause // FrozenByUser or FrozenByOperator
	Subject   string      // the operator's: Suspension
	Actor     string      // who pauses
	Reason    string      // the operator's, in words that apps and user may read; "" = none
}

// ResumeAccount ends what PauseAccount has added for an operator's Subject. A connection without another cause resumes.
type ResumeAccount struct{ AccountID, Subject string }

func (c PauseAccount) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.ConnectionsOf = c.AccountID
}

func (c ResumeAccount) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.ConnectionsOf, w.Freezes = c.AccountID, true
}

func (c PauseAccount) apply(s *State, nowUS int64) (Result, error) {
	if c.By != FrozenByUser && c.By != FrozenByOperator || c.By == FrozenByUser && c.Reason != "" {
		return Result{}, apierr.InvalidRequest.Errorf("by: %q cannot pause an account", c.By)
	}
	for _, conn := range s.connectionsOf(c.AccountID) {
		s.addFreeze(conn, FreezeRow{Cause: c.By, Subject: c.Subject, Actor: c.Actor, Reason: c.Reason}, nowUS)
		s.stopCalls(conn.ID, StoppedByPause, nowUS)
	}
	return Result{}, nil
}

func (c ResumeAccount) apply(s *State, nowUS int64) (Result, error) {
	for _, conn := range s.connectionsOf(c.AccountID) {
		s.endFreezes(conn, func(f *FreezeRow) bool {
			return f.Cause == FrozenByOperator && f.Subject == c.Subject
		}, nowUS)
	}
	return Result{}, nil
}

// connectionsOf returns the loaded connections of an account in the order of their ids, without revoked ones.
func (s *State) connectionsOf(accountID string) (list []*Connection) {
	for _, conn := range s.Connections {
		if conn.AccountID == accountID && conn.Status != Revoked {
			list = append(list, conn)
		}
	}
	slices.SortFunc(list, func(a, b *Connection) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
