package mail

import (
	"cmp"
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

// maxAttempts is how often a mail is claimed, its lost attempts included.
var maxAttempts = int64(len(retryDelays) + 1)

const (
	attemptTimeout = 12 * time.Minute   // of one attempt: a server may take ten minutes to accept a mail
	leaseTTL       = 13 * time.Minute   // another node sends a mail again after it
	claimTime      = 10 * time.Minute   // for which a run claims mails
	maxAge         = 7 * 24 * time.Hour // an older mail fails without an attempt
)

// RunTimeout is more than a run of SendDue takes: no attempt that has begun is cut.
const RunTimeout = claimTime + attemptTimeout + time.Minute

// recordTimeout bounds the record that a mail was accepted.
const recordTimeout = 5 * time.Second

// A Sender sends the mails of the outbox.
type Sender struct {
	Store   *Store
	Server  Server           // zero = send nothing
	Metrics *metrics.Metrics // nil = none
	Log     *slog.Logger

	warned bool
}

// SendDue sends due mails, one after the other, until none is due or its time is over. It stops and returns an error
// when the mail server is unavailable; the remaining mails stay due. One goroutine per node may call it; nodes share
// the work by leases.
func (s *Sender) SendDue(ctx context.Context) error {
	if s.Server.Host == "" {
		return s.warnUnconfigured(ctx)
	}
	for begun := time.Now(); time.Since(begun) < claimTime; {
		m, err := s.Store.claimDue(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return err
		}
		if err := s.sendMail(ctx, m); err != nil {
			return err
		}
	}
	_, err := s.updatePending(ctx)
	return err
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

// claimDue leases the next mail that is due. If nothing is recorded of the attempt, the mail is due again when its
// lease is over, and not before its next turn. The error wraps sql.ErrNoRows when none is due.
func (s *Store) claimDue(ctx context.Context) (m Mail, err error) {
	for {
		now := s.Now()
		d, err := getNextDue(ctx, s.DB, now.UnixMicro())
		if err != nil {
			return Mail{}, fmt.Errorf("mail: due: %w", err)
		}
		lease := max(leaseTTL, retryDelays[min(d.attempts, maxAttempts-2)])
		err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			m, err = leaseMail(ctx, tx, d, id.NewSecret(), now.Add(lease).UnixMicro())
			return err
		})
		if err == nil {
			return m, nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return Mail{}, fmt.Errorf("mail: claim: %w", err)
		} // another node leased it: try the next one
	}
}

// sendMail sends m and records the outcome. When ctx ends before the server has accepted it, the mail is given back.
// Attempts of which nothing is known are among the ten.
func (s *Sender) sendMail(ctx context.Context, m Mail) error {
	if m.CreatedUS < s.Store.Now().Add(-maxAge).UnixMicro() {
		m.Status, m.LastError = Failed, "timed out waiting for a mail server"
		return s.recordOutcome(ctx, m, "given_up")
	}
	if m.Attempts > maxAttempts {
		m.Status, m.LastError = Failed, cmp.Or(m.LastError, "the outcome of the attempts is not known")
		return s.recordOutcome(ctx, m, "given_up")
	}
	limited, cancel := context.WithTimeout(ctx, attemptTimeout)
	err := s.Server.send(limited, m)
	cancel()
	return s.record(ctx, m, err)
}

// record records what send returned.
func (s *Sender) record(ctx context.Context, m Mail, err error) error {
	now := s.Store.Now()
	f, failed := errors.AsType[*sendFailure](err)
	if failed && ctx.Err() != nil {
		return errors.Join(ctx.Err(), s.giveBack(ctx, m, f.bodyBegun))
	}
	switch {
	case err == nil:
		m.Status, m.LastError = Sent, ""
		record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // also when the node stops
		defer cancel()
		return s.recordOutcome(record, m, "sent")
	case !failed:
		return fmt.Errorf("mail: %s: %w", m.ID, err) // unreachable: send returns only *sendFailure
	}
	m.LastError = f.text
	outcome := "retried"
	if f.permanent || m.Attempts >= maxAttempts {
		m.Status, outcome = Failed, "given_up"
	} else {
		m.NextUS = now.Add(retryDelays[m.Attempts-1]).UnixMicro()
	}
	s.Log.Warn("mail send failed", "mail_id", m.ID, "attempt", m.Attempts, "error", f.text,
		"given_up", m.Status == Failed)
	if err := s.recordOutcome(ctx, m, outcome); err != nil || !f.unreachable {
		return err
	}
	return errors.New("mail: the server cannot be used: " + f.text)
}

// giveBack makes a mail due again that was being sent when the node stopped: at once, and without an attempt, unless
// the server may have it. Then it is due after the pause that follows a failed attempt.
func (s *Sender) giveBack(ctx context.Context, m Mail, mayHave bool) error {
	m.NextUS = s.Store.Now().UnixMicro()
	if mayHave {
		m.NextUS += retryDelays[min(m.Attempts, maxAttempts-1)-1].Microseconds()
	} else {
		m.Attempts--
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return s.recordOutcome(ctx, m, "given_back")
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
