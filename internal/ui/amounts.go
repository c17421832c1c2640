package ui

import (
	"strings"

	"purser/internal/money"
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
