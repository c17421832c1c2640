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
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/metrics"
)

// A Watch looks after live apps.
type Watch struct {
	DB      *db.DB
	Apps    *apps.Store
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// interval is how often apps are looked at, by all nodes together.
const interval = time.Minute

// atOnce bounds what one statement counts: a day.
const atOnce = int64(day / width)

// Run takes a turn if one is due. Every node calls it as often as it likes.
func (w *Watch) Run(ctx context.Context) error {
	now := w.Now()
	bucket, mine, err := takeTurn(ctx, w.DB, now.UnixMicro(), now.Add(interval).UnixMicro())
	if err != nil || !mine {
		return err
	}
	return errors.Join(w.watchRevocations(ctx, now), w.watchSpend(ctx, now, bucket), w.watchChargebacks(ctx, now))
}

func (w *Watch) watchRevocations(ctx context.Context, now time.Time) error {
	candidates, err := revoking(ctx, w.DB, now.Add(-day).UnixMicro(), minRevocations)
	if err != nil {
		return fmt.Errorf("watch: revocations: %w", err)
	}
	return w.judge(ctx, candidates, func(a apps.App) (*finding, error) {
		live, revoked, err := revocations(ctx, w.DB, a.ID, since(a, now.Add(-day)))
		return judgeRevocations(live, revoked), err
	})
}

func (w *Watch) watchChargebacks(ctx context.Context, now time.Time) error {
	candidates, err := chargedBack(ctx, w.DB, now.Add(-chargebacksWithin).UnixMicro(), minChargebacks)
	if err != nil {
		return fmt.Errorf("watch: chargebacks: %w", err)
	}
	return w.judge(ctx, candidates, func(a apps.App) (*finding, error) {
		n, err := chargebacks(ctx, w.DB, a.ID, since(a, now.Add(-chargebacksWithin)))
		return judgeChargebacks(n), err
	})
}

// watchSpend counts what has ended since the last turn, and judges the last hour:
// the present bucket, which is counted now, and the five before it.
func (w *Watch) watchSpend(ctx context.Context, now time.Time, counted int64) error {
	present := bucketOf(now.UnixMicro())
	running, err := w.count(ctx, now, counted)
	if err != nil {
		return err
	}
	first := present - bucketsOfHour + 1
	hour, err := countedSince(ctx, w.DB, first)
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
		if total(buckets, first) > spendFloor {
			candidates = append(candidates, appID)
		}
	}
	slices.Sort(candidates)
	return w.judge(ctx, candidates, func(a apps.App) (*finding, error) { return w.judgeHour(ctx, a, hour[a.ID], first) })
}

func (w *Watch) judgeHour(ctx context.Context, a apps.App, hour map[int64]money.MC, first int64) (*finding, error) {
	// What an operator has forgiven is forgiven in whole buckets.
	spent := total(hour, max(first, bucketOf(a.LiftedUS)+1))
	if spent <= spendFloor {
		return nil, nil
	}
	before, err := counted(ctx, w.DB, a.ID, first-int64(week/width))
	return judgeSpend(spent, hours(before, first)), err
}

func total(buckets map[int64]money.MC, first int64) (sum money.MC) {
	for bucket, mc := range buckets {
		if bucket >= first {
			sum += mc
		}
	}
	return sum
}

// count stores the buckets that have ended, and returns those that have not, or
// have ended this moment: a batch that is late still adds to them.
func (w *Watch) count(ctx context.Context, now time.Time, from int64) (running map[string]map[int64]money.MC, err error) {
	present := bucketOf(now.UnixMicro())
	ended := bucketOf(now.Add(-time.Minute).UnixMicro()) // buckets before this one are complete
	oldest := present - bucketsOfHour - int64(week/width)
	for from = max(from, oldest); from < ended; { // more than once after the nodes were down
		to := min(ended, from+atOnce)
		list, err := spent(ctx, w.DB, from, to)
		if err == nil {
			err = w.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return keep(ctx, tx, list, to, oldest) })
		}
		if err != nil {
			return nil, fmt.Errorf("watch: count: %w", err)
		}
		from = to
	}
	if running, err = spent(ctx, w.DB, ended, present+1); err != nil {
		return nil, fmt.Errorf("watch: count: %w", err)
	}
	return running, nil
}

// since is the beginning of a window, but not before the operator's last word.
func since(a apps.App, begin time.Time) int64 { return max(begin.UnixMicro(), a.LiftedUS) }

// judge suspends those candidates that break a rule. One that fails does not keep
// the others from being judged.
func (w *Watch) judge(ctx context.Context, candidates []string, rule func(apps.App) (*finding, error)) (err error) {
	for _, appID := range candidates {
		a, getErr := w.Apps.Get(ctx, appID)
		if getErr != nil {
			err = errors.Join(err, getErr)
			continue
		}
		if a.Tier == apps.Sandbox || a.Suspension != nil {
			continue
		}
		f, ruleErr := rule(a)
		if ruleErr == nil && f != nil {
			ruleErr = w.suspend(ctx, a, *f)
		}
		if ruleErr != nil {
			err = errors.Join(err, fmt.Errorf("watch: %s: %w", appID, ruleErr))
		}
	}
	return err
}

func (w *Watch) suspend(ctx context.Context, a apps.App, f finding) error {
	err := w.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.Apps.Suspend(ctx, tx, a.ID, apps.ByRisk, f.reason)
		return err
	})
	if errors.Is(err, apps.ErrUnchanged) {
		return nil // by another rule, or by the operator, a moment ago
	} else if err != nil {
		return err
	}
	w.Apps.NotifyChange()
	w.Metrics.Alarm("app_suspended", f.rule)
	w.Log.Error("app suspended", "app_id", a.ID, "rule", f.rule, "reason", f.reason)
	return nil
}
