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

// PauseAccount freezes all active connections of an account, and has the running calls of its connections ended.
type PauseAccount struct {
	AccountID string
	By        FreezeCause // FrozenByUser or FrozenByOperator
	Reason    string      // the operator's, in words that apps and user may read; "" = none
}

func (c PauseAccount) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.ConnectionsOf = c.AccountID
}

func (c PauseAccount) apply(s *State, nowUS int64) (Result, error) {
	if c.By != FrozenByUser && c.By != FrozenByOperator || c.By == FrozenByUser && c.Reason != "" {
		return Result{}, apierr.InvalidRequest.Errorf("by: %q cannot pause an account", c.By)
	}
	var list []*Connection
	for _, conn := range s.Connections {
		if conn.AccountID == c.AccountID && conn.Status != Revoked {
			list = append(list, conn)
		}
	}
	slices.SortFunc(list, func(a, b *Connection) int { return cmp.Compare(a.ID, b.ID) })
	for _, conn := range list {
		if conn.Status == Active {
			s.freeze(conn, c.By, c.Reason, nowUS)
		}
		s.stopCalls(conn.ID, StoppedByPause, nowUS)
	}
	return Result{}, nil
}
