// Package money holds the one unit of Purser: the micro-cent. All amounts are
// integers; 100,000,000 micro-cents are one US dollar (spec §1). Products that
// may pass 64 bits go through MulDiv, which works in 128 bits.
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

// Units of money (spec §1).
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

// Rounding says what becomes of a fraction of a micro-cent.
type Rounding int

// The rounding rules in use: costs and fees round Up, margins HalfUp,
// estimated charges Down (decisions, Money).
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

// Display writes the amount the way people read it: "$12.34", with more digits
// when it has a fraction of a cent, and never rounded up, so that nobody reads
// more money than there is.
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

// Parse reads an amount in dollars as a person types it: "25", "25.5",
// "$1,234.56". At most eight decimals, not negative, at most Max.
func Parse(s string) (MC, error) {
	t := strings.TrimPrefix(strings.TrimSpace(s), "$")
	whole, frac, _ := strings.Cut(t, ".")
	whole, err := dropThousands(whole)
	if err != nil || whole+frac == "" || len(frac) > 8 || !digits(whole) || !digits(frac) {
		return 0, fmt.Errorf("%q is not an amount in dollars such as 25 or 12.50", s)
	}
	n, err := strconv.ParseInt("0"+whole+frac+strings.Repeat("0", 8-len(frac)), 10, 64)
	if err != nil || MC(n) > Max {
		return 0, fmt.Errorf("%q is more than the largest amount, %s", s, Max.Display())
	}
	return MC(n), nil
}

// ParseRate reads a decimal rate such as 0.15 exactly into parts per million.
// At most six decimals, not negative, at most 1000.
func ParseRate(s string) (PPM, error) {
	whole, frac, dot := strings.Cut(s, ".")
	if whole == "" || !digits(whole) || !digits(frac) || len(whole) > 4 || len(frac) > 6 || dot && frac == "" {
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

// dropThousands removes commas that stand where thousands are separated.
func dropThousands(s string) (string, error) {
	parts := strings.Split(s, ",")
	for i, p := range parts[1:] {
		if len(p) != 3 || parts[0] == "" || i == 0 && len(parts[0]) > 3 {
			return "", errors.New("misplaced comma")
		}
	}
	return strings.Join(parts, ""), nil
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
