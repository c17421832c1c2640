// Package rules holds the risk rules that suspend a live app (contract §3; decision 062). It does no I/O and
// takes all counts as arguments.
package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// The thresholds, the same on every node and for every app.
const (
	Day = 24 * time.Hour

	// Revocation spike: of the connections that were live a day ago at least a fifth, and at least ten, have
	// been revoked since. The minimum protects small apps from chance.
	MinRevocations   = 10
	RevocationsShare = 5

	// Spend anomaly, such as a leaked secret or a loop: an hour far above the usual hour of the last week, and
	// above a floor below which the damage is too small to suspend an app. An app that had spend in fewer than
	// minHours hours has no usual hour yet: its first good hour is no anomaly, and its floor is the whole day that the
	// limited-live tier allows.
	SpendFloor  = 50 * money.Dollar
	newAppFloor = 250 * money.Dollar
	minHours    = 24
	spendFactor = 20
	Week        = 7 * Day

	// Chargebacks. One or two are usual.
	MinChargebacks   = 3
	ChargebackWindow = 30 * Day
)

// Names of the rules, as in the log and the metrics.
const (
	ruleRevocations = "revocations"
	ruleSpend       = "spend"
	ruleChargebacks = "chargebacks"
)

// A Finding is a rule that an app has broken, and the reason as a text.
type Finding struct{ Rule, Reason string }

// JudgeRevocations takes the number of connections that were live at the start of the window, and how many
// of them have been revoked since.
func JudgeRevocations(live, revoked int64) *Finding {
	if revoked < MinRevocations || revoked*RevocationsShare < live {
		return nil
	}
	return &Finding{ruleRevocations,
		fmt.Sprintf("%d of the %d connections that were live 24 hours ago were revoked since", revoked, live)}
}

// JudgeSpend takes the spend of the last hour, and of the hours of the week before it that had any spend.
func JudgeSpend(hour money.MC, before []money.MC) *Finding {
	floor := SpendFloor
	if len(before) < minHours {
		floor = newAppFloor
	}
	limit := max(floor, spendFactor*median(before))
	if hour <= limit {
		return nil
	}
	return &Finding{ruleSpend,
		fmt.Sprintf("users were charged %s within an hour, more than %s: the larger of %s and %d times the usual "+
			"hour of the last week, which had %d hours with charges", hour.Display(), limit.Display(), floor.Display(),
			spendFactor, len(before))}
}

// JudgeChargebacks takes the number of chargebacks within ChargebackWindow.
func JudgeChargebacks(n int64) *Finding {
	if n < MinChargebacks {
		return nil
	}
	return &Finding{ruleChargebacks, fmt.Sprintf("%d charges were taken back by banks within 30 days", n)}
}

// median returns the median, the lower of two; 0 for an empty list.
func median(list []money.MC) money.MC {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[(len(list)-1)/2]
}

// BucketWidth is the width of a bucket of spend; an hour is six of them, the current one included.
const (
	BucketWidth    = 10 * time.Minute
	BucketsPerHour = int64(time.Hour / BucketWidth)
)

// BucketOf returns the number of the bucket of a time in microseconds.
func BucketOf(us int64) int64 { return us / BucketWidth.Microseconds() }

// SumHours returns the spend of each hour before bucket first, counted backwards from there. It leaves out
// hours without spend.
func SumHours(spend map[int64]money.MC, first int64) (list []money.MC) {
	sums := map[int64]money.MC{}
	for bucket, mc := range spend {
		if bucket < first {
			sums[(first-1-bucket)/BucketsPerHour] += mc
		}
	}
	for _, mc := range sums {
		if mc > 0 {
			list = append(list, mc)
		}
	}
	return list
}
