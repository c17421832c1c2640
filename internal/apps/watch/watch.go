// Package watch suspends live apps that harm their users (contract §3, App tier: spend anomalies, revocation spikes,
// chargebacks). It checks every minute, on one node at a time. It counts from the ledger and the connections, so that a
// check may be lost or repeated. After an operator has lifted a suspension, only later facts count.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/watch/rules"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/metrics"
)

// A Watch checks live apps.
type Watch struct {
	DB      *db.DB
	Apps    *apps.Store
	Report  func(context.Context, *db.Tx, apps.App) error // tells the developer of a suspended app
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// interval is the time between checks, over all nodes.
const interval = time.Minute

// maxBucketsPerStatement bounds the buckets that one statement counts: a day.
const maxBucketsPerStatement = int64(rules.Day / rules.BucketWidth)

// Run runs a check if one is due. Every node may call it at any time.
func (w *Watch) Run(ctx context.Context) error {
	now := w.Now()
	bucket, mine, err := claimTurn(ctx, w.DB, now.UnixMicro(), now.Add(interval).UnixMicro())
	if err != nil || !mine {
		return err
	}
	return errors.Join(w.checkRevocations(ctx, now), w.checkSpend(ctx, now, bucket), w.checkChargebacks(ctx, now))
}

func (w *Watch) checkRevocations(ctx context.Context, now time.Time) error {
	candidates, err := listRevocationCandidates(ctx, w.DB, now.Add(-rules.Day).UnixMicro(), rules.MinRevocations)
	if err != nil {
		return fmt.Errorf("watch: revocations: %w", err)
	}
	return w.judgeCandidates(ctx, candidates, func(a apps.App) (*rules.Finding, error) {
		live, revoked, err := countRevocations(ctx, w.DB, a.ID, windowStart(a, now.Add(-rules.Day)))
		return rules.JudgeRevocations(live, revoked), err
	})
}

func (w *Watch) checkChargebacks(ctx context.Context, now time.Time) error {
	candidates, err := listChargebackCandidates(ctx, w.DB, now.Add(-rules.ChargebackWindow).UnixMicro(),
		rules.MinChargebacks)
	if err != nil {
		return fmt.Errorf("watch: chargebacks: %w", err)
	}
	return w.judgeCandidates(ctx, candidates, func(a apps.App) (*rules.Finding, error) {
		n, err := countChargebacks(ctx, w.DB, a.ID, windowStart(a, now.Add(-rules.ChargebackWindow)))
		return rules.JudgeChargebacks(n), err
	})
}

// checkSpend counts the buckets that have ended since the last check, and judges the last hour: the current bucket and
// the five before it.
func (w *Watch) checkSpend(ctx context.Context, now time.Time, counted int64) error {
	present := rules.BucketOf(now.UnixMicro())
	running, err := w.countSpend(ctx, now, counted)
	if err != nil {
		return err
	}
	first := present - rules.BucketsPerHour + 1
	hour, err := listCountedBetween(ctx, w.DB, first, present)
	if err != nil {
		return fmt.Errorf("watch: spend: %w", err)
	}
	for appID, buckets := range running {
		if hour[appID] == nil {
			hour[appID] = map[int64]money.MC{}
		}
		maps.Copy(hour[appID], buckets)
	}
	var candidates []string
	for appID, buckets := range hour {
		if sumBuckets(buckets, first) > rules.SpendFloor {
			candidates = append(candidates, appID)
		}
	}
	slices.Sort(candidates)
	return w.judgeCandidates(ctx, candidates, func(a apps.App) (*rules.Finding, error) {
		return w.judgeHour(ctx, a, hour[a.ID], first)
	})
}

func (w *Watch) judgeHour(ctx context.Context, a apps.App, hour map[int64]money.MC,
	first int64) (*rules.Finding, error) {
	// Spend counts again from the first whole bucket after the operator lifted a suspension.
	spent := sumBuckets(hour, max(first, rules.BucketOf(a.LiftedUS)+1))
	if spent <= rules.SpendFloor {
		return nil, nil
	}
	before, err := listCounted(ctx, w.DB, a.ID, first-int64(rules.Week/rules.BucketWidth))
	return rules.JudgeSpend(spent, rules.SumHours(before, first)), err
}

func sumBuckets(buckets map[int64]money.MC, first int64) (sum money.MC) {
	for bucket, mc := range buckets {
		if bucket >= first {
			sum += mc
		}
	}
	return sum
}

// countSpend stores the buckets that are complete and returns the later ones. A bucket is complete one minute after its
// end, because late batches still add to it.
func (w *Watch) countSpend(ctx context.Context, now time.Time,
	from int64) (running map[string]map[int64]money.MC, err error) {
	present := rules.BucketOf(now.UnixMicro())
	ended := rules.BucketOf(now.Add(-time.Minute).UnixMicro()) // buckets before this one are complete
	oldest := present - rules.BucketsPerHour - int64(rules.Week/rules.BucketWidth)
	if from > ended { // counted by a clock that was ahead: what it left out or deleted is counted again
		from = oldest
	}
	for from = max(from, oldest); from < ended; { // several statements after a downtime of all nodes
		to := min(ended, from+maxBucketsPerStatement)
		list, err := sumSpend(ctx, w.DB, from, to)
		if err == nil {
			err = w.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return saveCounts(ctx, tx, list, to, oldest)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("watch: count: %w", err)
		}
		from = to
	}
	if running, err = sumSpend(ctx, w.DB, ended, present+1); err != nil {
		return nil, fmt.Errorf("watch: count: %w", err)
	}
	return running, nil
}

// windowStart returns the start of a window, but not before the operator last lifted a suspension.
func windowStart(a apps.App, begin time.Time) int64 { return max(begin.UnixMicro(), a.LiftedUS) }

// judgeCandidates suspends the candidates that break a rule. It goes on after an error.
func (w *Watch) judgeCandidates(ctx context.Context, candidates []string,
	judgeApp func(apps.App) (*rules.Finding, error)) (err error) {
	for _, appID := range candidates {
		a, getErr := w.Apps.Get(ctx, appID)
		if getErr != nil {
			err = errors.Join(err, getErr)
			continue
		}
		if a.Tier == apps.Sandbox || a.Suspension != nil {
			continue
		}
		f, ruleErr := judgeApp(a)
		if ruleErr == nil && f != nil {
			ruleErr = w.suspendApp(ctx, a, *f)
		}
		if ruleErr != nil {
			err = errors.Join(err, fmt.Errorf("watch: %s: %w", appID, ruleErr))
		}
	}
	return err
}

func (w *Watch) suspendApp(ctx context.Context, a apps.App, f rules.Finding) error {
	err := w.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, suspended, err := w.Apps.Suspend(ctx, tx, a.ID, apps.ByRisk, f.Reason)
		if err != nil {
			return err
		}
		return w.Report(ctx, tx, suspended)
	})
	if errors.Is(err, apps.ErrUnchanged) {
		return nil // another rule or the operator has just suspended it
	} else if err != nil {
		return err
	}
	w.Apps.NotifyChange(a.ID)
	w.Metrics.RaiseAlarm("app_suspended", f.Rule)
	w.Log.Error("app suspended", "app_id", a.ID, "rule", f.Rule, "reason", f.Reason)
	return nil
}
