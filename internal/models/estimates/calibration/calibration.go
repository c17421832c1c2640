// Package calibration has the rules of the estimate calibration (decision 017): the statistics of a
// model's calls, and the factor that corrects the next count. It is pure.
package calibration

// RatioOne is the ratio 1 in parts per million.
const RatioOne = 1_000_000

const (
	// meanWindow is the weight of history: a call counts 1 ÷ meanWindow of the decayed mean.
	meanWindow = 64
	// minSampledTokens is the counted input from which on a call is sampled. The ratio of a smaller call says nothing
	// about its text, because the tokens around the messages dominate.
	minSampledTokens = 64
	// minRaiseCalls is the number of sampled calls from which on the factor may rise above 1.
	minRaiseCalls = 50
	// blockCalls is the number of sampled calls in a block. The factor may fall below 1 after one block, and remembers
	// a high ratio for one to two blocks.
	blockCalls = 256
	// minFactorPPM and maxFactorPPM bound the factor.
	minFactorPPM, maxFactorPPM = RatioOne * 8 / 10, RatioOne * 15 / 10
	// maxRatioPPM bounds each ratio, so that no reported count causes an overflow.
	maxRatioPPM = 1000 * RatioOne
)

// Stat summarizes the settled calls of one model. A ratio is real input tokens ÷ counted input tokens, in parts per
// million.
type Stat struct {
	Calls        int64 // all calls
	MeanPPM      int64 // decayed mean of the ratios of all calls
	SampledCalls int64 // sampled calls of the present block
	MaxPPM       int64 // their largest ratio
	PriorPPM     int64 // the largest ratio of the block before; 0 = there was none
}

// Add returns the statistics with one more call.
func (s Stat) Add(counted, real int64) Stat {
	if counted <= 0 || real < 0 {
		return s
	}
	ratio := min(real, counted*(maxRatioPPM/RatioOne)) * RatioOne / counted
	s.Calls++
	weight := min(s.Calls, meanWindow)
	s.MeanPPM = (s.MeanPPM*(weight-1) + ratio + weight/2) / weight
	if counted < minSampledTokens {
		return s
	}
	if s.SampledCalls == blockCalls {
		s.PriorPPM, s.MaxPPM, s.SampledCalls = max(s.MaxPPM, 1), 0, 0
	}
	s.SampledCalls++
	s.MaxPPM = max(s.MaxPPM, ratio)
	return s
}

// FactorPPM returns the factor for the count of the next call: the largest ratio of the last 256 to 512 sampled calls,
// so that the hold of none of them would have been too low, but at least 0.8 and at most 1.5. It may rise above 1
// after 50 calls and fall below 1 only after 256, because a hold that is too high is released at settlement, and one
// that is too low may leave a call unpaid. The mean would be too low for half of the calls.
func (s Stat) FactorPPM() int64 {
	top := max(s.MaxPPM, s.PriorPPM)
	switch {
	case s.PriorPPM == 0 && s.SampledCalls < minRaiseCalls:
		return RatioOne
	case s.PriorPPM == 0 && s.SampledCalls < blockCalls:
		top = max(top, RatioOne)
	}
	return min(max(top, minFactorPPM), maxFactorPPM)
}

// ExceedsHold reports whether a call used more input than its hold was computed for: more than the hold margin of 5 %
// above the estimate. A small call never does, because one token of it is some per cent.
func ExceedsHold(held, real int64) bool {
	return held >= minSampledTokens && real > held+held/20
}
