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

// delays are how long a mail waits after each attempt that failed: ten attempts in
// a day. After the last it is given up.
var delays = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

const (
	lease = 2 * time.Minute    // how long a claimed mail is its claimer's; an attempt is bounded by half of it
	stale = 7 * 24 * time.Hour // what has waited that long for a mail server tells nothing new
)

// A Sender sends what is in the outbox.
type Sender struct {
	Store   *Store
	Server  Server           // the zero Server: nothing is sent
	Metrics *metrics.Metrics // nil = not counted
	Log     *slog.Logger

	warned bool
}

// Once sends every mail whose turn it is, one after the other. It stops when the
// server cannot be reached, which is its error: the others keep their turns. Only
// one goroutine may call it; nodes share the work by claims.
func (s *Sender) Once(ctx context.Context) error {
	if s.Server.Host == "" {
		return s.wait(ctx)
	}
	for {
		m, err := s.Store.claim(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = s.count(ctx)
			return err
		} else if err != nil {
			return err
		}
		if err := s.attempt(ctx, m); err != nil {
			return err
		}
	}
}

// wait is Once without a server: mail stays pending, and the operator is told once.
func (s *Sender) wait(ctx context.Context) error {
	n, err := s.count(ctx)
	if err != nil {
		return err
	}
	if n > 0 && !s.warned {
		s.warned = true
		s.Log.Warn("mail waits: no smtp.url is set", "pending", n)
	}
	return nil
}

func (s *Sender) count(ctx context.Context) (int64, error) {
	n, err := countPending(ctx, s.Store.DB)
	if err != nil {
		return 0, fmt.Errorf("mail: count: %w", err)
	}
	s.Metrics.MailsPending(n)
	return n, nil
}

// claim takes the mail that has waited longest; it is sql.ErrNoRows when none is due.
func (s *Store) claim(ctx context.Context) (m Mail, err error) {
	for {
		now := s.Now()
		mailID, turnUS, err := due(ctx, s.DB, now.UnixMicro())
		if err != nil {
			return Mail{}, fmt.Errorf("mail: due: %w", err)
		}
		err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			m, err = take(ctx, tx, mailID, turnUS, id.NewSecret(), now.Add(lease).UnixMicro())
			return err
		})
		if err == nil {
			return m, nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return Mail{}, fmt.Errorf("mail: claim: %w", err)
		} // another node was faster; there may be more
	}
}

// attempt sends m and records how that ended. When it is cut by the end of ctx
// nothing is recorded, as after a crash: the next one sends it again.
func (s *Sender) attempt(ctx context.Context, m Mail) error {
	now := s.Store.Now()
	if m.CreatedUS < now.Add(-stale).UnixMicro() {
		m.Status, m.LastError = Failed, "it waited too long for a mail server"
		return s.record(ctx, m, "given_up")
	}
	limited, cancel := context.WithTimeout(ctx, lease/2)
	err := s.Server.send(limited, m)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f, failed := errors.AsType[*failure](err)
	switch {
	case err == nil:
		m.Status, m.LastError = Sent, ""
		return s.record(ctx, m, "sent")
	case !failed:
		return fmt.Errorf("mail: %s: %w", m.ID, err) // cannot be: send returns failures
	}
	m.LastError = f.text
	outcome := "retried"
	if n := int(m.Attempts); f.final || n > len(delays) {
		m.Status, outcome = Failed, "given_up"
	} else {
		m.NextUS = now.Add(delays[n-1]).UnixMicro()
	}
	s.Log.Warn("mail was not sent", "mail_id", m.ID, "attempt", m.Attempts, "error", f.text, "given_up", m.Status == Failed)
	if err := s.record(ctx, m, outcome); err != nil || !f.unreachable {
		return err
	}
	return errors.New("mail: the server cannot be used: " + f.text)
}

func (s *Sender) record(ctx context.Context, m Mail, outcome string) error {
	s.Metrics.Mail(outcome)
	if err := finish(ctx, s.Store.DB, m, s.Store.Now().UnixMicro()); err != nil {
		return fmt.Errorf("mail: record %s: %w", m.ID, err)
	}
	return nil
}
