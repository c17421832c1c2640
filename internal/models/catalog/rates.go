package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/money"
)

// PerMillion is the number of tokens that a price is for.
const PerMillion = 1_000_000

// Rates are the prices of one model at one time. Each hold and ledger row stores them as text, so that any charge can
// be verified later.
type Rates struct {
	PriceList string // version of the price list that they come from
	Steps     []Step // rising; the first has AboveInput 0; read-only
	Voice     *Voice // realtime models, which have one step; otherwise nil; read-only
	Embedding bool   // an embedding model, which has one step and one price: that of its input
	snapshot  string
}

// Voice has the prices of a realtime model for audio and images, in micro-cents per million tokens.
type Voice struct {
	AudioInput  money.MC
	AudioCached money.MC
	AudioOutput money.MC
	ImageInput  money.MC
	ImageCached money.MC
}

// A Step has the prices of requests with more than AboveInput input tokens, in micro-cents per million tokens. They
// are for all tokens of the request. Output is 0 for an embedding model, and for no other.
type Step struct {
	AboveInput int64
	Input      money.MC // input not in the provider's cache
	Cached     money.MC // input read from it
	CacheWrite money.MC // input written to it
	Output     money.MC
}

// At returns the step for a request with this many input tokens, including cached ones. A request of exactly
// AboveInput tokens is below that step.
func (r Rates) At(inputTokens int64) Step {
	step := r.Steps[0]
	for _, s := range r.Steps[1:] {
		if inputTokens > s.AboveInput {
			step = s
		}
	}
	return step
}

// snapshot is the text form: the version of the price list, and a row of numbers for each step, [above_input, input,
// cached, cache_write, output]; for a realtime model also [audio_input, audio_cached, audio_output, image_input,
// image_cached]. An embedding model, whose output is 0, is marked.
type snapshot struct {
	PriceList string     `json:"book"`
	Steps     [][5]int64 `json:"mc_per_million"`
	Voice     *[5]int64  `json:"voice_mc_per_million,omitempty"`
	Embedding bool       `json:"embedding,omitempty"`
}

// newRates checks the prices and writes the snapshot of r, which has none yet.
func newRates(r Rates) (Rates, error) {
	check := checkSteps
	if r.Embedding {
		check = checkEmbeddingStep
	}
	if err := errors.Join(check(r.Steps), r.Voice.check(len(r.Steps))); err != nil {
		return Rates{}, err
	}
	if r.Embedding && r.Voice != nil {
		return Rates{}, errors.New("an embedding model has no voice")
	}
	s := snapshot{PriceList: r.PriceList, Embedding: r.Embedding}
	if voice := r.Voice; voice != nil {
		s.Voice = &[5]int64{int64(voice.AudioInput), int64(voice.AudioCached), int64(voice.AudioOutput),
			int64(voice.ImageInput), int64(voice.ImageCached)}
	}
	for _, step := range r.Steps {
		s.Steps = append(s.Steps,
			[5]int64{step.AboveInput, int64(step.Input), int64(step.Cached), int64(step.CacheWrite),
				int64(step.Output)})
	}
	text, err := json.Marshal(s)
	if err != nil {
		return Rates{}, fmt.Errorf("catalog: %w", err)
	}
	r.snapshot = string(text)
	return r, nil
}

// Snapshot returns the rates as a short JSON text, which is the same for the same rates. It was written by newRates,
// so the call is cheap.
func (r Rates) Snapshot() string { return r.snapshot }

// ParseSnapshot reads the text that Snapshot returned.
func ParseSnapshot(text string) (Rates, error) {
	var s snapshot
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Rates{}, fmt.Errorf("catalog: rates %q: %w", text, err)
	}
	steps := make([]Step, 0, len(s.Steps))
	for _, n := range s.Steps {
		steps = append(steps, Step{n[0], money.MC(n[1]), money.MC(n[2]), money.MC(n[3]), money.MC(n[4])})
	}
	var voice *Voice
	if v := s.Voice; v != nil {
		voice = &Voice{money.MC(v[0]), money.MC(v[1]), money.MC(v[2]), money.MC(v[3]), money.MC(v[4])}
	}
	r, err := newRates(Rates{PriceList: s.PriceList, Steps: steps, Voice: voice, Embedding: s.Embedding})
	if err != nil {
		return Rates{}, fmt.Errorf("catalog: rates %q: %w", text, err)
	}
	if r.snapshot != text {
		return Rates{}, fmt.Errorf("catalog: rates %q are not in the form %q", text, r.snapshot)
	}
	return r, nil
}

// maxPrice bounds all prices: $100,000 per million tokens. It keeps the cost of any possible call within 64 bits.
const maxPrice = 100_000 * money.Dollar

func checkPrice(price money.MC) error {
	if price <= 0 || price > maxPrice {
		return fmt.Errorf("a price of %s per million tokens is not above 0 and at most %s", price.Display(),
			maxPrice.Display())
	}
	return nil
}

// check refuses voice prices that break the assumptions of package pricing.
func (v *Voice) check(steps int) error {
	if v == nil {
		return nil
	}
	for _, price := range []money.MC{v.AudioInput, v.AudioCached, v.AudioOutput, v.ImageInput, v.ImageCached} {
		if err := checkPrice(price); err != nil {
			return err
		}
	}
	if v.AudioCached > v.AudioInput || v.ImageCached > v.ImageInput {
		return errors.New("cached input must not cost more than input")
	}
	if steps != 1 {
		return errors.New("a realtime model has one price for requests of all lengths")
	}
	return nil
}

// checkEmbeddingStep refuses other prices than one for all input.
func checkEmbeddingStep(steps []Step) error {
	if len(steps) != 1 {
		return errors.New("an embedding model has one price for requests of all lengths")
	}
	input := steps[0].Input
	if steps[0] != (Step{Input: input, Cached: input, CacheWrite: input}) {
		return errors.New("an embedding model has one price, that of its input")
	}
	return checkPrice(input)
}

// checkSteps refuses steps that break the assumptions of package pricing.
func checkSteps(steps []Step) error {
	if len(steps) == 0 || steps[0].AboveInput != 0 {
		return errors.New("the first step must hold from 0 tokens on")
	}
	for i, s := range steps {
		for _, price := range []money.MC{s.Input, s.Cached, s.CacheWrite, s.Output} {
			if err := checkPrice(price); err != nil {
				return err
			}
		}
		if s.Cached > s.Input {
			return errors.New("cached input must not cost more than input")
		}
		if i == 0 {
			continue
		}
		last := steps[i-1]
		if s.AboveInput <= last.AboveInput {
			return errors.New("steps must rise")
		}
		if s.Input < last.Input || s.Cached < last.Cached || s.CacheWrite < last.CacheWrite || s.Output < last.Output {
			return errors.New("a longer request must not be cheaper per token")
		}
	}
	return nil
}
