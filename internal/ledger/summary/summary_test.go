package summary

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/purserhq/purser/internal/base/money"
)

func weighEqually(string) Weights { return Weights{1, 1} }

// TestCausesAddUp divides random differences: the causes are the difference, to the micro-cent, also after Limit, and
// the order of the rows does not matter.
func TestCausesAddUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(104, 1))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	for range 3000 {
		size := int64(1) << r.IntN(44)
		rows := func() (list []Row) {
			for range r.IntN(14) {
				row := Row{
					App:     pick("app_1", "app_2"),
					Feature: pick("", "chat", "other"),
					Model:   pick("small", "large", "voice"),
					Calls:   r.Int64N(2 + size>>20),
					Input:   r.Int64N(size),
					Output:  r.Int64N(size),
				}
				if r.IntN(4) > 0 {
					row.ChargeMC = money.MC(r.Int64N(size))
				}
				if r.IntN(4) == 0 {
					row.RefundedMC = money.MC(r.Int64N(size))
				}
				list = append(list, row)
			}
			return list
		}
		now, before := rows(), rows()
		weigh := func(model string) Weights { return Weights{int64(len(model)) % 3, int64(len(model))} }
		s := Compare(now, before, weigh)
		var want money.MC
		for _, row := range now {
			want += row.ChargeMC - row.RefundedMC
		}
		for _, row := range before {
			want -= row.ChargeMC - row.RefundedMC
		}
		for _, list := range [][]Cause{s.Causes, s.Limit(3), s.Limit(1)} {
			var sum money.MC
			for _, c := range list {
				sum += c.AmountMC
			}
			if sum != want || s.ChangeMC() != want {
				t.Fatalf("causes of %d add up to %d, change %d\nnow %+v\nbefore %+v\n%+v", want, sum, s.ChangeMC(), now,
					before, list)
			}
		}
		r.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		if d := cmp.Diff(s, Compare(now, before, weigh), cmpopts.EquateComparable(Cause{})); d != "" {
			t.Fatalf("in another order:\n%s", d)
		}
		if n := len(s.Sentences(MonthTo(time.Unix(1_700_000_000, 0)), strings.Clone)); n > 3 {
			t.Fatalf("%d sentences", n)
		}
	}
}

// row is 100 input and 50 output tokens a call, for a dollar.
func row(app, feature, model string, calls int64) Row {
	return Row{
		App:      app,
		Feature:  feature,
		Model:    model,
		Calls:    calls,
		Input:    100 * calls,
		Output:   50 * calls,
		ChargeMC: money.MC(calls) * money.Dollar,
	}
}

func with(r Row, change func(*Row)) Row { change(&r); return r }

// TestText changes one thing at a time: only that is a cause, and the sentences name it with its figures.
func TestText(t *testing.T) {
	t.Parallel()
	old := row("Night Reader", "", "small", 10)
	for _, c := range []struct {
		name        string
		now, before []Row
		causes      []Kind
		want        string
	}{
		{"nothing", nil, nil, nil, ""},
		{"nothing before", []Row{old}, nil, []Kind{Started}, "You spent $10.00 in November so far."},
		{"nothing now", nil, []Row{old}, []Kind{Ended},
			"You spent nothing in November so far, $10.00 less than in the same days of October. " +
				"All of it is because Night Reader made no calls instead of 10."},
		{"as before", []Row{old}, []Row{old}, nil,
			"You spent $10.00 in November so far, about as much as in the same days of October."},
		{"more calls", []Row{row("Night Reader", "", "small", 1240)}, []Row{row("Night Reader", "", "small", 1000)},
			[]Kind{Calls}, "You spent $1,240.00 in November so far, $240.00 more than in the same days of October. " +
				"All of it is because Night Reader made 1,240 calls instead of 1,000."},
		{"fewer calls and an app", []Row{row("Night Reader", "", "small", 4), row("Tutor", "", "small", 1)},
			[]Row{old}, []Kind{Calls, Started},
			"You spent $5.00 in November so far, $5.00 less than in the same days of October. " +
				"$6.00 less is because Night Reader made 4 calls instead of 10. " +
				"$1.00 more is because Tutor made 1 call instead of none."},
		{"two apps", []Row{row("Night Reader", "", "small", 16), row("Tutor", "", "small", 4)}, []Row{old},
			[]Kind{Calls, Started},
			"You spent $20.00 in November so far, $10.00 more than in the same days of October. " +
				"Most of it, $6.00, is because Night Reader made 16 calls instead of 10. " +
				"Another $4.00 is because Tutor made 4 calls instead of none."},
		{"a feature", []Row{old, row("Night Reader", "chat", "small", 10)},
			[]Row{old, row("Night Reader", "chat", "small", 2), row("Night Reader", "titles", "small", 1)},
			[]Kind{Calls, Ended}, "You spent $20.00 in November so far, $7.00 more than in the same days of October. " +
				"$8.00 more is because Night Reader made 10 calls for chat instead of 2. " +
				"$1.00 less is because Night Reader made no calls for titles instead of 1."},
		{"models", []Row{row("Night Reader", "", "small", 2), with(row("Night Reader", "", "large", 8), func(r *Row) {
			r.ChargeMC *= 5
		})}, []Row{row("Night Reader", "", "small", 9), with(row("Night Reader", "", "large", 1), func(r *Row) {
			r.ChargeMC *= 5
		})}, []Kind{Models}, "You spent $42.00 in November so far, $28.00 more than in the same days of October. " +
			"All of it is because Night Reader made 8 of 10 calls with large instead of 1 of 10."},
		{"a new model", []Row{row("Night Reader", "", "small", 5), with(row("Night Reader", "", "large", 5),
			func(r *Row) { r.ChargeMC *= 3 })}, []Row{old}, []Kind{Models},
			"You spent $20.00 in November so far, $10.00 more than in the same days of October. " +
				"All of it is because Night Reader made 5 of 10 calls with large instead of none of 10."},
		{"longer calls", []Row{with(old, func(r *Row) {
			r.Input, r.Output, r.ChargeMC = 2*r.Input, 2*r.Output, 2*r.ChargeMC
		})}, []Row{old}, []Kind{Length}, "You spent $20.00 in November so far, $10.00 more than in the same days of " +
			"October. All of it is because " +
			"Night Reader’s calls with small had 300 tokens on average instead of 150."},
		{"prices", []Row{with(old, func(r *Row) { r.ChargeMC = r.ChargeMC / 10 * 9 })}, []Row{old}, []Kind{Prices},
			"You spent $9.00 in November so far, $1.00 less than in the same days of October. " +
				"All of it is because tokens of Night Reader’s calls with small cost less on average."},
		{"a refund", []Row{with(old, func(r *Row) { r.RefundedMC = 3 * money.Dollar })}, []Row{old}, []Kind{Refunds},
			"You spent $7.00 in November so far, $3.00 less than in the same days of October. " +
				"All of it is because $3.00 was refunded for Night Reader instead of nothing."},
		{"cents", []Row{with(old, func(r *Row) { r.Calls, r.ChargeMC = 20, money.Cent })},
			[]Row{with(old, func(r *Row) { r.ChargeMC = money.Cent / 2 })}, []Kind{Calls, Length, Prices},
			"You spent $0.0100 in November so far, $0.0050 more than in the same days of October. " +
				"All of it is because Night Reader made 20 calls instead of 10. " +
				"$0.0050 less is because Night Reader’s calls with small had 75 tokens on average instead of 150."},
	} {
		s := Compare(c.now, c.before, weighEqually)
		var kinds []Kind
		for _, cause := range s.Causes {
			kinds = append(kinds, cause.Kind)
		}
		if d := cmp.Diff(c.causes, kinds); d != "" {
			t.Errorf("%s: causes\n%s", c.name, d)
		}
		p := MonthTo(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
		if got := Text(s.Sentences(p, strings.Clone)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestWeights makes answers longer: with the weights of prices all of it is length, and none of it the price.
func TestWeights(t *testing.T) {
	t.Parallel()
	before := Row{App: "a", Model: "m", Calls: 1, Input: 100, Output: 100, ChargeMC: 100*1000 + 100*4000}
	now := Row{App: "a", Model: "m", Calls: 1, Input: 100, Output: 400, ChargeMC: 100*1000 + 400*4000}
	s := Compare([]Row{now}, []Row{before}, func(string) Weights { return Weights{1, 4} })
	if len(s.Causes) != 1 || s.Causes[0].Kind != Length || s.Causes[0].AmountMC != 1_200_000 {
		t.Errorf("causes: %+v", s.Causes)
	}
	if s = Compare([]Row{now}, []Row{before}, weighEqually); len(s.Causes) != 2 || s.Causes[1].Kind != Prices {
		t.Errorf("without weights: %+v", s.Causes)
	}
}

// TestMonthTo looks at the edges of months.
func TestMonthTo(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]struct {
		now, before Span
		says        string
	}{
		"2026-11-23T23:59:59Z": {Span{"2026-11-01", "2026-11-23"}, Span{"2026-10-01", "2026-10-23"},
			"in the same days of October"},
		"2026-11-01T00:00:00Z": {Span{"2026-11-01", "2026-11-01"}, Span{"2026-10-01", "2026-10-01"},
			"on the same day of October"},
		"2026-03-31T10:00:00Z": {Span{"2026-03-01", "2026-03-31"}, Span{"2026-02-01", "2026-02-28"},
			"in all of February"},
		"2028-03-29T10:00:00Z": {Span{"2028-03-01", "2028-03-29"}, Span{"2028-02-01", "2028-02-29"},
			"in the same days of February"},
		"2026-11-30T10:00:00Z": {Span{"2026-11-01", "2026-11-30"}, Span{"2026-10-01", "2026-10-30"},
			"in the same days of October"},
		"2027-01-02T01:00:00+02:00": {Span{"2027-01-01", "2027-01-01"}, Span{"2026-12-01", "2026-12-01"},
			"on the same day of December"},
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		p := MonthTo(moment)
		if p.Now != want.now || p.Before != want.before || p.describeBefore() != want.says ||
			p.Month() != want.now.From[:7] {
			t.Errorf("%s: %+v, %s", at, p, p.describeBefore())
		}
	}
}
