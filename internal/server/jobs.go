package server

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/people/mail"
)

// listJobs returns the background jobs of a node. Each ends with its context. A drill has none that reaches outside.
func (s *Server) listJobs() []func(context.Context) error {
	if s.Config.Drill {
		return s.listInsideJobs()
	}
	return append(s.listInsideJobs(), s.listOutsideJobs()...)
}

// listOutsideJobs returns the jobs that send something to the world outside, ask it, or write backups.
func (s *Server) listOutsideJobs() []func(context.Context) error {
	return []func(context.Context) error{
		webhooks.NewDispatcher(s.webhooks, s.log, webhooks.Options{Ticks: s.Ticks}).Run,
		s.repeatJob(time.Second, "watch voice sessions", s.voice.Watch),
		s.repeatJob(time.Second, "hang up voice calls", s.voice.HangUps),
		s.repeatJob(5*time.Second, "settle pending calls", func(ctx context.Context) error {
			_, err := s.inference.ResolvePending(ctx)
			return err
		}),
		s.repeatJob(5*time.Second, "settle top-ups", s.topups.RunDue),
		s.repeatJob(s.payouts.Pause(), "pay developers", s.whenSteady(s.payouts.Run)),
		s.reconcile,
		s.sendMails,
		s.writeBackups,
		s.repeatJob(15*time.Second, "publish the ledger", s.publishLedger), // a drill must not fork the log
	}
}

// publishLedger appends new rows to the public log, lists the calls among them for their apps, and has the checkpoint
// cosigned.
func (s *Server) publishLedger(ctx context.Context) error {
	if err := s.publisher.Publish(ctx); err != nil {
		return err
	}
	return errors.Join(s.publisher.IndexCalls(ctx), s.publisher.Cosign(ctx))
}

// listInsideJobs returns the jobs that only work on the database.
func (s *Server) listInsideJobs() []func(context.Context) error {
	return []func(context.Context) error{
		s.repeatJob(inference.CheckpointInterval, "save checkpoints of streams", s.inference.SaveCheckpoints),
		s.repeatJob(s.Config.Lease/10, "renew the lease", s.node.RenewLease),
		s.repeatJob(min(3*time.Second, s.Config.Lease/2), "end dead nodes' holds", func(ctx context.Context) error {
			_, err := s.inference.EndLostHolds(ctx)
			return err
		}),
		s.repeatJob(15*time.Second, "compare the nodes", s.compareNodes),
		s.repeatJob(policies.ReadInterval, "read the policies", s.policies.Read),
		s.repeatJob(5*time.Second, "end children whose time is over",
			s.whenSteady(s.children.ExpireDue)),
		s.repeatJob(time.Second/2, "stop calls", s.inference.WatchStops),
		s.repeatJob(time.Second, "watch streamed connections", s.feed.Poll),
		s.repeatJob(time.Second, "watch the database file", s.checkFile),
		s.checkPages,
		s.repeatJob(24*time.Hour, "keep the partitions of years", s.keepYears),
		s.repeatJob(time.Second, "keep voice sessions", s.voice.Renew),
		s.repeatJob(time.Hour, "purge old events of Stripe", s.whenSteady(s.topups.Purge)),
		s.repeatJob(5*time.Second, "queue notice emails", s.notices.QueuePending),
		s.repeatJob(time.Minute, "queue emails about margins", s.whenSteady(s.notices.QueueMargins)),
		s.repeatJob(10*time.Minute, "queue reports of failed webhooks", (&webhooks.Reporter{
			Store:   s.webhooks,
			Apps:    s.Apps,
			Notices: s.notices,
			Log:     s.log,
		}).QueueReports),
		s.repeatJob(time.Hour, "purge old mail", s.whenSteady(func(ctx context.Context) error {
			return s.Mails.Purge(ctx, s.Config.Retention.Mails)
		})),
		s.repeatJob(30*time.Second, "read the database's clock", s.DB.SyncClock),
		s.repeatJob(time.Minute, "note the clock", s.whenSteady(s.noteClock)),
		s.repeatJob(time.Minute, "save how estimates fared", s.estimates.Save),
		s.repeatJob(time.Minute, "watch live apps", s.whenSteady(s.watch.Run)),
		s.repeatJob(time.Minute, "sum the days of apps", s.whenSteady(func(ctx context.Context) error {
			return store.CloseDays(ctx, s.DB, &s.closing, s.DB.Now())
		})),
		s.repeatJob(15*time.Second, "count money for the operator",
			(&operatorpages.Summary{DB: s.DB, Now: s.DB.Now}).Once),
		s.repeatJob(15*time.Second, "store the price list",
			(&operatorpages.PriceRecorder{DB: s.DB, Catalog: s.catalog, Now: s.DB.Now}).Once),
		s.repeatJob(30*time.Second, "count how the service fares", s.health.Once),
		s.repeatJob(time.Minute, "request the daily verification",
			(&operatorpages.Schedule{DB: s.DB, At: s.Config.VerifyAt, Now: s.DB.Now}).Once),
		s.verifyLedger,
		s.repeatJob(15*time.Second, "count the backlog", s.countBacklog),
		s.repeatJob(time.Hour, "purge old answers", s.whenSteady(func(ctx context.Context) error {
			return s.node.DeleteExpired(ctx, s.Config.Retention.Calls)
		})),
		s.repeatJob(time.Hour, "purge old tokens", s.whenSteady(s.Tokens.Purge)),
		s.repeatJob(time.Hour, "purge old deliveries", s.whenSteady(s.webhooks.Purge)),
		s.repeatJob(5*time.Second, "write security events", s.Accounts.FlushEvents),
		s.repeatJob(time.Hour, "purge old links", s.whenSteady(s.identity.Purge)),
		s.repeatJob(time.Hour, "purge old invitations", s.whenSteady(s.members.Purge)),
		s.repeatJob(time.Hour, "purge old sessions", s.whenSteady(func(ctx context.Context) error {
			_, err := s.Accounts.Purge(ctx, s.Config.Retention.SecurityEvents)
			return err
		})),
	}
}

// keepYears creates the partitions of this year and the next, and raises an alarm about rows of no year (decision 115).
func (s *Server) keepYears(ctx context.Context) error {
	err := s.DB.EnsureYears(ctx)
	stray := s.DB.CheckYears(ctx)
	if errors.Is(stray, db.ErrStray) {
		s.metrics.RaiseAlarm("rows are in no year", "")
	}
	return errors.Join(err, stray, s.DB.AnalyzeYears(ctx))
}

// longLog is the size of the log of a SQLite file from which an alarm tells that it grows.
const longLog = 4 << 30

// checkFile looks at a SQLite file and at the size of its log.
func (s *Server) checkFile(ctx context.Context) error {
	s.noteLogSize(s.DB.LogSize())
	return s.DB.CheckFile(ctx)
}

// noteLogSize raises an alarm when the log has become long.
func (s *Server) noteLogSize(size int64) {
	isLong := size >= longLog
	if isLong && !s.logIsLong {
		s.log.Error("the log of the database file grows, because something reads for long", "bytes", size)
		s.metrics.RaiseAlarm("the log of the database file grows", "")
	}
	s.logIsLong = isLong
}

// verifyTimeout bounds one verification: the daily one must end before the next begins.
const verifyTimeout = 12 * time.Hour

// verifyLedger verifies the ledger when an operator requests it, which takes long on a large
// one.
func (s *Server) verifyLedger(ctx context.Context) error {
	verifier := &operatorpages.Verifier{
		DB:  s.DB,
		URL: s.Config.Database,
		Now: s.DB.Now,
	}
	return s.repeat(ctx, time.Second, verifyTimeout, "verify the ledger when requested", verifier.Once)
}

// reconcileTimeout bounds one run of a reconciliation, which the next one goes on with.
const reconcileTimeout = 30 * time.Minute

// reconcile compares the books with Stripe once a day, and when an operator requests it.
func (s *Server) reconcile(ctx context.Context) error {
	return s.repeat(ctx, 5*time.Second, reconcileTimeout, "reconcile with stripe", s.whenSteady(s.topups.Reconcile))
}

// backupTimeout bounds one backup.
const backupTimeout = 6 * time.Hour

// writeBackups writes the daily backups.
func (s *Server) writeBackups(ctx context.Context) error {
	schedule := &backup.Schedule{
		Settings:   s.Config.Backup,
		Database:   s.Config.Database,
		DatabaseID: s.databaseID,
		Metrics:    s.metrics,
		Log:        s.log,
		Now:        s.DB.Now,
	}
	return s.repeat(ctx, time.Minute, backupTimeout, "write the daily backup", schedule.Once)
}

// pageCheckTimeout bounds the search for damaged pages, which reads the whole file.
const pageCheckTimeout = 5 * time.Minute

// checkPages looks once for damaged pages of a SQLite file. With one the node makes no holds
// and is not ready.
func (s *Server) checkPages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pageCheckTimeout)
	defer cancel()
	switch err := s.DB.CheckPages(ctx); {
	case db.IsDamaged(err):
		s.log.Error("database file damaged", "error", err)
		s.metrics.RaiseAlarm("the database file is damaged", "")
		s.Ledger.RefuseHolds(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.log.Error("database file not checked in time", "after", pageCheckTimeout)
		s.metrics.RaiseAlarm("the database file is not checked", "")
	case err != nil && ctx.Err() == nil:
		s.log.Error("database file not checked", "error", err)
	}
	return nil
}

// countBacklog counts open holds, new events and waiting deliveries for the metrics.
func (s *Server) countBacklog(ctx context.Context) error {
	holds, oldestUS, err := store.CountOpenHolds(ctx, s.DB)
	if err != nil {
		return err
	}
	deliveries, err := s.webhooks.CountWaiting(ctx)
	if err != nil {
		return err
	}
	oldest := time.Duration(0)
	if oldestUS > 0 {
		oldest = s.DB.Now().Sub(time.UnixMicro(oldestUS))
	}
	eventUS, err := store.OldestUnclaimedEvent(ctx, s.DB)
	if err != nil {
		return err
	}
	waited := time.Duration(0)
	if eventUS > 0 {
		waited = s.DB.Now().Sub(time.UnixMicro(eventUS))
	}
	findings, finishedUS, err := operatorpages.LastResult(ctx, s.DB)
	if err != nil {
		return err
	}
	s.metrics.SetBacklog(holds, oldest, deliveries)
	s.metrics.SetUnclaimedEvents(waited)
	s.metrics.SetVerification(findings, finishedUS)
	return nil
}

// sendMails sends queued mail. In development mail stays in the outbox.
func (s *Server) sendMails(ctx context.Context) error {
	if s.sender == nil {
		return nil
	}
	return s.repeat(ctx, 5*time.Second, mail.RunTimeout, "send mail", s.sender.SendDue)
}

// watchPrices reads the operator's prices again when their file changes, and immediately
// on SIGHUP.
func (s *Server) watchPrices(ctx context.Context, asked <-chan os.Signal) error {
	tick, stop := s.Ticks.Every(2 * time.Second)
	defer stop()
	for {
		select {
		case <-tick:
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

// jobTimeout returns the deadline of one run of a job. A run that waits for something which
// never answers must not be the last one.
func jobTimeout(interval time.Duration) time.Duration {
	return min(max(10*interval, 15*time.Second), 30*time.Minute)
}

// repeatJob returns a job that runs f immediately and then in intervals.
func (s *Server) repeatJob(interval time.Duration, what string,
	f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return s.repeat(ctx, interval, jobTimeout(interval), what, f) }
}

// repeat runs f immediately and then in intervals, until ctx ends. Each run has a deadline. It logs and counts a
// failure and goes on, because none of these jobs may stop the node.
func (s *Server) repeat(ctx context.Context, interval, timeout time.Duration, what string,
	f func(context.Context) error) error {
	s.expectJob(interval, timeout, what)
	tick, stop := s.Ticks.Every(interval)
	defer stop()
	for {
		s.runJob(ctx, timeout, what, f)
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// runJob runs a job once.
func (s *Server) runJob(ctx context.Context, timeout time.Duration, what string, f func(context.Context) error) {
	run, cancel := context.WithTimeout(db.ForJob(ctx), timeout)
	defer cancel()
	err := f(run)
	if s.jobEnded != nil && ctx.Err() == nil {
		s.jobEnded(what, err)
	}
	switch {
	case err == nil:
		s.metrics.NoteJob(what)
	case ctx.Err() == nil:
		s.metrics.CountFailedJob(what)
		s.log.Error("job failed", "job", what, "error", err)
	}
}

// expectJob says when a job counts as failing: two runs in a row have failed, and a quarter of an hour is over.
func (s *Server) expectJob(interval, timeout time.Duration, what string) {
	s.metrics.ExpectJob(what, timeout+max(2*interval, 15*time.Minute))
}
