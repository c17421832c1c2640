package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	netmail "net/mail"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
)

// IDPrefix is the prefix of mail ids.
const IDPrefix = "mail_"

// DefaultRetention is the time that a sent or failed mail stays in the outbox, if the operator sets none.
const DefaultRetention = 30 * 24 * time.Hour

// A Message is an email to an account.
type Message struct {
	AccountID   string
	To          string // an address without a name
	Subject     string
	Text        string
	HTML        string // alternative body; "" = none
	Unsubscribe string // URL of the one-click unsubscription (RFC 8058); "" = none
	Urgent      bool   // a person waits for it: it is sent before others
	NamesOthers bool   // its text has the address of another person, so it is deleted once it is sent
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

	lease       string
	namesOthers int64 // 1 = NamesOthers
}

// A Store is the mail outbox.
type Store struct {
	DB   *db.DB
	Now  func() time.Time
	Site web.Site  // what emails say about who sends them
	Box  *seal.Box // seals the bodies of mails that are done; nil = they are deleted
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
	if err := insertMail(ctx, tx, id.New(IDPrefix, now), m, now.UnixMicro()); err != nil {
		return fmt.Errorf("mail: queue: %w", err)
	}
	return nil
}

// HasPending reports whether mail of an account waits to be sent.
func (s *Store) HasPending(ctx context.Context, q db.Queryer, accountID string) (bool, error) {
	pending, err := hasPending(ctx, q, accountID)
	if err != nil {
		return false, fmt.Errorf("mail: pending: %w", err)
	}
	return pending, nil
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

// A Summary is a mail without its body.
type Summary struct {
	ID, AccountID, Subject string
	Status                 string
	Attempts               int64
	LastError              string // "" = none
	CreatedUS              int64
	DoneUS                 *int64 // time when it was sent or failed
}

// ListOfAccount returns the mails of an account, newest first, those older than the one named by after if it is not
// empty.
func (s *Store) ListOfAccount(ctx context.Context, accountID, after string, limit int) ([]Summary, error) {
	list, err := listOfAccount(ctx, s.DB, accountID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("mail: of an account: %w", err)
	}
	return list, nil
}

// Resend has a mail sent now, once more if it was sent or given up, in the caller's transaction, and returns it as it
// was. The error wraps sql.ErrNoRows if there is none. A mail that is being sent, is too old, or of which the body was
// deleted is 400 invalid_request.
func (s *Store) Resend(ctx context.Context, tx *db.Tx, mailID string) (Summary, error) {
	m, sealed, err := lockMail(ctx, tx, mailID)
	if err != nil {
		return Summary{}, fmt.Errorf("mail: resend: %w", err)
	}
	now := s.Now()
	var body sealedBody
	switch {
	case m.lease != "" && m.NextUS > now.UnixMicro():
		return Summary{}, apierr.InvalidRequest.Errorf("this mail is being sent")
	case m.CreatedUS < now.Add(-maxAge).UnixMicro():
		return Summary{}, apierr.InvalidRequest.Errorf("this mail is too old")
	case m.Status == Pending:
		body = sealedBody{m.Text, m.HTML}
	case len(sealed) == 0 || s.Box == nil:
		return Summary{}, apierr.InvalidRequest.Errorf("the text of this mail was deleted")
	default:
		plain, err := s.Box.Open(sealed, bodyPlace(mailID))
		if err != nil {
			return Summary{}, fmt.Errorf("mail: resend: %w", err)
		}
		if err := json.Unmarshal(plain, &body); err != nil {
			return Summary{}, fmt.Errorf("mail: resend: %w", err)
		}
	}
	if err := updateResent(ctx, tx, mailID, body, now.UnixMicro()); err != nil {
		return Summary{}, fmt.Errorf("mail: resend: %w", err)
	}
	return m.summary(), nil
}

func (m *Mail) summary() Summary {
	return Summary{
		ID:        m.ID,
		AccountID: m.AccountID,
		Subject:   m.Subject,
		Status:    m.Status,
		Attempts:  m.Attempts,
		LastError: m.LastError,
		CreatedUS: m.CreatedUS,
		DoneUS:    m.DoneUS,
	}
}

// sealedBody is the body of a mail that is done, as it is sealed.
type sealedBody struct{ Text, HTML string }

func bodyPlace(mailID string) seal.Place { return seal.Place{"mails", "sealed", mailID} }

// sealBody seals the body of a mail that is done; nil without a Box, or if it names another person, who may close the
// account.
func (s *Store) sealBody(m Mail) ([]byte, error) {
	if s.Box == nil || m.namesOthers != 0 {
		return nil, nil
	}
	plain, err := json.Marshal(sealedBody{m.Text, m.HTML})
	if err != nil {
		return nil, err
	}
	return s.Box.Seal(plain, bodyPlace(m.ID))
}

// Purge deletes mails that were sent or failed longer ago than keep.
func (s *Store) Purge(ctx context.Context, keep time.Duration) error {
	if err := deleteDoneBefore(ctx, s.DB, s.Now().Add(-keep).UnixMicro()); err != nil {
		return fmt.Errorf("mail: purge: %w", err)
	}
	return nil
}

// SealedColumn is the column of the bodies of mails that are done, for a change of the envelope key.
func (s *Store) SealedColumn() seal.Column {
	return seal.TableColumn(s.DB, "mails.sealed", listSealed, replaceSealed, bodyPlace)
}
