package server

import (
	"context"
	"os"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/pages/operatorpages"
)

// listJobs returns the background jobs of a node. Each ends with its context.
func (s *Server) listJobs() []func(context.Context) error {
	return []func(context.Context) error{
		s.inference.Checkpoint,
		webhooks.NewDispatcher(s.webhooks, s.log, webhooks.Options{}).Run,
		s.repeatJob(s.Config.Lease/10, "renew the lease", s.node.RenewLease),
		s.repeatJob(min(5*time.Second, s.Config.Lease/2), "end dead nodes' holds", func(ctx context.Context) error {
			_, err := s.inference.EndLostHolds(ctx)
			return err
		}),
		s.repeatJob(time.Second, "keep voice sessions", s.voice.Renew),
		s.repeatJob(time.Second, "watch voice sessions", s.voice.Watch),
		s.repeatJob(time.Second, "hang up voice calls", s.voice.HangUps),
		s.repeatJob(5*time.Second, "settle pending calls", func(ctx context.Context) error {
			_, err := s.inference.ResolvePending(ctx)
			return err
		}),
		s.repeatJob(5*time.Second, "settle top-ups", s.topups.RunDue),
		s.repeatJob(time.Hour, "purge old events of Stripe", s.topups.Purge),
		s.repeatJob(5*time.Second, "queue notice emails", s.notices.QueuePending),
		s.repeatJob(5*time.Second, "send mail", s.sendMail),
		s.repeatJob(time.Hour, "purge old mail", s.Mails.Purge),
		s.repeatJob(30*time.Second, "read the database's clock", s.DB.SyncClock),
		s.repeatJob(time.Minute, "save how estimates fared", s.estimates.Save),
		s.repeatJob(time.Minute, "watch live apps", s.watch.Run),
		s.repeatJob(15*time.Second, "count money for the operator",
			(&operatorpages.Summary{DB: s.DB, Now: s.DB.Now}).Once),
		s.repeatJob(time.Second, "verify the ledger when requested",
			(&operatorpages.Verifier{DB: s.DB, URL: s.Config.Database, Now: s.DB.Now}).Once),
		s.repeatJob(time.Hour, "purge old answers", s.node.DeleteExpired),
		s.repeatJob(time.Hour, "purge old tokens", s.Tokens.Purge),
		s.repeatJob(time.Hour, "purge old deliveries", s.webhooks.Purge),
		s.repeatJob(5*time.Second, "write security events", s.Accounts.FlushEvents),
		s.repeatJob(time.Hour, "purge old links", s.identity.Purge),
		s.repeatJob(time.Hour, "purge old sessions", func(ctx context.Context) error {
			_, err := s.Accounts.Purge(ctx)
			return err
		}),
	}
}

// sendMail sends queued mail. In development mail stays in the outbox.
func (s *Server) sendMail(ctx context.Context) error {
	if s.sender == nil {
		return nil
	}
	return s.sender.SendDue(ctx)
}

// watchPrices reads the operator's prices again when their file changes, and immediately
// on SIGHUP.
func (s *Server) watchPrices(ctx context.Context, asked <-chan os.Signal) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.Config.PricesFile != "" {
				s.catalog.Poll()
			}
		case <-asked:
			if s.Config.PricesFile != "" {
				s.catalog.Reload()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// repeatJob returns a job that runs f immediately and then in intervals. It logs a failure
// and goes on, because none of these jobs may stop the node.
func (s *Server) repeatJob(interval time.Duration, what string,
	f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("job failed", "job", what, "error", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
