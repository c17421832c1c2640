package accounts

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// A Kind says what happened to the security of an account.
type Kind string

// The kinds of events.
const (
	SignedIn         Kind = "signed-in"
	SignInFailed     Kind = "sign-in-failed"
	CodeFailed       Kind = "code-failed"
	Confirmed        Kind = "confirmed"
	ResetAsked       Kind = "reset-asked"
	PasswordChanged  Kind = "password-changed"
	EmailAsked       Kind = "email-asked"
	EmailChanged     Kind = "email-changed"
	TwoStepOn        Kind = "two-step-on"
	TwoStepOff       Kind = "two-step-off"
	RecoveryUsed     Kind = "recovery-used"
	RecoveryMade     Kind = "recovery-made"
	PasskeyAdded     Kind = "passkey-added"
	PasskeyRemoved   Kind = "passkey-removed"
	PasskeyFailed    Kind = "passkey-failed"
	PasskeyCopied    Kind = "passkey-copied" // its counter went backwards
	AppAdded         Kind = "app-added"      // an authenticator app
	AppRemoved       Kind = "app-removed"
	ProviderLinked   Kind = "provider-linked"
	ProviderUnlinked Kind = "provider-unlinked"
	ProviderRefused  Kind = "provider-refused" // somebody proved the address at the provider, with a login that is not linked
	SessionEnded     Kind = "session-ended"
	DeveloperOn      Kind = "developer-on"
	DataExported     Kind = "data-exported"
	AccountClosed    Kind = "account-closed"
)

// An Event is one thing that happened to the security of an account.
type Event struct {
	ID        string
	AccountID string
	Kind      Kind
	Client
	CreatedUS int64
}

// A Client is where a request came from.
type Client struct {
	Address string // without a port
	Agent   string // what the browser says it is
}

// maxAgent is how much of a browser's name is kept.
const maxAgent = 300

// ClientOf returns where the request came from.
func ClientOf(r *http.Request) Client {
	agent := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "")
	if len(agent) > maxAgent {
		agent = strings.ToValidUTF8(agent[:maxAgent], "")
	}
	return Client{web.Address(r), agent}
}

const (
	eventsKept = 365 * 24 * time.Hour
	// maxWaiting bounds the events that wait to be written: what strangers cause
	// beyond it between two writes is forgotten.
	maxWaiting  = 10_000
	eventPrefix = "sev_"
)

// waiting holds events until the next write.
type waiting struct {
	mu   sync.Mutex
	list []Event
}

// Record adds an event in the caller's transaction, together with what it tells.
func (s *Store) Record(ctx context.Context, tx *db.Tx, accountID string, kind Kind, from Client) error {
	if err := insertEvent(ctx, tx, s.event(accountID, kind, from)); err != nil {
		return fmt.Errorf("accounts: event: %w", err)
	}
	return nil
}

// Later adds an event without a write: what a stranger's try causes must take as
// long for an account that exists as for one that does not. WriteEvents writes it.
func (s *Store) Later(accountID string, kind Kind, from Client) {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	if len(s.waiting.list) < maxWaiting {
		s.waiting.list = append(s.waiting.list, s.event(accountID, kind, from))
	}
}

func (s *Store) event(accountID string, kind Kind, from Client) Event {
	now := s.now()
	return Event{ID: id.New(eventPrefix, now), AccountID: accountID, Kind: kind, Client: from, CreatedUS: now.UnixMicro()}
}

// WriteEvents writes the events that wait.
func (s *Store) WriteEvents(ctx context.Context) error {
	s.waiting.mu.Lock()
	list := s.waiting.list
	s.waiting.list = nil
	s.waiting.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, e := range list {
			if err := insertEvent(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("accounts: write events: %w", err)
	}
	return nil
}

// Events returns what happened to an account last, newest first.
func (s *Store) Events(ctx context.Context, accountID string, limit int) ([]Event, error) {
	if err := s.WriteEvents(ctx); err != nil {
		return nil, err
	}
	list, err := eventsOf(ctx, s.db, accountID, limit)
	if err != nil {
		return nil, fmt.Errorf("accounts: events: %w", err)
	}
	return list, nil
}

func insertEvent(ctx context.Context, tx *db.Tx, e Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO security_events (id, account_id, kind, address, agent, created_us) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, e.AccountID, string(e.Kind), e.Address, e.Agent, e.CreatedUS)
	return err
}

func eventsOf(ctx context.Context, q db.Queryer, accountID string, limit int) ([]Event, error) {
	return db.List(ctx, q, db.Fields(func(e *Event) []any {
		return []any{&e.ID, &e.AccountID, &e.Kind, &e.Address, &e.Agent, &e.CreatedUS}
	}), `SELECT id, account_id, kind, address, agent, created_us FROM security_events WHERE account_id = $1 ORDER BY id DESC LIMIT $2`, accountID, limit)
}

func deleteEventsOf(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM security_events WHERE account_id = $1`, accountID)
	return err
}

func deleteEvents(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.ExecContext(ctx, `DELETE FROM security_events WHERE created_us < $1`, beforeUS)
	return err
}
