// Package money holds the one unit of Purser: the micro-cent. All amounts are
// integers; 100,000,000 micro-cents are one US dollar (contract §1). MulDiv computes products that may pass 64 bits.
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// MC is an amount in micro-cents of US dollars.
type MC int64

// Units of money (contract §1).
const (
	Cent   MC = 1_000_000
	Dollar MC = 100 * Cent
)

// Max is the largest amount that Purser accepts from outside: $10 million.
// It leaves room for sums of thousands of such amounts in 64 bits.
const Max MC = 10_000_000 * Dollar

// PPM is a rate in parts per million: 150_000 is 15 %.
type PPM int64

// One is the rate 100 %.
const One PPM = 1_000_000

// ErrOverflow says that a result does not fit 63 bits.
var ErrOverflow = errors.New("money: overflow")

// Rounding is the rule for a fraction of a micro-cent.
type Rounding int

// The rounding rules: costs and fees round Up, margins HalfUp, estimated charges Down (decisions 016, 019).
const (
	Down Rounding = iota
	HalfUp
	Up
)

// MulDiv returns a × b ÷ d, rounded once, computed in 128 bits. All three must
// be non-negative and d positive.
func MulDiv(a, b, d int64, round Rounding) (int64, error) {
	if a < 0 || b < 0 || d <= 0 {
		return 0, fmt.Errorf("money: MulDiv(%d, %d, %d) out of domain", a, b, d)
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	switch round {
	case Up:
		lo, carry = bits.Add64(lo, uint64(d-1), 0)
	case HalfUp:
		// floor((ab + d/2) / d) rounds halves up for even d; for odd d no half exists.
		lo, carry = bits.Add64(lo, uint64(d/2), 0)
	}
	hi += carry
	if hi >= uint64(d) {
		return 0, ErrOverflow
	}
	q, _ := bits.Div64(hi, lo, uint64(d))
	if q > math.MaxInt64 {
		return 0, ErrOverflow
	}
	return int64(q), nil
}

// Share returns amount × rate, rounded once. The amount must not be negative.
func Share(amount MC, rate PPM, round Rounding) (MC, error) {
	n, err := MulDiv(int64(amount), int64(rate), int64(One), round)
	return MC(n), err
}

// Display writes the amount as users read it, such as "$12.34". It adds digits for a fraction of a cent and never
// rounds up, so that no page shows more money than there is (decision 002).
func (m MC) Display() string {
	sign, u := "", uint64(m)
	if m < 0 {
		sign, u = "-", uint64(-m)
	}
	dollars, rest := u/uint64(Dollar), u%uint64(Dollar)
	frac := fmt.Sprintf("%08d", rest)
	keep := len(strings.TrimRight(frac, "0"))
	return fmt.Sprintf("%s$%d.%s", sign, dollars, frac[:max(keep, 2)])
}

// Decimal writes the amount in dollars as settings have it, such as "12.5" and "100", which Parse reads.
// It must not be negative.
func (m MC) Decimal() string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%08d", int64(m/Dollar), int64(m%Dollar)), "0"), ".")
}

// Parse reads an amount in dollars as users type it: "25", "25.5", "$1,234.56". It accepts at most eight decimals,
// and amounts from 0 to Max.
func Parse(s string) (MC, error) {
	t := strings.TrimPrefix(strings.TrimSpace(s), "$")
	whole, frac, _ := strings.Cut(t, ".")
	whole, err := removeThousands(whole)
	if err != nil || whole+frac == "" || len(frac) > 8 || !isDigits(whole) || !isDigits(frac) {
		return 0, fmt.Errorf("%q is not an amount in dollars such as 25 or 12.50", s)
	}
	n, err := strconv.ParseInt("0"+whole+frac+strings.Repeat("0", 8-len(frac)), 10, 64)
	if err != nil || MC(n) > Max {
		return 0, fmt.Errorf("%q is more than the largest amount, %s", s, Max.Display())
	}
	return MC(n), nil
}

// ParseRate reads a decimal rate such as 0.15, without rounding. It accepts at most six decimals, and rates from 0
// to 1000.
func ParseRate(s string) (PPM, error) {
	whole, frac, dot := strings.Cut(s, ".")
	if whole == "" || !isDigits(whole) || !isDigits(frac) || len(whole) > 4 || len(frac) > 6 || dot && frac == "" {
		return 0, fmt.Errorf("%q is not a rate such as 0.15, with at most six decimals", s)
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil || PPM(n) > 1000*One {
		return 0, fmt.Errorf("rate %q is above 1000", s)
	}
	return PPM(n), nil
}

// String writes the rate as the shortest decimal: "0.15".
func (p PPM) String() string {
	s := fmt.Sprintf("%d.%06d", p/One, p%One)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// removeThousands removes commas that separate thousands, and fails on other commas.
func removeThousands(s string) (string, error) {
	parts := strings.Split(s, ",")
	for i, p := range parts[1:] {
		if len(p) != 3 || parts[0] == "" || i == 0 && len(parts[0]) > 3 {
			return "", errors.New("misplaced comma")
		}
	}
	return strings.Join(parts, ""), nil
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
