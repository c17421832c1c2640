package mail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/metrics"
)

// retryDelays are the delays after failed attempts: ten attempts in a day, then the mail has
// failed.
var retryDelays = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

const (
	leaseTTL = 2 * time.Minute    // an attempt is bounded by half of it
	maxAge   = 7 * 24 * time.Hour // an older mail fails without an attempt
)

// A Sender sends the mails of the outbox.
type Sender struct {
	Store   *Store
	Server  Server           // zero = send nothing
	Metrics *metrics.Metrics // nil = none
	Log     *slog.Logger

	warned bool
}

// SendDue sends all due mails, one after the other. It stops and returns an error when the mail
// server is unavailable; the remaining mails stay due. One goroutine per node may call it; nodes
// share the work by leases.
func (s *Sender) SendDue(ctx context.Context) error {
	if s.Server.Host == "" {
		return s.warnUnconfigured(ctx)
	}
	for {
		m, err := s.Store.claimDue(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = s.updatePending(ctx)
			return err
		} else if err != nil {
			return err
		}
		if err := s.sendMail(ctx, m); err != nil {
			return err
		}
	}
}

// warnUnconfigured logs once that mail is pending and no mail server is configured.
func (s *Sender) warnUnconfigured(ctx context.Context) error {
	n, err := s.updatePending(ctx)
	if err != nil {
		return err
	}
	if n > 0 && !s.warned {
		s.warned = true
		s.Log.Warn("mail not configured", "missing", "smtp.url", "pending", n)
	}
	return nil
}

func (s *Sender) updatePending(ctx context.Context) (int64, error) {
	n, err := countPending(ctx, s.Store.DB)
	if err != nil {
		return 0, fmt.Errorf("mail: count: %w", err)
	}
	s.Metrics.SetMailsPending(n)
	return n, nil
}

// claimDue leases the mail that is due longest. The error wraps sql.ErrNoRows when none is due.
func (s *Store) claimDue(ctx context.Context) (m Mail, err error) {
	for {
		now := s.Now()
		mailID, turnUS, err := getNextDue(ctx, s.DB, now.UnixMicro())
		if err != nil {
			return Mail{}, fmt.Errorf("mail: due: %w", err)
		}
		err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			m, err = leaseMail(ctx, tx, mailID, turnUS, id.NewSecret(), now.Add(leaseTTL).UnixMicro())
			return err
		})
		if err == nil {
			return m, nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return Mail{}, fmt.Errorf("mail: claim: %w", err)
		} // another node leased it: try the next one
	}
}

// sendMail sends m and records the outcome. When ctx ends it records nothing, as after a crash, and
// the mail is sent again later.
func (s *Sender) sendMail(ctx context.Context, m Mail) error {
	now := s.Store.Now()
	if m.CreatedUS < now.Add(-maxAge).UnixMicro() {
		m.Status, m.LastError = Failed, "timed out waiting for a mail server"
		return s.recordOutcome(ctx, m, "given_up")
	}
	limited, cancel := context.WithTimeout(ctx, leaseTTL/2)
	err := s.Server.send(limited, m)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f, failed := errors.AsType[*sendFailure](err)
	switch {
	case err == nil:
		m.Status, m.LastError = Sent, ""
		return s.recordOutcome(ctx, m, "sent")
	case !failed:
		return fmt.Errorf("mail: %s: %w", m.ID, err) // unreachable: send returns only *sendFailure
	}
	m.LastError = f.text
	outcome := "retried"
	if n := int(m.Attempts); f.permanent || n > len(retryDelays) {
		m.Status, outcome = Failed, "given_up"
	} else {
		m.NextUS = now.Add(retryDelays[n-1]).UnixMicro()
	}
	s.Log.Warn("mail send failed", "mail_id", m.ID, "attempt", m.Attempts, "error", f.text,
		"given_up", m.Status == Failed)
	if err := s.recordOutcome(ctx, m, outcome); err != nil || !f.unreachable {
		return err
	}
	return errors.New("mail: the server cannot be used: " + f.text)
}

func (s *Sender) recordOutcome(ctx context.Context, m Mail, outcome string) error {
	s.Metrics.CountMail(outcome)
	var err error
	if m.Status == Pending {
		err = updateAttempt(ctx, s.Store.DB, m)
	} else {
		var sealed []byte
		if sealed, err = s.Store.sealBody(m); err == nil {
			err = updateDone(ctx, s.Store.DB, m, sealed, s.Store.Now().UnixMicro())
		}
	}
	if err != nil {
		return fmt.Errorf("mail: record %s: %w", m.ID, err)
	}
	return nil
}
