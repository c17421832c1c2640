package ui

import (
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// Dollars writes an amount for people: with thousands separated, and without
// fractions of a cent unless there is nothing else to show.
func Dollars(mc money.MC) string {
	if mc >= money.Cent {
		mc -= mc % money.Cent
	}
	whole, cents, _ := strings.Cut(mc.Display(), ".")
	digits := strings.TrimLeft(whole, "-$")
	sign := whole[:len(whole)-len(digits)]
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits + "." + cents
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

// Money writes an amount both ways.
func Money(mc money.MC) Amount {
	text := Dollars(max(mc, -mc))
	if mc < 0 {
		text = "−" + text
	}
	return Amount{Text: text, Exact: mc.Display() + " exactly, " + strconv.FormatInt(int64(mc), 10) + " micro-cents"}
}

// Signed is Money with a plus before what comes in.
func Signed(mc money.MC) Amount {
	a := Money(mc)
	if mc > 0 {
		a.Text = "+" + a.Text
	}
	return a
}

// Date writes a time for people, in UTC.
func Date(us int64) string { return time.UnixMicro(us).UTC().Format("2 January 2006, 15:04 UTC") }

// Count writes a number with thousands separated.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := strings.IndexFunc(digits, func(c rune) bool { return c != '-' })
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
