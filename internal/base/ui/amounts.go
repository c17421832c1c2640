package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// Dollars writes a balance, a cap or a limit: with two decimals, rounded down, so that no page shows more money than
// there is (decision 002).
func Dollars(mc money.MC) string { return formatUnits(roundTo(mc, money.Cent, false), 2) }

// Total writes a sum of charges: with two decimals, rounded to the nearest cent, half to even.
func Total(mc money.MC) string { return formatUnits(roundTo(mc, money.Cent, true), 2) }

// priceUnit is the last decimal of a price, in micro-cents: $0.0001.
const priceUnit = money.Cent / 100

// Price writes an amount of a single call: with four decimals, rounded to the nearest, half to even. One that is not
// zero never reads as zero.
func Price(mc money.MC) string {
	n := roundTo(mc, priceUnit, true)
	switch {
	case n == 0 && mc > 0:
		return "<" + formatUnits(1, 4)
	case n == 0 && mc < 0:
		return "−<" + formatUnits(1, 4)
	}
	return formatUnits(n, 4)
}

// roundTo divides mc by unit, and rounds down or to the nearest, half to even.
func roundTo(mc, unit money.MC, nearest bool) int64 {
	n, rest := mc/unit, mc%unit
	if rest < 0 {
		n, rest = n-1, rest+unit
	}
	if nearest && (rest*2 > unit || rest*2 == unit && n%2 != 0) {
		n++
	}
	return int64(n)
}

// formatUnits writes n units of the last of so many decimals as dollars, with thousands separated.
func formatUnits(n int64, decimals int) string {
	sign, digits := "", strconv.FormatInt(n, 10)
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	digits = strings.Repeat("0", max(decimals+1-len(digits), 0)) + digits
	whole, fraction := digits[:len(digits)-decimals], digits[len(digits)-decimals:]
	return sign + "$" + separateThousands(whole) + "." + fraction
}

// separateThousands separates the thousands of a number without a sign.
func separateThousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Exact writes an amount in full precision: with at least two decimals, and no rounding.
func Exact(mc money.MC) string {
	sign, amount := "", mc.Display()
	if mc < 0 {
		sign, amount = "−", amount[1:]
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(amount, "$"), ".")
	return sign + "$" + separateThousands(whole) + "." + fraction
}

// Typed writes an amount the way a person types it into a field, exactly.
func Typed(mc money.MC) string { return strings.TrimPrefix(mc.Display(), "$") }

// ReadCap reads a spend cap as typed, and says what is wrong with it.
func ReadCap(text string) (mc money.MC, problem string) {
	mc, err := money.Parse(text)
	switch {
	case strings.TrimSpace(text) == "":
		problem = "Enter a spend cap in dollars, such as 25 or 12.50."
	case err != nil:
		problem = "Enter a spend cap in dollars, such as 25 or 12.50."
	}
	return mc, problem
}

// ReadDailyLimit reads a limit of spend per 24 hours as typed, where nothing is no
// limit, and says what is wrong with it.
func ReadDailyLimit(text string) (limit *money.MC, problem string) {
	if strings.TrimSpace(text) == "" {
		return nil, ""
	}
	mc, err := money.Parse(text)
	switch {
	case err != nil:
		problem = "Enter a daily limit in dollars, such as 5, or leave it empty."
	case mc == 0:
		problem = "Enter a daily limit of more than zero, or leave it empty."
	}
	return &mc, problem
}

// An Amount is money as people read it, with the exact micro-cents at hand.
type Amount struct{ Text, Exact string }

func newAmount(text string, mc money.MC) Amount {
	return Amount{Text: text, Exact: mc.Display() + " exactly, " + strconv.FormatInt(int64(mc), 10) + " micro-cents"}
}

// Money is Dollars with the exact amount at hand.
func Money(mc money.MC) Amount { return newAmount(Dollars(mc), mc) }

// TotalMoney is Total with the exact amount at hand.
func TotalMoney(mc money.MC) Amount { return newAmount(Total(mc), mc) }

// PriceMoney is Price with the exact amount at hand.
func PriceMoney(mc money.MC) Amount { return newAmount(Price(mc), mc) }

// ExactMoney is Exact with the number of micro-cents at hand.
func ExactMoney(mc money.MC) Amount { return newAmount(Exact(mc), mc) }

// Signed puts a plus before the text of an amount that comes in.
func Signed(a Amount, mc money.MC) Amount {
	if mc > 0 {
		a.Text = "+" + a.Text
	}
	return a
}

// SplitDollars writes the parts of a balance or cap so that they add up to Dollars of their sum: each text is the
// difference between two running sums that are rounded. So the first part is itself rounded down.
func SplitDollars(parts ...money.MC) []Amount { return split(false, parts) }

// SplitTotal writes the parts of a sum of charges so that they add up to Total of it. Each differs from its exact
// amount by less than a cent.
func SplitTotal(parts ...money.MC) []Amount { return split(true, parts) }

func split(nearest bool, parts []money.MC) []Amount { return splitBy(money.Cent, 2, nearest, parts) }

// splitBy splits a sum that is rounded to a unit, which is the last of so many decimals.
func splitBy(unit money.MC, decimals int, nearest bool, parts []money.MC) []Amount {
	var sum money.MC
	var before int64 // the rounded sum of the parts so far, in units
	amounts := make([]Amount, len(parts))
	for i, part := range parts {
		sum += part
		after := roundTo(sum, unit, nearest)
		amounts[i] = newAmount(formatUnits(after-before, decimals), part)
		before = after
	}
	return amounts
}

// SplitSpend writes the parts of a sum of charges, and the sum, so that they add up: with two decimals, or with four if
// the sum is less than a dollar, where cents would hide what calls cost.
func SplitSpend(parts ...money.MC) (amounts []Amount, total Amount) {
	var sum money.MC
	for _, part := range parts {
		sum += part
	}
	unit, decimals := money.Cent, 2
	if -money.Dollar < sum && sum < money.Dollar {
		unit, decimals = priceUnit, 4
	}
	return splitBy(unit, decimals, true, parts), newAmount(formatUnits(roundTo(sum, unit, true), decimals), sum)
}

// SumDollars writes the sum of balances as the sum of what Dollars writes of each, so that it is the sum of what a page
// shows. It is less than a cent for each below the exact sum.
func SumDollars(parts ...money.MC) Amount {
	var sum money.MC
	var cents int64
	for _, part := range parts {
		sum += part
		cents += roundTo(part, money.Cent, false)
	}
	return newAmount(formatUnits(cents, 2), sum)
}

// Span writes a time in whole days, or in hours if it is not whole days.
func Span(d time.Duration) string {
	n, unit := int64(d/(24*time.Hour)), "day"
	if d%(24*time.Hour) != 0 {
		n, unit = int64(d.Round(time.Hour)/time.Hour), "hour"
	}
	if n == 1 {
		return "1 " + unit
	}
	return Count(n) + " " + unit + "s"
}

// Date writes a time for people, in UTC.
func Date(us int64) string { return time.UnixMicro(us).UTC().Format("2 January 2006, 15:04 UTC") }

// Milliseconds writes how long something took: 412 ms, 2.31 s, 1 min 5 s; – = not known.
func Milliseconds(ms *int64) string {
	switch {
	case ms == nil:
		return "–"
	case *ms < 1000:
		return strconv.FormatInt(*ms, 10) + " ms"
	case *ms < 60_000:
		return fmt.Sprintf("%d.%02d s", *ms/1000, *ms%1000/10)
	}
	return fmt.Sprintf("%d min %d s", *ms/60_000, *ms%60_000/1000)
}

// Count writes a number with thousands separated.
func Count(n int64) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	if negative {
		return "-" + separateThousands(digits)
	}
	return separateThousands(digits)
}

// SameSpend is what CompareSpend returns for amounts that differ by less than one percent.
const SameSpend = "about the same"

// CompareSpend says how the spend of a period differs from that of the period before, in whole percent: "14% less". It
// returns "" if there is nothing to compare.
func CompareSpend(spent, before money.MC) string {
	if before <= 0 || spent < 0 {
		return ""
	}
	difference, word := spent-before, "more"
	if difference < 0 {
		difference, word = -difference, "less"
	}
	percent, err := money.MulDiv(int64(difference), 100, int64(before), money.Down)
	switch {
	case err != nil || percent >= 1000:
		return "over ten times more"
	case percent == 0:
		return SameSpend
	}
	return fmt.Sprintf("%d%% %s", percent, word)
}
