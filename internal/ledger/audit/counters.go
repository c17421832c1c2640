package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

// maxClockSkew is the greatest difference between the clocks of two nodes. A charge at the
// end of a bucket may be counted in the next one.
const maxClockSkew = time.Second

// dailyWindow is the window of spend limits.
const dailyWindow = 24 * time.Hour

// skewAndFirstBucket returns the arguments of checks of buckets: the skew, and the first
// bucket that every counter still has. The oldest of the window may be deleted already.
func skewAndFirstBucket(now time.Time) []any {
	width := (10 * time.Minute).Microseconds()
	return []any{maxClockSkew.Microseconds(), now.Add(-dailyWindow).UnixMicro()/width + 1}
}

// A reservation is what a hold reserves in a counter: "subject|unit|seconds|amount".
type reservation struct {
	subject, unit   string
	seconds, amount int64
}

func parseReservations(text string) (list []reservation, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range strings.Split(text, " ") {
		f := strings.Split(word, "|")
		if len(f) != 4 || f[0] == "" || f[1] != "s" && f[1] != "c" {
			return nil, fmt.Errorf("counts %q cannot be read", text)
		}
		p := reservation{subject: f[0], unit: f[1]}
		var err1, err2 error
		p.seconds, err1 = strconv.ParseInt(f[2], 10, 64)
		p.amount, err2 = strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil || p.seconds < 0 || p.amount < 0 || p.amount > maxAmountMC {
			return nil, fmt.Errorf("counts %q cannot be read", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// checkCountersHeld compares what each counter holds with the sum of the holds'
// reservations. The holds are few and kept in memory; the counters are read one by one.
func checkCountersHeld(ctx context.Context, a *verification, v *checkResult) error {
	held := map[string]int64{}
	err := a.forEachRow(ctx, `SELECT reservations FROM holds WHERE state <>
		'failed'`, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		parts, _ := parseReservations(text) // checkHoldReservations reports what cannot be parsed
		for _, p := range parts {
			held[p.subject] += p.amount
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = a.forEachRow(ctx, `SELECT subject, held FROM counters`, func(scan func(...any) error) error {
		var subject string
		var counted int64
		if err := scan(&subject, &counted); err != nil {
			return err
		}
		if v.checked++; counted != held[subject] {
			v.addFinding("counter=%s held_mc=%d holds_mc=%d", subject, counted, held[subject])
		}
		delete(held, subject)
		return nil
	})
	for _, subject := range slices.Sorted(maps.Keys(held)) {
		v.addFinding("counter=%s is missing, holds_mc=%d", subject, held[subject])
	}
	return err
}

// checkHoldReservations checks that a call has one payer (contract §2, 9), and that its
// hold reserves the whole amount in each of its counters.
func checkHoldReservations(ctx context.Context, a *verification, v *checkResult) error {
	return a.forEachRow(ctx, `SELECT request_id, key, account_id, app_id, paid_by, amount_mc, terms, reservations
		FROM holds`,
		func(scan func(...any) error) error {
			var request, key, account, app, paidBy, termsText, text string
			var amount int64
			if err := scan(&request, &key, &account, &app, &paidBy, &amount, &termsText, &text); err != nil {
				return err
			}
			v.checked++
			parts, err := parseReservations(text)
			if err != nil {
				v.addFinding("request=%s: %v", request, err)
				return nil
			}
			free, child := map[string]bool{}, ""
			for _, p := range parts {
				whole := p.unit == "s" && p.amount == amount || p.unit == "c" && p.amount <= amount
				if isFree := strings.HasPrefix(p.subject, "free/"); isFree {
					free[p.subject] = true
					whole = whole && p.unit == "s" && p.seconds == 0
				}
				budget := map[string]string{"wallet": "child/", "free_credit": "childfree/"}[paidBy]
				if childID, isChild := strings.CutPrefix(p.subject, budget); isChild {
					child = childID
					whole = whole && p.unit == "s" && p.seconds == 0
				}
				if !whole {
					v.addFinding("request=%s amount_mc=%d: holds %d of %s", request, amount, p.amount, p.subject)
				}
			}
			ofKey, _, _ := strings.Cut(key, "/")
			isChilds := strings.HasPrefix(key, id.Child)
			if (isChilds || child != "") && ofKey != child {
				v.addFinding("request=%s key=%s: counts %q", request, key, text)
			}
			want := map[string]bool{}
			if paidBy == "free_credit" {
				var t terms
				_ = parseTerms(termsText, &t) // checkHolds reports the error
				want = map[string]bool{t.Pool: true, "free/" + app + "/" + account: true, "free/" + account: true}
			}
			counted := len(want)
			if isChilds {
				counted++
			}
			if !maps.Equal(free, want) || paidBy == "free_credit" && len(parts) != counted {
				v.addFinding("request=%s paid_by=%s: counts %q", request, paidBy, text)
			}
			return nil
		})
}

// checkFreeCredit checks a row that free credit paid: it is charged at cost, or what a child had left of its budget,
// moves nothing, and names the app's pool of the month in which the call began.
func checkFreeCredit(f *accountTotals, r *ledgerRow) string {
	isCapped := strings.HasPrefix(r.key, id.Child) && r.remaining == 0 && r.fee < 0
	if r.fee != 0 && !isCapped || r.margin != 0 {
		return fmt.Sprintf("free credit paid a fee of %d and a margin of %d", r.fee, r.margin)
	}
	if r.status != "settled" {
		return "a call paid by free credit is refunded"
	}
	if f.billingErr != nil {
		return "" // checkProviderCost reports it
	}
	at := time.UnixMicro(r.created).UTC()
	for _, began := range []time.Time{at, at.Add(-dailyWindow)} {
		if f.billing.Pool == "free/"+r.app+"/"+began.Format("2006-01") {
			return ""
		}
	}
	return fmt.Sprintf("pool %q is not that of app %s in %s", f.billing.Pool, r.app, at.Format("2006-01"))
}

// forEachRow calls f for every row of a query.
func (a *verification) forEachRow(
	ctx context.Context, query string, f func(scan func(...any) error) error,
) (err error) {
	query, args := a.prepare(query, nil)
	rows, err := a.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
