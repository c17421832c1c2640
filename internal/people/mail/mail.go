package mail

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// prefix begins the ids of mails.
const prefix = "mail_"

// keptFor is how long a mail that was sent or given up stays in the outbox.
const keptFor = 30 * 24 * time.Hour

// A Message is a mail to an account.
type Message struct {
	AccountID   string
	To          string // an address alone
	Subject     string
	Text        string
	HTML        string // the same, for readers of HTML; "" = none
	Unsubscribe string // where one click ends mails of this kind (RFC 8058); "" = nowhere
}

// The statuses of a mail.
const (
	Pending = "pending"
	Sent    = "sent"
	Failed  = "failed"
)

// A Mail is a message in the outbox.
type Mail struct {
	ID string
	Message
	CreatedUS int64
	Status    string // Pending, Sent or Failed
	Attempts  int64
	NextUS    int64  // when it is tried next
	LastError string // "" = none yet
	DoneUS    *int64 // when it was sent or given up

	lease string
}

// A Store is the outbox.
type Store struct {
	DB  *db.DB
	Now func() time.Time
}

// Queue adds a mail in the caller's transaction. One to a test account, or to one
// that was closed, is dropped without a word. A message that could break out of its header is an
// error, as is an account that does not exist.
func (s *Store) Queue(ctx context.Context, tx *db.Tx, m Message) error {
	if err := m.check(); err != nil {
		return err
	}
	nobody, err := isNobody(ctx, tx, m.AccountID)
	if err != nil {
		return fmt.Errorf("mail: account %s: %w", m.AccountID, err)
	} else if nobody {
		return nil
	}
	now := s.Now()
	if err := insert(ctx, tx, id.New(prefix, now), m, now.UnixMicro()); err != nil {
		return fmt.Errorf("mail: queue: %w", err)
	}
	return nil
}

// Erase forgets all mail of an account, in the caller's transaction, what was not
// sent yet included.
func (s *Store) Erase(ctx context.Context, tx *db.Tx, accountID string) error {
	if err := erase(ctx, tx, accountID); err != nil {
		return fmt.Errorf("mail: erase: %w", err)
	}
	return nil
}

// ErrMessage is in the error of a message that cannot be sent as it is.
var ErrMessage = errors.New("mail")

// check refuses what cannot stand in a header, so that no name of an app adds
// one, and no address of a user adds a recipient.
func (m Message) check() error {
	if a, err := netmail.ParseAddress(m.To); err != nil || a.Address != m.To || strings.ContainsFunc(m.To, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("%w: the address of %s cannot be written to", ErrMessage, m.AccountID)
	}
	if m.Subject == "" || utf8.RuneCountInString(m.Subject) > 200 || !oneLine(m.Subject) {
		return fmt.Errorf("%w: the subject to %s must be one line of text", ErrMessage, m.AccountID)
	}
	if m.Text == "" || !utf8.ValidString(m.Text) || !utf8.ValidString(m.HTML) {
		return fmt.Errorf("%w: the body to %s must be text", ErrMessage, m.AccountID)
	}
	if m.Unsubscribe == "" {
		return nil
	}
	u, err := url.Parse(m.Unsubscribe)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsFunc(m.Unsubscribe, func(c rune) bool { return c <= ' ' || c > '~' || c == '<' || c == '>' || c == ',' }) {
		return fmt.Errorf("%w: the address to unsubscribe %s at is none", ErrMessage, m.AccountID)
	}
	return nil
}

func oneLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' })
}

// Newest returns the outbox, newest first.
func (s *Store) Newest(ctx context.Context, limit int) ([]Mail, error) {
	list, err := newest(ctx, s.DB, limit)
	if err != nil {
		return nil, fmt.Errorf("mail: newest: %w", err)
	}
	return list, nil
}

// Get returns a mail; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, mailID string) (Mail, error) {
	m, err := get(ctx, s.DB, mailID)
	if err != nil {
		return Mail{}, fmt.Errorf("mail: get: %w", err)
	}
	return m, nil
}

// Purge deletes mails that were sent or given up long ago.
func (s *Store) Purge(ctx context.Context) error {
	if err := purge(ctx, s.DB, s.Now().Add(-keptFor).UnixMicro()); err != nil {
		return fmt.Errorf("mail: purge: %w", err)
	}
	return nil
}
