package catalog

import (
	"strings"
	"testing"
)

const embeddingPriceList = `date: 2026-11-21
models:
  - id: vectors
    provider: openai
    family: embedding-3
    context_tokens: 8192
    embedding: true
    min_dimensions: 8
    max_dimensions: 1536
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: fixed
    reasoning: false
    source: somewhere, 2026-11-21
    prices:
      - {input: "0.02"}
`

// An embedding model has no output and no price of it, says how many numbers its vectors have, and can do nothing else.
func TestEmbeddingModel(t *testing.T) {
	t.Parallel()
	c, err := Load([]byte(embeddingPriceList))
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "2026-11-21T12:00:00Z")
	m, rates, ok := c.Find("vectors", now)
	if !ok || !m.Embedding || m.MaxOutputTokens != 0 || !rates.Embedding {
		t.Fatalf("%+v %+v", m, rates)
	}
	text := rates.Snapshot()
	if !strings.HasSuffix(text, `"mc_per_million":[[0,2000000,2000000,2000000,0]],"embedding":true}`) {
		t.Errorf("snapshot %s", text)
	}
	if back, err := ParseSnapshot(text); err != nil || back.Snapshot() != text || !back.Embedding {
		t.Errorf("the snapshot reads as %+v, %v", back, err)
	}
	l := c.Offered(now)[0]
	if !l.Capabilities.Embeddings || l.Capabilities.Tools || len(l.Capabilities.ResponseFormats) != 0 ||
		*l.Dimensions != (Dimensions{8, 1536}) || l.Input != "0.000020" || l.Output != "0.000000" ||
		l.MaxOutputTokens != 0 || l.ContextWindow != 8192 {
		t.Errorf("listed as %+v", l)
	}
	for _, test := range []struct{ old, new, want string }{
		{"family: embedding-3", "family: gpt-6", "family: is not known"},
		{"context_tokens: 8192", "context_tokens: 8192\n    max_output_tokens: 9",
			"max_output_tokens: must be above 0, and"},
		{"provider: openai", "provider: anthropic", "embedding: is for models of openai and google"},
		{"vision: false", "vision: true", "embedding: is for models of openai and google"},
		{"temperature: fixed", "temperature: free", "embedding: is for models of openai and google"},
		{"embedding: true", "embedding: true\n    realtime: true", "embedding: is for models of openai and google"},
		{"max_dimensions: 1536", "max_dimensions: 4097", "max_dimensions: must be 1 to 4096"},
		{"max_dimensions: 1536", "max_dimensions: 0", "max_dimensions: must be 1 to 4096"},
		{"min_dimensions: 8", "min_dimensions: 1537", "min_dimensions: must be 1 to max_dimensions"},
		{"min_dimensions: 8", "min_dimensions: 0", "min_dimensions: must be 1 to max_dimensions"},
		{`"0.02"`, `"0.02", output: "0.02"`, "has only the price of its input"},
		{`"0.02"`, `"0.02", cached: "0.01"`, "has only the price of its input"},
		{`"0.02"`, `"0.02", above: 100`, "has only the price of its input"},
		{`"0.02"`, `"0.00"`, `input: "0.00" is not a price`},
		{"    embedding: true\n", "", "max_dimensions: must be 1 to 4096 on an embedding model, and is for no other"},
	} {
		text := strings.Replace(embeddingPriceList, test.old, test.new, 1)
		if _, err := Load([]byte(text)); text == embeddingPriceList || err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %s", test.new, err, test.want)
		}
	}
}
