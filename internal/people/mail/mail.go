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
	"github.com/purserhq/purser/internal/base/web"
)

// idPrefix is the prefix of mail ids.
const idPrefix = "mail_"

// retention is the time that a sent or failed mail stays in the outbox.
const retention = 30 * 24 * time.Hour

// A Message is an email to an account.
type Message struct {
	AccountID   string
	To          string // an address without a name
	Subject     string
	Text        string
	HTML        string // alternative body; "" = none
	Unsubscribe string // URL of the one-click unsubscription (RFC 8058); "" = none
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
	NextUS    int64  // time of the next attempt
	LastError string // "" = none yet
	DoneUS    *int64 // time when it was sent or failed

	lease string
}

// A Store is the mail outbox.
type Store struct {
	DB   *db.DB
	Now  func() time.Time
	Site web.Site // what emails say about who sends them
}

// QueueMessage adds a mail in the caller's transaction. It silently drops mail to a test account or
// a closed account. An invalid message, which could inject headers, is ErrInvalidMessage; an
// unknown account is an error too.
func (s *Store) QueueMessage(ctx context.Context, tx *db.Tx, m Message) error {
	if err := m.validate(); err != nil {
		return err
	}
	nobody, err := isUndeliverable(ctx, tx, m.AccountID)
	if err != nil {
		return fmt.Errorf("mail: account %s: %w", m.AccountID, err)
	} else if nobody {
		return nil
	}
	now := s.Now()
	if err := insertMail(ctx, tx, id.New(idPrefix, now), m, now.UnixMicro()); err != nil {
		return fmt.Errorf("mail: queue: %w", err)
	}
	return nil
}

// DeleteAccountMail deletes all mail of an account, also what is not sent yet, in the caller's
// transaction.
func (s *Store) DeleteAccountMail(ctx context.Context, tx *db.Tx, accountID string) error {
	if err := deleteAccountMail(ctx, tx, accountID); err != nil {
		return fmt.Errorf("mail: erase: %w", err)
	}
	return nil
}

// ErrInvalidMessage is wrapped by the error of a message that cannot be sent.
var ErrInvalidMessage = errors.New("mail")

// validate returns an error for header values that could inject a header or a recipient: an app's
// name or a user's address.
func (m Message) validate() error {
	if a, err := netmail.ParseAddress(m.To); err != nil || a.Address != m.To ||
		strings.ContainsFunc(m.To, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("%w: the address of %s is not valid", ErrInvalidMessage, m.AccountID)
	}
	if m.Subject == "" || utf8.RuneCountInString(m.Subject) > 200 || !isOneLine(m.Subject) {
		return fmt.Errorf("%w: the subject to %s must be one line of text", ErrInvalidMessage, m.AccountID)
	}
	if m.Text == "" || !utf8.ValidString(m.Text) || !utf8.ValidString(m.HTML) {
		return fmt.Errorf("%w: the body to %s must be text", ErrInvalidMessage, m.AccountID)
	}
	if m.Unsubscribe == "" {
		return nil
	}
	u, err := url.Parse(m.Unsubscribe)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.ContainsFunc(m.Unsubscribe, func(c rune) bool {
			return c <= ' ' || c > '~' || c == '<' || c == '>' || c == ','
		}) {
		return fmt.Errorf("%w: the unsubscribe link of %s is not a URL", ErrInvalidMessage, m.AccountID)
	}
	return nil
}

func isOneLine(s string) bool {
	return utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' })
}

// ListNewest returns the newest mails of the outbox, newest first.
func (s *Store) ListNewest(ctx context.Context, limit int) ([]Mail, error) {
	list, err := listNewest(ctx, s.DB, limit)
	if err != nil {
		return nil, fmt.Errorf("mail: newest: %w", err)
	}
	return list, nil
}

// Get returns a mail; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, mailID string) (Mail, error) {
	m, err := getMail(ctx, s.DB, mailID)
	if err != nil {
		return Mail{}, fmt.Errorf("mail: get: %w", err)
	}
	return m, nil
}

// Purge deletes old mails that were sent or failed.
func (s *Store) Purge(ctx context.Context) error {
	if err := deleteDoneBefore(ctx, s.DB, s.Now().Add(-retention).UnixMicro()); err != nil {
		return fmt.Errorf("mail: purge: %w", err)
	}
	return nil
}
