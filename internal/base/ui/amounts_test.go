package ui

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
)

// Decision 002: balances are rounded down, totals to the nearest cent, calls have four decimals, and receipts all.
func TestAmountsAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	const c = money.Cent
	for _, test := range []struct {
		mc                           money.MC
		dollars, total, price, exact string
	}{
		{0, "$0.00", "$0.00", "$0.0000", "$0.00"},
		{1, "$0.00", "$0.00", "<$0.0001", "$0.00000001"},
		{c / 200, "$0.00", "$0.00", "<$0.0001", "$0.00005"}, // half a unit, to even
		{c/200 + 1, "$0.00", "$0.00", "$0.0001", "$0.00005001"},
		{c / 2, "$0.00", "$0.00", "$0.0050", "$0.005"}, // half a cent, to even
		{c/2 + 1, "$0.00", "$0.01", "$0.0050", "$0.00500001"},
		{c + c/2, "$0.01", "$0.02", "$0.0150", "$0.015"},
		{1_948_750, "$0.01", "$0.02", "$0.0195", "$0.0194875"},
		{1_700_000, "$0.01", "$0.02", "$0.0170", "$0.017"},
		{119_588, "$0.00", "$0.00", "$0.0012", "$0.00119588"},
		{1000*money.Dollar - 1, "$999.99", "$1,000.00", "$1,000.0000", "$999.99999999"},
		{1_234_567*money.Dollar + 89*c, "$1,234,567.89", "$1,234,567.89", "$1,234,567.8900", "$1,234,567.89"},
		{-1, "−$0.01", "$0.00", "−<$0.0001", "−$0.00000001"},
		{-1_948_750, "−$0.02", "−$0.02", "−$0.0195", "−$0.0194875"},
		{-5000 * money.Dollar, "−$5,000.00", "−$5,000.00", "−$5,000.0000", "−$5,000.00"},
		{money.Max, Exact(money.Max - money.Max%c), Exact(money.Max - money.Max%c), Exact(money.Max) + "00",
			Exact(money.Max)},
	} {
		for kind, texts := range map[string][2]string{
			"Dollars": {Dollars(test.mc), test.dollars},
			"Total":   {Total(test.mc), test.total},
			"Price":   {Price(test.mc), test.price},
			"Exact":   {Exact(test.mc), test.exact},
		} {
			if texts[0] != texts[1] {
				t.Errorf("%s(%d) = %q, want %q", kind, test.mc, texts[0], texts[1])
			}
		}
	}
	if a := Signed(PriceMoney(1_948_750), 1_948_750); a.Text != "+$0.0195" ||
		a.Exact != "$0.0194875 exactly, 1948750 micro-cents" {
		t.Errorf("signed: %+v", a)
	}
}

// shownCents reads an amount with two decimals.
func shownCents(t *rapid.T, text string) money.MC {
	digits := strings.NewReplacer("$", "", ",", "", ".", "", "−", "-").Replace(text)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(text) < 5 || text[len(text)-3] != '.' {
		t.Fatalf("%q has not two decimals: %v", text, err)
	}
	return money.MC(n) * money.Cent
}

// U7: the parts of a sum add up to it as shown, and each is less than a cent off. A balance, which comes first, is
// never more than there is.
func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Map(rapid.Int64Range(0, 20*int64(money.Cent)), func(n int64) money.MC { return money.MC(n) })
		parts := rapid.SliceOfN(amount, 1, 40).Draw(t, "parts")
		var sum money.MC
		for _, p := range parts {
			sum += p
		}
		for kind, c := range map[string]struct {
			whole string
			texts []Amount
		}{
			"dollars": {Dollars(sum), SplitDollars(parts...)},
			"total":   {Total(sum), SplitTotal(parts...)},
		} {
			var shown money.MC
			for i, text := range c.texts {
				cents := shownCents(t, text.Text)
				if off := cents - parts[i]; off >= money.Cent || off <= -money.Cent || cents < 0 {
					t.Fatalf("%s: part %d of %d mc is shown as %s", kind, i, parts[i], text.Text)
				}
				shown += cents
			}
			if shown != shownCents(t, c.whole) {
				t.Fatalf("%s: the parts of %s add up to %s", kind, c.whole, shown.Display())
			}
		}
		if first := SplitDollars(parts...)[0].Text; first != Dollars(parts[0]) {
			t.Fatalf("a balance of %d mc is shown as %s", parts[0], first)
		}
	})
}
