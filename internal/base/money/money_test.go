package money

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestDisplay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount MC
		want   string
	}{
		{0, "$0.00"}, {1, "$0.00000001"}, {Cent, "$0.01"}, {Dollar, "$1.00"}, {12*Dollar + 34*Cent, "$12.34"},
		{Dollar + 50*Cent, "$1.50"}, {2_499_997_250, "$24.9999725"}, {-Dollar - 1, "-$1.00000001"},
		{999_999_999_999_999_999, "$9999999999.99999999"},
		{math.MinInt64, "-$92233720368.54775808"},
	} {
		if got := c.amount.Display(); got != c.want {
			t.Errorf("%d: got %s, want %s", c.amount, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]MC{
		"25":           25 * Dollar,
		"25.5":         25*Dollar + 50*Cent,
		"$1,234.56":    1234*Dollar + 56*Cent,
		" 0.00000001 ": 1,
		".5":           50 * Cent,
		"7.":           7 * Dollar,
		"0":            0,
		"10000000":     Max,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "$", "-1", "+1", "1e3", "1.000000001", "1,23", "12,34,567", "1.2.3",
		"10000000.01", "99999999999999999999", "٣", "0x10", "1 000", "NaN", "1_000"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]PPM{
		"0":        0,
		"0.15":     150_000,
		"1":        One,
		"0.000001": 1,
		"1000":     1000 * One,
		"2.5":      2_500_000,
	} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%q is written as %s", text, got)
		}
	}
	for _, text := range []string{"", "-1", "1.", ".5", "0.0000001", "1001", "1e-3", "15%", "00000"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestMulDivEdges(t *testing.T) {
	t.Parallel()
	if _, err := MulDiv(math.MaxInt64, 2, 1, Down); !errors.Is(err, ErrOverflow) {
		t.Errorf("2^64 - 2 fits: %v", err)
	}
	if _, err := MulDiv(math.MaxInt64, math.MaxInt64, 1, Up); !errors.Is(err, ErrOverflow) {
		t.Errorf("2^126 fits: %v", err)
	}
	for _, c := range [][3]int64{{-1, 1, 1}, {1, -1, 1}, {1, 1, 0}, {1, 1, -1}} {
		if _, err := MulDiv(c[0], c[1], c[2], Down); err == nil {
			t.Errorf("%v is outside the domain", c)
		}
	}
	if n, err := Share(3, One/2, HalfUp); err != nil || n != 2 {
		t.Errorf("half of 3 is %d, %v", n, err)
	}
}

// FuzzMulDiv compares with exact rational arithmetic.
func FuzzMulDiv(f *testing.F) {
	f.Add(int64(7), int64(3), int64(2), 0)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), 1)
	f.Add(int64(1), int64(1), int64(3), 2)
	f.Fuzz(func(t *testing.T, a, b, d int64, mode int) {
		if a < 0 || b < 0 || d <= 0 {
			return
		}
		round := Rounding(uint(mode) % 3)
		exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(d))
		want := new(big.Int).Quo(exact.Num(), exact.Denom())
		rest := new(big.Rat).Sub(exact, new(big.Rat).SetInt(want))
		if round == Up && rest.Sign() > 0 || round == HalfUp && rest.Cmp(big.NewRat(1, 2)) >= 0 {
			want.Add(want, big.NewInt(1))
		}
		got, err := MulDiv(a, b, d, round)
		if want.IsInt64() != (err == nil) || err == nil && got != want.Int64() {
			t.Errorf("%d × %d ÷ %d (%d): got %d, %v, want %s", a, b, d, round, got, err, want)
		}
	})
}

// FuzzParse: what is displayed reads back as the same amount.
func FuzzParse(f *testing.F) {
	f.Add("12.34")
	f.Add("$1,000.00000001")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse(s)
		if err != nil {
			return
		}
		if n < 0 || n > Max || strings.ContainsAny(s, "-eE") {
			t.Fatalf("%q was read as %d", s, n)
		}
		if again, err := Parse(n.Display()); err != nil || again != n {
			t.Errorf("%q → %d → %s → %d, %v", s, n, n.Display(), again, err)
		}
	})
}
