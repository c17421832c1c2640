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
)

// skew is how far apart the clocks of two nodes may be: a charge of a bucket's last
// moment may stand in the next one.
const skew = time.Second

// day is the window of spend limits.
const day = 24 * time.Hour

// skewAndFirst are the arguments of checks of buckets: the skew, and the first bucket
// that is surely remembered. The oldest of the window may be gone already.
func skewAndFirst(now time.Time) []any {
	width := (10 * time.Minute).Microseconds()
	return []any{skew.Microseconds(), now.Add(-day).UnixMicro()/width + 1}
}

// part is what a hold holds of a counter: "subject|unit|seconds|amount".
type part struct {
	subject, unit   string
	seconds, amount int64
}

func readParts(text string) (list []part, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range strings.Split(text, " ") {
		f := strings.Split(word, "|")
		if len(f) != 4 || f[0] == "" || f[1] != "s" && f[1] != "c" {
			return nil, fmt.Errorf("counts %q cannot be read", text)
		}
		p := part{subject: f[0], unit: f[1]}
		var err1, err2 error
		p.seconds, err1 = strconv.ParseInt(f[2], 10, 64)
		p.amount, err2 = strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil || p.seconds < 0 || p.amount < 0 || p.amount > absurd {
			return nil, fmt.Errorf("counts %q cannot be read", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// wrongHeld compares what each counter says is held with what the holds say. The
// holds are few, and stand in memory; the counters are read one by one.
func wrongHeld(ctx context.Context, a *audit, v *verdict) error {
	held := map[string]int64{}
	err := a.each(ctx, `SELECT counts FROM holds WHERE state <> 'failed'`, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		parts, _ := readParts(text) // what cannot be read is told by wrongParts, and missing here
		for _, p := range parts {
			held[p.subject] += p.amount
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = a.each(ctx, `SELECT subject, held FROM windows`, func(scan func(...any) error) error {
		var subject string
		var counted int64
		if err := scan(&subject, &counted); err != nil {
			return err
		}
		if v.checked++; counted != held[subject] {
			v.fail("counter=%s held_mc=%d holds_mc=%d", subject, counted, held[subject])
		}
		delete(held, subject)
		return nil
	})
	for _, subject := range slices.Sorted(maps.Keys(held)) {
		v.fail("counter=%s is missing, holds_mc=%d", subject, held[subject])
	}
	return err
}

// wrongParts checks that a call has one payer (contract §2, 9), who holds all of it of
// each of its counters.
func wrongParts(ctx context.Context, a *audit, v *verdict) error {
	return a.each(ctx, `SELECT request_id, account_id, app_id, paid_by, amount_mc, terms, counts FROM holds`,
		func(scan func(...any) error) error {
			var request, account, app, paidBy, termsText, text string
			var amount int64
			if err := scan(&request, &account, &app, &paidBy, &amount, &termsText, &text); err != nil {
				return err
			}
			v.checked++
			parts, err := readParts(text)
			if err != nil {
				v.fail("request=%s: %v", request, err)
				return nil
			}
			free := map[string]bool{}
			for _, p := range parts {
				whole := p.unit == "s" && p.amount == amount || p.unit == "c" && p.amount <= amount
				if isFree := strings.HasPrefix(p.subject, "free/"); isFree {
					free[p.subject] = true
					whole = whole && p.unit == "s" && p.seconds == 0
				}
				if !whole {
					v.fail("request=%s amount_mc=%d: holds %d of %s", request, amount, p.amount, p.subject)
				}
			}
			want := map[string]bool{}
			if paidBy == "free_credit" {
				var t terms
				_ = readTerms(termsText, &t) // told by wrongHolds
				want = map[string]bool{t.Pool: true, "free/" + app + "/" + account: true, "free/" + account: true}
			}
			if !maps.Equal(free, want) || paidBy == "free_credit" && len(parts) != len(want) {
				v.fail("request=%s paid_by=%s: counts %q", request, paidBy, text)
			}
			return nil
		})
}

// wrongFree checks a row that free credit paid: at cost, nothing moves, and its pool
// is the app's of the month in which the call began.
func wrongFree(f *fold, r *row) string {
	if r.fee != 0 || r.margin != 0 {
		return fmt.Sprintf("free credit paid a fee of %d and a margin of %d", r.fee, r.margin)
	}
	if r.status != "settled" {
		return "a call paid by free credit is refunded"
	}
	if f.unread != nil {
		return "" // told by wrongCost
	}
	at := time.UnixMicro(r.created).UTC()
	for _, began := range []time.Time{at, at.Add(-day)} {
		if f.billing.Pool == "free/"+r.app+"/"+began.Format("2006-01") {
			return ""
		}
	}
	return fmt.Sprintf("pool %q is not that of app %s in %s", f.billing.Pool, r.app, at.Format("2006-01"))
}

// each calls f for every row of a query.
func (a *audit) each(ctx context.Context, query string, f func(scan func(...any) error) error) (err error) {
	rows, err := a.QueryContext(ctx, query)
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
