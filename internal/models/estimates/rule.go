package estimates

// One is the ratio 1 in parts per million.
const One = 1_000_000

const (
	// span is how many calls the mean remembers: each counts 1 ÷ span of it.
	span = 64
	// small is the count below which a call tells nothing about the text's factor:
	// the tokens around the messages decide.
	small = 64
	// enough is how many telling calls may raise the factor above 1.
	enough = 50
	// block is how many telling calls may lower it below 1, and how long a high
	// ratio is remembered: between one and two blocks.
	block = 256
	// lowest and highest bound the factor.
	lowest, highest = One * 8 / 10, One * 15 / 10
	// ceiling bounds one ratio, so that nothing overflows whatever is reported.
	ceiling = 1000 * One
)

// Stat is what the settled calls of one model have shown. Ratios are the real
// input tokens by those that were counted, in parts per million.
type Stat struct {
	Calls    int64 // all
	MeanPPM  int64 // decayed mean of the ratios of all
	Telling  int64 // calls of the current block that were not small
	MaxPPM   int64 // their largest ratio
	PriorPPM int64 // the largest of the block before; 0 = there was none
}

// Add returns the statistics with one more call.
func (s Stat) Add(counted, real int64) Stat {
	if counted <= 0 || real < 0 {
		return s
	}
	ratio := min(real, counted*(ceiling/One)) * One / counted
	s.Calls++
	weight := min(s.Calls, span)
	s.MeanPPM = (s.MeanPPM*(weight-1) + ratio + weight/2) / weight
	if counted < small {
		return s
	}
	if s.Telling == block {
		s.PriorPPM, s.MaxPPM, s.Telling = max(s.MaxPPM, 1), 0, 0
	}
	s.Telling++
	s.MaxPPM = max(s.MaxPPM, ratio)
	return s
}

// FactorPPM is what the count of the next call is multiplied by: the largest
// ratio of the last 256 to 512 telling calls, so that none of them would have been
// held too low; at least 0.8 and at most 1.5. It may rise above 1 after 50 calls
// and fall below 1 only after 256: too high a hold comes back with the
// settlement, too low a one may leave a call unpaid. A mean would be too low for
// half of the calls.
func (s Stat) FactorPPM() int64 {
	top := max(s.MaxPPM, s.PriorPPM)
	switch {
	case s.PriorPPM == 0 && s.Telling < enough:
		return One
	case s.PriorPPM == 0 && s.Telling < block:
		top = max(top, One)
	}
	return min(max(top, lowest), highest)
}

// Over says whether a call read more input than its hold had room for: above the
// 5 % that a hold adds to its estimate. A small call never is: there, one token
// is a matter of percents.
func Over(held, real int64) bool {
	return held >= small && real > held+held/20
}
