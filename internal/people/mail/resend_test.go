package mail

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A mail that was sent cannot be read in the database any more, and an operator can still have it sent again, whole.
func TestASentMailKeepsNoText(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		box, err := seal.New(make([]byte, seal.KeySize))
		if err != nil {
			t.Fatal(err)
		}
		w.Box = box
		resend := func(mailID string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := w.Resend(ctx, tx, mailID)
				return err
			})
		}
		letter := hello()
		letter.Text, letter.HTML = "https://purser.example/reset/C12G", "<p>C12G</p>"
		w.mustQueue(letter)
		s := w.sender(k.start(t, nil, false))
		if err := s.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := w.all()[0]
		var sealed []byte
		if err := d.QueryRowContext(t.Context(), `SELECT sealed FROM mails`).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		if m.Status != Sent || m.Text != "" || m.HTML != "" || len(sealed) == 0 ||
			strings.Contains(string(sealed), "C12G") {
			t.Errorf("sent, and kept as %+v, sealed %q", m, sealed)
		}
		if err := resend(m.ID); err != nil {
			t.Fatal(err)
		}
		if m := w.all()[0]; m.Status != Pending || m.Text != letter.Text || m.HTML != letter.HTML || m.DoneUS != nil {
			t.Errorf("due again as %+v", m)
		}
		if err := s.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := k.letters(); len(got) != 2 || w.all()[0].Text != "" {
			t.Errorf("%d letters; kept as %+v", len(got), w.all()[0])
		}

		w.mustQueue(hello())
		leased, err := w.claimDue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := resend(leased.ID); err == nil || !strings.Contains(err.Error(), "is being sent") {
			t.Errorf("while it is sent: %v", err)
		}
		w.pass(8 * 24 * time.Hour)
		if err := resend(m.ID); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("an old one: %v", err)
		}
		if err := resend("mail_x"); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("none: %v", err)
		}
	})
}

// TestMailThatNamesOthersIsForgotten keeps nothing of a mail that names another person once it is sent.
func TestMailThatNamesOthersIsForgotten(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		box, err := seal.New(make([]byte, seal.KeySize))
		if err != nil {
			t.Fatal(err)
		}
		w.Box = box
		letter := hello()
		letter.NamesOthers = true
		w.mustQueue(letter)
		if err := w.sender(k.start(t, nil, false)).SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := w.all()[0]
		var kept int
		err = d.QueryRowContext(t.Context(), `SELECT COUNT(sealed) FROM mails`).Scan(&kept)
		if err != nil || kept != 0 || m.Status != Sent || m.Text != "" || m.HTML != "" {
			t.Errorf("%d bodies are kept (%v), and %+v", kept, err, m)
		}
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := w.Resend(ctx, tx, m.ID)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "was deleted") {
			t.Errorf("sent again: %v", err)
		}
	})
}
