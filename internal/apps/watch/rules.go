// Package watch suspends live apps that hurt their users (spec §3, App tier: spend
// anomalies, revocation spikes, chargebacks). It looks every minute, on one node at
// a time; what it sees is counted anew from the ledger and the connections, so a
// turn that is lost or done twice changes nothing. What an operator has lifted is
// forgiven: only what comes after it counts again.
package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// The rules. They are the same on every node and for every app, so they are
// constants and no settings.
const (
	day = 24 * time.Hour

	// Users who leave in a crowd: of those that were connected a day ago at least a
	// fifth has revoked since, and at least ten people, so that a small app does not
	// fall by chance.
	minRevocations   = 10
	revocationsShare = 5

	// A leaked secret or a loop: an hour beyond anything of the last week. Below $50
	// an hour nobody is hurt enough to stop an app for.
	spendFloor  = 50 * money.Dollar
	spendFactor = 20
	week        = 7 * day

	// Banks that took payments back. One or two happen to everybody.
	minChargebacks    = 3
	chargebacksWithin = 30 * day
)

// The names of the rules, as the log and the metrics have them.
const (
	ruleRevocations = "revocations"
	ruleSpend       = "spend"
	ruleChargebacks = "chargebacks"
)

// A finding is a rule that an app has broken, and why in words.
type finding struct{ rule, reason string }

// judgeRevocations is told how many connections were live when the window began,
// and how many of them have been revoked since.
func judgeRevocations(live, revoked int64) *finding {
	if revoked < minRevocations || revoked*revocationsShare < live {
		return nil
	}
	return &finding{ruleRevocations, fmt.Sprintf("%d of the %d connections that were live 24 hours ago were revoked since", revoked, live)}
}

// judgeSpend is told the last hour and the hours of the week before it in which
// anything was spent at all.
func judgeSpend(hour money.MC, before []money.MC) *finding {
	limit := max(spendFloor, spendFactor*median(before))
	if hour <= limit {
		return nil
	}
	return &finding{ruleSpend, fmt.Sprintf("users were charged %s within an hour, more than %s: the larger of %s and %d times the usual hour of the last week", hour.Display(), limit.Display(), spendFloor.Display(), spendFactor)}
}

func judgeChargebacks(n int64) *finding {
	if n < minChargebacks {
		return nil
	}
	return &finding{ruleChargebacks, fmt.Sprintf("%d charges were taken back by banks within 30 days", n)}
}

// median is the middle one, the lower of two; 0 of none.
func median(list []money.MC) money.MC {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[(len(list)-1)/2]
}

// width is a bucket of spend; an hour is six of them, the present one included.
const (
	width         = 10 * time.Minute
	bucketsOfHour = int64(time.Hour / width)
)

func bucketOf(us int64) int64 { return us / width.Microseconds() }

// hours adds up the buckets of the week before the hour that begins at bucket
// first, in whole hours counted backwards from there. Only those with spend are returned.
func hours(spend map[int64]money.MC, first int64) (list []money.MC) {
	sums := map[int64]money.MC{}
	for bucket, mc := range spend {
		if bucket < first {
			sums[(first-1-bucket)/bucketsOfHour] += mc
		}
	}
	for _, mc := range sums {
		if mc > 0 {
			list = append(list, mc)
		}
	}
	return list
}
