package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
)

// RunOffline runs f on a server that has no listeners and runs no jobs but the writer and the leases, and closes the
// server when f returns. Package dev makes sample history by it.
func (s *Server) RunOffline(ctx context.Context, f func(context.Context) error) error {
	writing, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	wrote := make(chan error, 1)
	go func() { wrote <- s.Ledger.Run(writing) }()
	renewing, stopLease := context.WithCancel(writing)
	renewed, kept := make(chan error, 1), make(chan error, 1)
	renew := s.repeatJob(s.Config.Lease/10, "renew the lease", s.node.RenewLease)
	go func() { renewed <- renew(renewing) }()
	// Often, as f moves the clock: a session waits while its lease seems to be over.
	keep := s.repeatJob(100*time.Millisecond, "keep voice sessions", s.voice.Renew)
	go func() { kept <- keep(renewing) }()

	err := f(ctx)
	ending := context.WithoutCancel(ctx)
	s.voice.Stop(ending)
	s.inference.StopSettling(ending)
	stopLease()
	err = errors.Join(err, <-renewed, <-kept, s.estimates.Save(ending), s.Accounts.FlushEvents(ending),
		s.node.EndLease(ending))
	stopWriter()
	return errors.Join(err, <-wrote, s.DB.Close())
}

// RunDueJobs runs once, to their end, the jobs that follow commands: webhook deliveries, notices, top-ups, payouts and
// the watch over live apps. A server without jobs calls it whenever they would have run.
func (s *Server) RunDueJobs(ctx context.Context) error {
	if s.dispatcher == nil {
		s.dispatcher = webhooks.NewDispatcher(s.webhooks, s.log, webhooks.Options{})
	}
	for _, job := range []func(context.Context) error{
		s.dispatcher.RunDue, s.notices.QueuePending, s.topups.RunDue, s.payouts.Run, s.watch.Run,
	} {
		if err := job(ctx); err != nil {
			return fmt.Errorf("due jobs: %w", err)
		}
	}
	return nil
}
