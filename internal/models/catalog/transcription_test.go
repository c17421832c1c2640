package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

const transcriptionPriceList = `date: 2026-11-30
models:
  - id: gpt-w
    provider: openai
    family: gpt-4o-mini
    context_tokens: 16000
    max_output_tokens: 2000
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: fixed
    reasoning: false
    transcription: true
    source: a page, 2026-11-30
    prices:
      - {input: "2.50", output: "10.00", audio_input: "6.00"}
`

// TestTranscriptionModel: a model of transcription has three prices, is found by its name, and is not listed among the
// models that answer calls.
func TestTranscriptionModel(t *testing.T) {
	t.Parallel()
	c, err := Load([]byte(transcriptionPriceList))
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "2026-11-30T12:00:00Z")
	m, r, ok := c.Find("gpt-w", now)
	text, audio, said := money.MC(250_000_000), money.MC(600_000_000), money.MC(1_000_000_000)
	if !ok || !m.Transcription || r.Steps[0] != (Step{Input: text, Cached: text, CacheWrite: text, Output: said}) ||
		*r.Voice != (Voice{audio, audio, said, audio, audio}) {
		t.Errorf("%+v, %+v", m, r)
	}
	if back, err := ParseSnapshot(r.Snapshot()); err != nil || back.Snapshot() != r.Snapshot() {
		t.Errorf("the snapshot reads as %+v, %v", back, err)
	}
	if n := len(c.Offered(now)); n != 0 || !slices.Equal(c.Transcribing(now), []string{"gpt-w"}) {
		t.Errorf("%d are offered, %v", n, c.Transcribing(now))
	}
	for _, test := range []struct{ old, new, want string }{
		{"tools: false", "tools: true", "transcription: is for models of openai"},
		{"reasoning: false", "reasoning: true", "transcription: is for models of openai"},
		{"transcription: true", "transcription: true\n    realtime: true", "transcription: is for models of openai"},
		{`audio_input: "6.00"`, `audio_cached: "6.00"`, "has only the prices of input, output and audio_input"},
		{`, audio_input: "6.00"`, ``, "audio_input: "},
		{`output: "10.00", `, ``, "output: "},
	} {
		text := strings.Replace(transcriptionPriceList, test.old, test.new, 1)
		if _, err := Load([]byte(text)); text == transcriptionPriceList || err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %s", test.new, err, test.want)
		}
	}
}
