package accounts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// An EventKind is the kind of a security event.
type EventKind string

// The kinds of security events. They are stored.
const (
	SignedIn              EventKind = "signed-in"
	SignInFailed          EventKind = "sign-in-failed"
	CodeFailed            EventKind = "code-failed"
	Confirmed             EventKind = "confirmed"
	ResetRequested        EventKind = "reset-asked"
	PasswordChanged       EventKind = "password-changed"
	EmailChangeRequested  EventKind = "email-asked"
	EmailChanged          EventKind = "email-changed"
	TwoStepEnabled        EventKind = "two-step-on"
	TwoStepDisabled       EventKind = "two-step-off"
	RecoveryCodeUsed      EventKind = "recovery-used"
	RecoveryCodesReplaced EventKind = "recovery-made"
	PasskeyAdded          EventKind = "passkey-added"
	PasskeyRemoved        EventKind = "passkey-removed"
	PasskeyFailed         EventKind = "passkey-failed"
	PasskeyCopied         EventKind = "passkey-copied" // its signature counter went backwards
	AuthenticatorAdded    EventKind = "app-added"      // an authenticator app
	AuthenticatorRemoved  EventKind = "app-removed"
	ProviderLinked        EventKind = "provider-linked"
	ProviderUnlinked      EventKind = "provider-unlinked"
	ProviderRefused       EventKind = "provider-refused" // a login that is not linked gave the account's email
	SessionEnded          EventKind = "session-ended"
	SignedOut             EventKind = "signed-out"     // of all sessions, by an operator
	TwoStepReset          EventKind = "two-step-reset" // by an operator
	Suspended             EventKind = "suspended"      // by an operator
	Reinstated            EventKind = "reinstated"     // by an operator
	DeveloperEnabled      EventKind = "developer-on"
	DataExported          EventKind = "data-exported"
	AccountClosed         EventKind = "account-closed"
	MemberInvited         EventKind = "member-invited" // into an app
	InvitationRevoked     EventKind = "invitation-revoked"
	MemberChanged         EventKind = "member-changed" // a role in an app, of the account or by it
	MemberRemoved         EventKind = "member-removed" // from an app, of the account or by it
	AppJoined             EventKind = "app-joined"
	AppLeft               EventKind = "app-left"
)

// An Event is a security event of an account.
type Event struct {
	ID        string
	AccountID string
	Kind      EventKind
	Client
	CreatedUS int64
}

// A Client is the origin of a request.
type Client struct {
	Address string // without a port
	Agent   string // the User-Agent header
}

// Network returns what attempts of the client are counted by.
func (c Client) Network() string { return web.NetworkOf(c.Address) }

// maxAgentBytes bounds the stored part of a User-Agent header.
const maxAgentBytes = 300

// ClientOf returns the origin of a request.
func ClientOf(r *http.Request) Client {
	agent := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "")
	if len(agent) > maxAgentBytes {
		agent = strings.ToValidUTF8(agent[:maxAgentBytes], "")
	}
	return Client{web.ClientAddress(r), agent}
}

// DefaultRetention is how long security events are kept if the operator sets nothing else.
const DefaultRetention = 365 * 24 * time.Hour

const (
	// maxQueuedEvents bounds the queue between two flushes; further events are dropped.
	maxQueuedEvents = 10_000
	eventPrefix     = "sev_"
	eventsPerTx     = 500              // written by one statement
	flushTimeout    = 10 * time.Second // of each transaction
)

// eventQueue holds events until a flush has written them.
type eventQueue struct {
	flushing sync.Mutex // one flush at a time
	mu       sync.Mutex
	list     []Event
}

// RecordEvent writes an event in the caller's transaction, with the change that it reports.
func (s *Store) RecordEvent(ctx context.Context, tx *db.Tx, accountID string, kind EventKind, from Client) error {
	if err := insertEvent(ctx, tx, s.newEvent(accountID, kind, from)); err != nil {
		return fmt.Errorf("accounts: event: %w", err)
	}
	return nil
}

// QueueEvent adds an event without a write, so that a stranger's attempt takes equally long whether
// or not the account exists. FlushEvents writes it.
func (s *Store) QueueEvent(accountID string, kind EventKind, from Client) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if len(s.queue.list) < maxQueuedEvents {
		s.queue.list = append(s.queue.list, s.newEvent(accountID, kind, from))
	}
}

func (s *Store) newEvent(accountID string, kind EventKind, from Client) Event {
	now := s.now()
	return Event{
		ID:        id.New(eventPrefix, now),
		AccountID: accountID,
		Kind:      kind,
		Client:    from,
		CreatedUS: now.UnixMicro(),
	}
}

// FlushEvents writes the queued events. Those of all accounts are in it, so it does not end with ctx, which is of one
// request, and events that are not written stay queued. Their ids let a flush repeat whose outcome is not known. Each
// transaction writes a slice, so that a slow database does not undo the work of all.
func (s *Store) FlushEvents(ctx context.Context) error {
	s.queue.flushing.Lock()
	defer s.queue.flushing.Unlock()
	for list := range slices.Chunk(s.queue.copy(""), eventsPerTx) {
		if err := s.writeEvents(context.WithoutCancel(ctx), list); err != nil {
			return fmt.Errorf("accounts: write events: %w", err)
		}
		s.queue.drop(len(list))
	}
	return nil
}

func (s *Store) writeEvents(ctx context.Context, list []Event) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return insertQueuedEvents(ctx, tx, list)
	})
}

// drop forgets the first n events. Later ones came behind them.
func (q *eventQueue) drop(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.Clone(q.list[n:])
}

// copy returns the queued events of an account; "" = of all.
func (q *eventQueue) copy(accountID string) (list []Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.list {
		if accountID == "" || e.AccountID == accountID {
			list = append(list, e)
		}
	}
	return list
}

// ListEvents returns the latest events of an account, newest first, with those that this node has not written yet.
func (s *Store) ListEvents(ctx context.Context, accountID string, limit int) ([]Event, error) {
	queued := s.queue.copy(accountID) // first, so that a flush between the two reads hides none
	list, err := listEvents(ctx, s.db, accountID, limit)
	if err != nil {
		return nil, fmt.Errorf("accounts: events: %w", err)
	}
	for _, e := range queued {
		if !slices.ContainsFunc(list, func(written Event) bool { return written.ID == e.ID }) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Event) int { return cmp.Compare(b.ID, a.ID) })
	return list[:min(len(list), limit)], nil
}
