package feed

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

const (
	// keepAliveInterval is after how much silence a stream gets a comment, and its token is checked
	// again.
	keepAliveInterval = 15 * time.Second
	// readInterval is the least time between two reads of the database by one stream.
	readInterval = 200 * time.Millisecond
	// unavailableWait is the pause after a read that failed because the database is unavailable.
	unavailableWait = time.Second
	// writeTimeout bounds one write. A client that reads more slowly is disconnected.
	writeTimeout = 20 * time.Second
	// rowsPerRead bounds the ledger rows of one read.
	rowsPerRead = 200
)

// Handler serves GET /v1/connection/events.
type Handler struct {
	Hub     *Hub
	Callers *callers.Resolver

	keepAlive time.Duration // keepAliveInterval, but in tests
}

// Mount adds the route.
func (h *Handler) Mount(rt *web.Router) {
	if h.keepAlive == 0 {
		h.keepAlive = keepAliveInterval
	}
	rt.Handle("GET /v1/connection/events", h.streamEvents)
}

// A stream is one client's event stream.
type stream struct {
	*subscription
	hub          *Hub
	w            http.ResponseWriter
	rc           *http.ResponseController
	connectionID string
	accountID    string
	seq          int64            // of the account's chain: up to here it has the connection's rows
	isBehind     bool             // the chain had more rows at the last read
	read         rules.Balance    // of the account, as last read: later rows have to follow it
	sent         rules.Connection // the balance that it has sent
	buffer       []byte
}

// streamEvents answers with the events of the caller's own connection until the client leaves, the
// connection is revoked, the token ends or the node stops.
func (h *Handler) streamEvents(w http.ResponseWriter, r *http.Request) error {
	who, err := h.Callers.Resolve(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	s := &stream{
		hub:          h.Hub,
		w:            w,
		rc:           http.NewResponseController(w),
		connectionID: who.ConnectionID,
		accountID:    who.AccountID,
	}
	if s.subscription, err = h.Hub.subscribe(who.ConnectionID, who.App.OwnerID); err != nil {
		return err
	}
	defer h.Hub.unsubscribe(who.ConnectionID, s.subscription)
	last, err := s.findStart(r)
	if err != nil {
		return err
	}
	if err := s.open(r, last); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return nil
	}
	// A client that has disconnected, or reads too slowly, resumes with the last id that it has.
	_ = h.run(r, s, who)
	return nil
}

// findStart returns the ledger row after which the stream begins, and sets the stream's position. The
// header Last-Event-ID wins over the parameter after, because a browser keeps the URL when it
// reconnects. Without either it is the newest row of the connection, or none if it has none.
func (s *stream) findStart(r *http.Request) (entryID string, err error) {
	ctx := r.Context()
	entryID = r.Header.Get("Last-Event-ID")
	if entryID == "" {
		entryID = r.URL.Query().Get("after")
	}
	if entryID == "" {
		return s.findNewest(ctx)
	}
	e, err := store.GetEntry(ctx, s.hub.DB, entryID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && e.ConnectionID != s.connectionID {
		return "", apierr.InvalidRequest.On(s.connectionID,
			"Last-Event-ID: not the id of an event of this connection; leave it out to begin now")
	}
	s.seq = e.Seq
	return e.ID, err
}

// findNewest returns the newest row of the connection, "" if it has none, and sets the stream's position after the
// account's newest row: what lies between is of other connections.
func (s *stream) findNewest(ctx context.Context) (entryID string, err error) {
	b, err := store.GetBalance(ctx, s.hub.DB, s.accountID)
	if err != nil {
		return "", err
	}
	s.seq = b.Seq
	e, err := store.NewestEntry(ctx, s.hub.DB, s.accountID, s.connectionID, b.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return e.ID, err
}

// open writes the first events: what the client has missed, and the balance. Until then an error has
// its own status. A revoked connection without missed events has no stream.
func (s *stream) open(r *http.Request, lastID string) error {
	events, conn, err := s.readEvents(r.Context())
	if err != nil {
		return err
	}
	if conn.Status == rules.Revoked && len(events) == 0 && !s.isBehind {
		return apierr.ConnectionRevoked.On(s.connectionID, "this connection was revoked; there are no more events")
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	if len(events) > 0 {
		lastID = "" // the events carry newer ones
	}
	return s.send(append(events, s.setBalance(&conn, lastID)))
}

// run writes events until the stream ends. Its error is a failed write, or that of the client's end.
func (h *Handler) run(r *http.Request, s *stream, who *callers.Caller) error {
	ctx := r.Context()
	expiry := time.NewTimer(who.TokenExpires.Sub(h.Hub.Now()))
	defer expiry.Stop()
	keepAlive := time.NewTicker(h.keepAlive)
	defer keepAlive.Stop()
	for s.sent.Status != rules.Revoked || s.isBehind {
		select {
		case <-s.changed:
			if err := s.update(ctx); err != nil {
				return err
			}
		case <-keepAlive.C:
			if _, err := h.Callers.Resolve(r); isUnauthorized(err) {
				return s.send([]event{endEvent(endToken)})
			}
			if err := s.write([]byte(": keep-alive\n\n")); err != nil {
				return err
			}
		case <-expiry.C:
			return s.send([]event{endEvent(endToken)})
		case <-h.Hub.stopped:
			return s.send([]event{endEvent(endShutdown)})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.send([]event{endEvent(endRevoked)})
}

func isUnauthorized(err error) bool {
	var e *apierr.Error
	return errors.As(err, &e) && e.Code == apierr.Unauthorized
}

// update writes what has changed. While the database is unavailable, it writes holds and releases, and
// tries again.
func (s *stream) update(ctx context.Context) error {
	wait := readInterval
	notices := s.takeNotices()
	events, conn, err := s.readEvents(ctx)
	switch {
	case db.IsUnavailable(err) && ctx.Err() == nil:
		wait = unavailableWait
		s.wake()
	case err != nil:
		return errors.Join(err, s.send(notices))
	case len(events) > 0 || hasChanged(&s.sent, &conn):
		events = append(events, s.setBalance(&conn, ""))
	}
	if err := s.send(append(notices, events...)); err != nil {
		return err
	}
	if !retry.Sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// errWentBack says that the database was put back under the node: rows that the stream has passed are gone, or others
// came in their places. The stream breaks off. Its client opens another one from its last event, and gets a 400 if that
// row is gone.
var errWentBack = errors.New("the database went back to an earlier moment")

// readEvents returns the next of the connection's rows after the stream's position, and the connection as it is
// now. It moves the position, over one page of the account's chain at most: a client that begins far back
// reads the rest in steps with pauses, as others do.
func (s *stream) readEvents(ctx context.Context) (events []event, conn rules.Connection, err error) {
	b, err := store.GetBalance(ctx, s.hub.DB, s.accountID)
	if err != nil {
		return nil, conn, err
	}
	if follows, err := store.Follows(ctx, s.hub.DB, &s.read, &b); err != nil {
		return nil, conn, err
	} else if !follows {
		return nil, conn, errWentBack
	}
	seq := s.seq
	if seq < b.Seq {
		rows, next, err := store.SpendsAfter(ctx, s.hub.DB, s.accountID, s.connectionID, seq, b.Seq, rowsPerRead)
		if err != nil {
			return nil, conn, err
		}
		for i := range rows {
			events = append(events, spendEvent(&rows[i]))
		}
		seq = next
	}
	if conn, err = store.GetConnection(ctx, s.hub.DB, s.connectionID); err != nil {
		return nil, conn, err
	}
	s.read = b
	s.seq, s.isBehind = seq, seq < b.Seq
	if s.isBehind { // the rest follows with the next update
		s.wake()
	}
	return events, conn, nil
}

// setBalance notes the balance that is sent, and returns its event.
func (s *stream) setBalance(c *rules.Connection, entryID string) event {
	s.sent = *c
	return balanceEvent(c, entryID)
}

// hasChanged reports whether the event balance would differ.
func hasChanged(a, b *rules.Connection) bool {
	x, y := a.VelocityLimitMC, b.VelocityLimitMC
	sameLimit := x == nil && y == nil || x != nil && y != nil && *x == *y
	return a.AllocationMC != b.AllocationMC || a.ConsumedMC != b.ConsumedMC || a.HeldMC != b.HeldMC ||
		a.Status != b.Status || a.FrozenBy != b.FrozenBy || !sameLimit
}

// send writes events.
func (s *stream) send(events []event) (err error) {
	s.buffer = s.buffer[:0]
	for _, e := range events {
		if s.buffer, err = appendEvent(s.buffer, e); err != nil {
			return err
		}
	}
	if len(s.buffer) == 0 {
		return nil
	}
	return s.write(s.buffer)
}

func (s *stream) write(b []byte) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}
