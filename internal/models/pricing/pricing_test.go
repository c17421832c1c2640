package pricing

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
)

// testdata/charges.txt is a table that an accountant can check.
func TestCharges(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/charges.txt")
	if err != nil {
		t.Fatal(err)
	}
	var s sheet
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		question, want, _ := strings.Cut(line, " | ")
		if got := s.answer(t, strings.Fields(question)); got != want {
			t.Errorf("line %d: %s | %s, want %s", i+1, question, got, want)
		}
	}
	if s.lines < 20 {
		t.Errorf("only %d lines", s.lines)
	}
}

// sheet holds what the lines of the table have said so far.
type sheet struct {
	rates       catalog.Rates
	margin, fee money.PPM
	lines       int
}

func (s *sheet) answer(t *testing.T, words []string) string {
	t.Helper()
	s.lines++
	v := make(map[string]string)
	first := len(words) % 2 // "above 272000 input …" starts with a pair, the others with a verb
	for i := first; i+1 < len(words); i += 2 {
		v[words[i]] = words[i+1]
	}
	var a Amounts
	var err error
	switch words[0] {
	case "prices":
		s.rates.Steps = []catalog.Step{step(t, v)}
		return ""
	case "above":
		above := step(t, v)
		above.AboveInput = number(t, v["above"])
		s.rates.Steps = append(s.rates.Steps, above)
		return ""
	case "rates":
		s.margin, err = money.ParseRate(v["margin"])
		check(t, err)
		s.fee, err = money.ParseRate(v["fee"])
		check(t, err)
		return ""
	case "hold":
		hold, err := EstimateHold(s.rates, number(t, v["input"]), number(t, v["max_output"]), s.margin, s.fee)
		check(t, err)
		return fmt.Sprint(int64(hold))
	case "charge":
		a, err = Charge(s.rates, provider.Usage{Input: number(t, v["input"]), Cached: number(t, v["cached"]),
			CacheWrite: number(t, v["cache_write"]), Output: number(t, v["output"])}, s.margin, s.fee)
	case "voice":
		s.rates.Voice = &catalog.Voice{}
		for name, to := range map[string]*money.MC{
			"audio_input": &s.rates.Voice.AudioInput, "audio_cached": &s.rates.Voice.AudioCached,
			"image_input": &s.rates.Voice.ImageInput, "image_cached": &s.rates.Voice.ImageCached,
			"audio_output": &s.rates.Voice.AudioOutput,
		} {
			*to, err = money.Parse(v[name])
			check(t, err)
		}
		return ""
	case "reply":
		a, err = ChargeVoice(s.rates, voiceUsage(t, v), s.margin, s.fee)
	case "reply_estimated":
		a, err = ChargeVoiceEstimate(s.rates, voiceUsage(t, v), s.margin, s.fee, money.MC(number(t, v["hold"])))
	case "reply_hold":
		hold, err := EstimateVoiceHold(s.rates, VoiceInput{
			Text: number(t, v["input"]), TextCached: number(t, v["cached"]),
			Audio: number(t, v["audio_input"]), AudioCached: number(t, v["audio_cached"]),
		}, number(t, v["max_output"]), s.margin, s.fee)
		check(t, err)
		return fmt.Sprint(int64(hold))
	case "saved":
		saved, err := CacheSaved(s.rates, provider.Usage{Input: number(t, v["input"]), Cached: number(t, v["cached"]),
			CacheWrite: number(t, v["cache_write"]), Output: number(t, v["output"])}, s.margin, s.fee)
		check(t, err)
		return fmt.Sprint(int64(saved))
	case "estimated":
		a, err = ChargeEstimate(s.rates, number(t, v["input"]), number(t, v["output"]), s.margin, s.fee,
			money.MC(number(t, v["hold"])))
	default:
		t.Fatalf("unknown line %q", words)
	}
	check(t, err)
	return fmt.Sprintf("cost %d margin %d fee %d charge %d", a.ProviderCostMC, a.DevMarginMC, a.SvcFeeMC,
		a.UserChargeMC)
}

func voiceUsage(t *testing.T, v map[string]string) VoiceUsage {
	t.Helper()
	return VoiceUsage{
		TextInput: number(t, v["input"]), TextCached: number(t, v["cached"]), TextOutput: number(t, v["output"]),
		AudioInput: number(t, v["audio_input"]), AudioCached: number(t, v["audio_cached"]),
		AudioOutput: number(t, v["audio_output"]),
		ImageInput:  number(t, v["image_input"]), ImageCached: number(t, v["image_cached"]),
	}
}

func step(t *testing.T, v map[string]string) catalog.Step {
	t.Helper()
	price := func(name string) money.MC {
		p, err := money.Parse(v[name])
		check(t, err)
		return p
	}
	if v["cache_write"] == "" {
		v["cache_write"] = v["input"]
	}
	return catalog.Step{
		Input:      price("input"),
		Cached:     price("cached"),
		CacheWrite: price("cache_write"),
		Output:     price("output"),
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	check(t, err)
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func drawRates(t *rapid.T) catalog.Rates {
	var r catalog.Rates
	var last catalog.Step
	for i := range rapid.IntRange(1, 3).Draw(t, "steps") {
		up := func(name string, from money.MC) money.MC {
			return from + money.MC(rapid.Int64Range(1, 5_000_000_000).Draw(t, name))
		}
		s := catalog.Step{
			Cached:     up("cached", last.Cached),
			CacheWrite: up("write", last.CacheWrite),
			Output:     up("output", last.Output),
		}
		s.Input = max(s.Cached, up("input", last.Input))
		if i > 0 {
			s.AboveInput = last.AboveInput + rapid.Int64Range(1, 300_000).Draw(t, "above")
		}
		r.Steps = append(r.Steps, s)
		last = s
	}
	return r
}

func drawPPM(t *rapid.T, name string) money.PPM {
	return money.PPM(rapid.Int64Range(0, 3_000_000).Draw(t, name))
}

func drawTokens(t *rapid.T, name string) int64 { return rapid.Int64Range(0, 1_000_000).Draw(t, name) }

// No usage within the counted input and the cap is charged more than the hold.
func TestChargeFitsTheHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, margin, fee := drawRates(t), drawPPM(t, "margin"), drawPPM(t, "fee")
		u := provider.Usage{
			Input:      drawTokens(t, "input"),
			Cached:     drawTokens(t, "cached"),
			CacheWrite: drawTokens(t, "write"),
			Output:     drawTokens(t, "output"),
		}
		spareIn, spareOut := drawTokens(t, "spare input"), drawTokens(t, "spare output")
		hold, err := EstimateHold(r, u.Input+u.Cached+u.CacheWrite+spareIn, u.Output+spareOut, margin, fee)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Charge(r, u, margin, fee)
		if err != nil {
			t.Fatal(err)
		}
		if a.UserChargeMC > hold {
			t.Fatalf("charge %d above hold %d", a.UserChargeMC, hold)
		}
		e, err := ChargeEstimate(r, u.Input, u.Output, margin, fee, hold)
		if err != nil {
			t.Fatal(err)
		}
		if full, err := Charge(r, provider.Usage{Input: u.Input, Output: u.Output}, margin, fee); err != nil ||
			e.UserChargeMC > full.UserChargeMC {
			t.Fatalf("estimated %d above the charge %d: %v", e.UserChargeMC, full.UserChargeMC, err)
		}
	})
}

// Two output caps have the same hold exactly if they have the same hold at provider cost, and
// neither falls when the cap rises: the ledger finds the cap of a hold by its amount.
func TestHoldsRiseTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, margin, fee := drawRates(t), drawPPM(t, "margin"), drawPPM(t, "fee")
		input, low := drawTokens(t, "input"), drawTokens(t, "cap")
		high := low + rapid.Int64Range(0, 3).Draw(t, "more")
		hold := func(maxTokens int64, margin, fee money.PPM) money.MC {
			mc, err := EstimateHold(r, input, maxTokens, margin, fee)
			if err != nil {
				t.Fatal(err)
			}
			return mc
		}
		moreMC := hold(high, margin, fee) - hold(low, margin, fee)
		moreCostMC := hold(high, 0, 0) - hold(low, 0, 0)
		if moreMC < 0 || moreCostMC < 0 || (moreMC == 0) != (moreCostMC == 0) {
			t.Fatalf("from %d to %d tokens the hold rises by %d, at cost by %d", low, high, moreMC, moreCostMC)
		}
	})
}

// An estimated charge is at most the hold, its parts add up, and the app's
// margin and the provider's cost are whole even then.
func TestEstimatedIsAtMostTheHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, margin, fee := drawRates(t), drawPPM(t, "margin"), drawPPM(t, "fee")
		in, out := drawTokens(t, "input"), drawTokens(t, "output")
		hold := money.MC(rapid.Int64Range(0, int64(money.Dollar)).Draw(t, "hold"))
		a, err := ChargeEstimate(r, in, out, margin, fee, hold)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := ChargeEstimate(r, in, out, margin, fee, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		if a.UserChargeMC != min(hold, whole.UserChargeMC) || a.ProviderCostMC != whole.ProviderCostMC ||
			a.DevMarginMC != whole.DevMarginMC {
			t.Fatalf("%+v under a hold of %d, %+v without", a, hold, whole)
		}
		if a.UserChargeMC != a.ProviderCostMC+a.DevMarginMC+a.SvcFeeMC {
			t.Fatalf("%+v does not add up", a)
		}
	})
}

func TestOutOfDomain(t *testing.T) {
	t.Parallel()
	one := catalog.Rates{Steps: []catalog.Step{{Input: 1, Cached: 1, CacheWrite: 1, Output: 1}}}
	dear := catalog.Rates{Steps: []catalog.Step{{
		Input:      math.MaxInt64,
		Cached:     1,
		CacheWrite: 1,
		Output:     math.MaxInt64,
	}}}
	const huge = math.MaxInt64
	voice := one
	voice.Voice = &catalog.Voice{AudioInput: 1, AudioCached: 1, ImageInput: 1, ImageCached: 1, AudioOutput: huge}
	twoSteps := voice
	twoSteps.Steps = append(twoSteps.Steps, catalog.Step{AboveInput: 5})
	reply := func(r catalog.Rates, u VoiceUsage, margin, fee money.PPM) func() error {
		return func() error { _, err := ChargeVoice(r, u, margin, fee); return err }
	}
	replyEstimate := func(r catalog.Rates, u VoiceUsage, margin money.PPM, hold money.MC) func() error {
		return func() error { _, err := ChargeVoiceEstimate(r, u, margin, 0, hold); return err }
	}
	replyHold := func(r catalog.Rates, output int64, margin money.PPM) func() error {
		return func() error {
			_, err := EstimateVoiceHold(r, VoiceInput{Text: 1, Audio: 1}, output, margin, 0)
			return err
		}
	}
	tests := map[string]struct {
		want error
		call func() error
	}{
		"negative input": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Input: -1}, 0, 0)
			return err
		}},
		"negative cached": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Cached: -1}, 0, 0)
			return err
		}},
		"negative output": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Output: -1}, 0, 0)
			return err
		}},
		"negative margin": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Input: 1}, -1, 0)
			return err
		}},
		"negative fee": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Input: 1}, 0, -1)
			return err
		}},
		"no rates to charge": {ErrInvalid, func() error {
			_, err := Charge(catalog.Rates{}, provider.Usage{}, 0, 0)
			return err
		}},
		"no rates to estimate": {ErrInvalid, func() error {
			_, err := EstimateHold(catalog.Rates{}, 1, 1, 0, 0)
			return err
		}},
		"negative estimate": {ErrInvalid, func() error { _, err := EstimateHold(one, -1, 1, 0, 0); return err }},
		"negative cap":      {ErrInvalid, func() error { _, err := EstimateHold(one, 1, -1, 0, 0); return err }},
		"negative hold": {ErrInvalid, func() error {
			_, err := ChargeEstimate(one, 1, 1, 0, 0, -1)
			return err
		}},
		"negative cache write": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Input: 5, CacheWrite: -1}, 0, 0)
			return err
		}},
		"negative output of an estimate": {ErrInvalid, func() error {
			_, err := ChargeEstimate(one, 1, -1, 0, 0, 1)
			return err
		}},
		"negative margin of an estimate": {ErrInvalid, func() error {
			_, err := ChargeEstimate(one, 1, 1, -1, 0, 1)
			return err
		}},
		"no rates to estimate a charge": {ErrInvalid, func() error {
			_, err := ChargeEstimate(catalog.Rates{}, 1, 1, 0, 0, 1)
			return err
		}},
		"saved of nothing": {ErrInvalid, func() error {
			_, err := CacheSaved(one, provider.Usage{Input: 5, Cached: -1}, 0, 0)
			return err
		}},
		"saved above 63 bits": {money.ErrOverflow, func() error {
			_, err := CacheSaved(dear, provider.Usage{Cached: 2_000_000}, 0, 0)
			return err
		}},
		"fee above 63 bits": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: 900_000}, 0, 2_000_000)
			return err
		}},
		"no voice rates to charge":     {ErrInvalid, reply(one, VoiceUsage{TextInput: 1}, 0, 0)},
		"no voice rates to estimate":   {ErrInvalid, replyEstimate(one, VoiceUsage{TextInput: 1}, 0, 1)},
		"no voice rates to hold":       {ErrInvalid, replyHold(one, 1, 0)},
		"two steps of voice":           {ErrInvalid, reply(twoSteps, VoiceUsage{TextInput: 1}, 0, 0)},
		"two steps of voice to hold":   {ErrInvalid, replyHold(twoSteps, 1, 0)},
		"negative reply":               {ErrInvalid, reply(voice, VoiceUsage{AudioInput: -1}, 0, 0)},
		"negative margin of a reply":   {ErrInvalid, reply(voice, VoiceUsage{TextInput: 1}, -1, 0)},
		"negative estimate of a reply": {ErrInvalid, replyEstimate(voice, VoiceUsage{TextInput: -1}, 0, 1)},
		"negative margin estimated":    {ErrInvalid, replyEstimate(voice, VoiceUsage{TextInput: 1}, -1, 1)},
		"negative hold of a reply":     {ErrInvalid, replyEstimate(voice, VoiceUsage{TextInput: 1}, 0, -1)},
		"negative cap of a reply":      {ErrInvalid, replyHold(voice, -1, 0)},
		"negative margin of a hold":    {ErrInvalid, replyHold(voice, 1, -1)},
		"a reply above 63 bits":        {money.ErrOverflow, reply(voice, VoiceUsage{AudioOutput: 2_000_000}, 0, 0)},
		"a reply's hold above 63 bits": {money.ErrOverflow, replyHold(voice, 999_999, 0)},
		"input that wraps": {ErrInvalid, func() error {
			_, err := Charge(one, provider.Usage{Input: huge, Cached: 1}, 0, 0)
			return err
		}},
		"cost above 63 bits": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: 2_000_000}, 0, 0)
			return err
		}},
		"cost above 128 bits / M": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: huge, Output: huge}, 0, 0)
			return err
		}},
		"cost of exactly 128 bits / M": {money.ErrOverflow, func() error {
			r := catalog.Rates{Steps: []catalog.Step{{Input: 4_000_000}}}
			_, err := Charge(r, provider.Usage{Input: 1 << 62}, 0, 0)
			return err
		}},
		"cost above 63 bits by its rounding": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: 1_000_000, Cached: 1}, 0, 0)
			return err
		}},
		"margin above 63 bits": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: 900_000}, 2_000_000, 0)
			return err
		}},
		"sum above 63 bits": {money.ErrOverflow, func() error {
			_, err := Charge(dear, provider.Usage{Input: 900_000}, 0, 500_000)
			return err
		}},
		"hold above 63 bits": {money.ErrOverflow, func() error {
			_, err := EstimateHold(dear, 999_999, 0, 0, 0)
			return err
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := test.call(); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	t.Parallel()
	const maxOutput, context = 1000, 8000
	tests := []struct {
		name string
		u    provider.Usage
		want bool
	}{
		{"a plain call", provider.Usage{Input: 10, Output: 20}, true},
		{"all classes", provider.Usage{Input: 1, Cached: 2, CacheWrite: 3, Output: 4, Reasoning: 4}, true},
		{"no output", provider.Usage{Input: 10}, true},
		{"nothing at all", provider.Usage{}, false},
		{"input as large as the context", provider.Usage{Input: 4000, Cached: 3000, CacheWrite: 1000, Output: 1}, true},
		{"input above the context", provider.Usage{Input: 4000, Cached: 3000, CacheWrite: 1001, Output: 1}, false},
		{"output somewhat above the cap", provider.Usage{Input: 10, Output: 2000}, true},
		{"output at the last that is believed", provider.Usage{Input: 10, Output: 2065}, true},
		{"output far above the cap", provider.Usage{Input: 10, Output: 2066}, false},
		{"only output", provider.Usage{Output: 20}, true},
		{"negative input that others make up for", provider.Usage{Input: -1, Cached: 1, CacheWrite: 5}, false},
		{"more reasoning than output", provider.Usage{Input: 10, Output: 20, Reasoning: 21}, false},
		{"negative input", provider.Usage{Input: -1, Output: 20}, false},
		{"negative input among others", provider.Usage{Input: -1, Cached: 5, Output: 20}, false},
		{"negative cached", provider.Usage{Input: 10, Cached: -1, Output: 20}, false},
		{"negative cache write", provider.Usage{Input: 10, CacheWrite: -1, Output: 20}, false},
		{"negative output", provider.Usage{Input: 10, Output: -1}, false},
		{"negative reasoning", provider.Usage{Input: 10, Output: 20, Reasoning: -1}, false},
		{"input that wraps", provider.Usage{Input: math.MaxInt64, Cached: math.MaxInt64}, false},
		{"output that wraps", provider.Usage{Input: 10, Output: math.MaxInt64}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := Usable(test.u, maxOutput, context); got != test.want {
				t.Errorf("usable = %v", got)
			}
		})
	}
}

// TestMaxInput: a report is believed for a multiple of what was counted and some overhead, within the model's context.
func TestMaxInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ counted, context, want int64 }{
		{11, 1_000_000, 2044}, {0, 1_000_000, 2000}, {100_000, 1_000_000, 402_000}, {249_499, 1_000_000, 999_996},
		{249_500, 1_000_000, 1_000_000}, {249_500, 1_000_001, 1_000_000},
		{250_000, 1_000_000, 1_000_000}, {math.MaxInt64, 1_000_000, 1_000_000}, {-1, 8000, 8000}, {11, 1000, 1000},
	} {
		if got := MaxInput(c.counted, c.context); got != c.want {
			t.Errorf("%d counted, context %d: %d, want %d", c.counted, c.context, got, c.want)
		}
	}
	for _, lie := range []provider.Usage{
		{Input: 1_000_000, Output: 5}, {Input: 8000},
		{Input: 20, CacheWrite: 190_000, Output: 5}, {Input: 20, Cached: 900_000, Output: 5},
	} {
		if Usable(lie, 100, MaxInput(11, 1_050_000)) {
			t.Errorf("%+v is believed of a request of 11 tokens", lie)
		}
	}
}

// rat computes with fractions of any size: the same formulas, written again.
func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func times(x *big.Rat, n, d int64) *big.Rat { return new(big.Rat).Mul(x, big.NewRat(n, d)) }

func rounded(x *big.Rat, how money.Rounding) *big.Rat {
	switch how {
	case money.HalfUp:
		x = new(big.Rat).Add(x, big.NewRat(1, 2))
	case money.Up:
		down := rounded(new(big.Rat).Neg(x), money.Down)
		return down.Neg(down)
	}
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom())) // Div is floor for positive denominators
}

func ratCharge(cost *big.Rat, margin, fee int64,
	costRound, marginRound, feeRound money.Rounding) (c, m, f, sum *big.Rat) {
	c = rounded(cost, costRound)
	m = rounded(times(c, margin, 1_000_000), marginRound)
	f = rounded(times(c, fee, 1_000_000), feeRound)
	return c, m, f, new(big.Rat).Add(c, new(big.Rat).Add(m, f))
}

// FuzzFormulas holds every formula against fractions of any size: the same
// numbers, and an overflow exactly when one of them needs more than 63 bits.
func FuzzFormulas(f *testing.F) {
	f.Add(int64(10_000_000), int64(1_000_000), int64(12_500_000), int64(50_000_000), int64(1000), int64(200), int64(30),
		int64(500), int64(150_000), int64(50_000))
	f.Add(int64(1), int64(1), int64(1), int64(1), int64(1), int64(1), int64(1), int64(1), int64(333_333), int64(1))
	f.Add(int64(math.MaxInt64), int64(7), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(0),
		int64(0), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(math.MaxInt64), int64(1), int64(1), int64(1), int64(1_000_000), int64(0), int64(0), int64(0), int64(0),
		int64(0))
	f.Add(int64(math.MaxInt64), int64(1), int64(1), int64(1), int64(952_380), int64(0), int64(0), int64(0), int64(0),
		int64(50_000))
	f.Fuzz(func(t *testing.T, pIn, pCached, pWrite, pOut, in, cached, write, out, margin, fee int64) {
		for _, n := range []int64{pIn, pCached, pWrite, pOut, in, cached, write, out, margin, fee} {
			if n < 0 {
				return // negative arguments have a test of their own
			}
		}
		r := catalog.Rates{Steps: []catalog.Step{{
			Input:      money.MC(pIn),
			Cached:     money.MC(pCached),
			CacheWrite: money.MC(pWrite),
			Output:     money.MC(pOut),
		}}}
		sum := func(pairs ...int64) *big.Rat {
			total := new(big.Rat)
			for i := 0; i < len(pairs); i += 2 {
				total.Add(total, new(big.Rat).Mul(rat(pairs[i]), big.NewRat(pairs[i+1], 1_000_000)))
			}
			return total
		}
		got, err := Charge(r, provider.Usage{
			Input:      in,
			Cached:     cached,
			CacheWrite: write,
			Output:     out,
		}, money.PPM(margin), money.PPM(fee))
		c, m, v, all := ratCharge(sum(in, pIn, cached, pCached, write, pWrite, out, pOut), margin, fee, money.Up,
			money.HalfUp, money.Up)
		if !errors.Is(err, ErrInvalid) { // three inputs that wrap together
			compare(t, "charge", got, err, c, m, v, all)
		}

		got, err = ChargeEstimate(r, in, out, money.PPM(margin), money.PPM(fee), math.MaxInt64)
		c, m, v, all = ratCharge(sum(in, pIn, out, pOut), margin, fee, money.Down, money.Down, money.Down)
		compare(t, "estimated", got, err, c, m, v, all)

		hold, err := EstimateHold(r, in, out, money.PPM(margin), money.PPM(fee))
		_, _, _, all = ratCharge(sum(in, max(pIn, pWrite), out, pOut), margin, fee, money.Up, money.HalfUp, money.Up)
		want := rounded(times(all, 105, 100), money.Up)
		if fits(want) != (err == nil) || err == nil && rat(int64(hold)).Cmp(want) != 0 {
			t.Errorf("hold %d, %v, want %v", hold, err, want)
		}
	})
}

func fits(x *big.Rat) bool { return x.Cmp(rat(math.MaxInt64)) <= 0 }

func compare(t *testing.T, what string, a Amounts, err error, cost, margin, fee, sum *big.Rat) {
	t.Helper()
	if !fits(sum) {
		if !errors.Is(err, money.ErrOverflow) {
			t.Errorf("%s: %+v, %v, want an overflow", what, a, err)
		}
		return
	}
	for _, n := range []struct {
		got  money.MC
		want *big.Rat
	}{{a.ProviderCostMC, cost}, {a.DevMarginMC, margin}, {a.SvcFeeMC, fee}, {a.UserChargeMC, sum}} {
		if err != nil || rat(int64(n.got)).Cmp(n.want) != 0 {
			t.Errorf("%s: %+v, %v, want cost %v margin %v fee %v charge %v", what, a, err, cost, margin, fee, sum)
			return
		}
	}
}

// TestHoldsTakeTheDearestInput: no split of the counted input into uncached, cached and written tokens costs more than
// the hold, for each model of the price list, around each of its price steps.
func TestHoldsTakeTheDearestInput(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{} // of providers
	for _, m := range book.All() {
		for _, p := range m.Periods {
			if p.Rates.Voice != nil {
				continue
			}
			for _, s := range p.Rates.Steps {
				steps[m.Model.Provider]++
				for _, n := range []int64{max(s.AboveInput-1, 0), s.AboveInput, s.AboveInput + 1, s.AboveInput + 5000} {
					hold, err := EstimateHold(p.Rates, n, 100, money.One/5, money.One/20)
					if err != nil {
						t.Fatal(err)
					}
					for _, u := range []provider.Usage{
						{Input: n}, {CacheWrite: n}, {Cached: n}, {Input: n / 2, CacheWrite: n - n/2},
					} {
						u.Output = 100
						a, err := Charge(p.Rates, u, money.One/5, money.One/20)
						if err != nil || a.UserChargeMC > hold {
							t.Errorf("%s: %+v is charged %d, held %d (%v)", m.Model.ID, u, a.UserChargeMC, hold, err)
						}
					}
				}
			}
		}
	}
	for _, name := range []string{"openai", "anthropic", "google"} {
		if steps[name] < 2 {
			t.Errorf("%s has %d price steps", name, steps[name])
		}
	}
}

// TestVoiceUsable is the rule at its edges: usage beyond what the call allows is missing, and estimated.
func TestVoiceUsable(t *testing.T) {
	t.Parallel()
	const maxOutput, context = 100, 1000
	each := func(n int64) VoiceUsage { // every class alike
		return VoiceUsage{n, n, n, n, n, n, n, n}
	}
	if u := (VoiceUsage{1, 2, 4, 8, 16, 32, 64, 128}); u.Input() != 63 || u.Output() != 192 {
		t.Errorf("input %d, output %d", u.Input(), u.Output())
	}
	type edge struct {
		name string
		u    VoiceUsage
		want bool
	}
	edges := []edge{
		{"nothing", VoiceUsage{}, false},
		{"one of each", each(1), true},
		{"only input", VoiceUsage{ImageCached: 1}, true},
		{"only output", VoiceUsage{AudioOutput: 1}, true},
		{"all of the context", VoiceUsage{TextInput: context - 5, TextCached: 1, AudioInput: 1, AudioCached: 1,
			ImageInput: 1, ImageCached: 1}, true},
		{"one more", VoiceUsage{TextInput: context - 4, TextCached: 1, AudioInput: 1, AudioCached: 1, ImageInput: 1,
			ImageCached: 1}, false},
		{"twice the cap and some", VoiceUsage{TextOutput: 1, AudioOutput: 2 * (maxOutput + outputSlack)}, true},
		{"one more", VoiceUsage{TextOutput: 2, AudioOutput: 2 * (maxOutput + outputSlack)}, false},
	}
	for _, class := range []func(*VoiceUsage) *int64{
		func(u *VoiceUsage) *int64 { return &u.TextInput }, func(u *VoiceUsage) *int64 { return &u.TextCached },
		func(u *VoiceUsage) *int64 { return &u.AudioInput }, func(u *VoiceUsage) *int64 { return &u.AudioCached },
		func(u *VoiceUsage) *int64 { return &u.ImageInput }, func(u *VoiceUsage) *int64 { return &u.ImageCached },
		func(u *VoiceUsage) *int64 { return &u.TextOutput }, func(u *VoiceUsage) *int64 { return &u.AudioOutput },
	} {
		u := each(5)
		*class(&u) = -1
		edges = append(edges, edge{"a negative count", u, false})
	}
	for _, e := range edges {
		if got := VoiceUsable(e.u, maxOutput, context); got != e.want {
			t.Errorf("%s: %+v: %t", e.name, e.u, got)
		}
	}
	for n, want := range map[int64]bool{maxVoiceTokens: true, maxVoiceTokens + 1: false} {
		if got := VoiceUsable(VoiceUsage{TextInput: n}, maxOutput, math.MaxInt64); got != want {
			t.Errorf("%d tokens in a context without end: %t", n, got)
		}
	}
}
