package receipts

import (
	"fmt"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

// EncodeUsage returns the token classes of a text call as its ledger row stores them.
func EncodeUsage(u provider.Usage) string {
	b := make([]byte, 0, 96)
	for i, m := range [...]struct {
		name string
		n    int64
	}{
		{"input", u.Input},
		{"cached", u.Cached},
		{"cache_write", u.CacheWrite},
		{"output", u.Output},
		{"reasoning", u.Reasoning},
	} {
		b = append(b, `{,,,,`[i], '"')
		b = append(append(b, m.name...), `":`...)
		b = strconv.AppendInt(b, m.n, 10)
	}
	return string(append(b, '}'))
}

// EncodeCachedUsage is EncodeUsage with what the provider's cache saved. The daily totals count cached tokens
// and savings of rows that have it; rows of earlier versions lack it.
func EncodeCachedUsage(u provider.Usage, saved money.MC) string {
	b := append([]byte(strings.TrimSuffix(EncodeUsage(u), "}")), `,"cache_saved_mc":`...)
	return string(append(strconv.AppendInt(b, int64(saved), 10), '}'))
}

// EncodeWaivedUsage is EncodeUsage of a call that was free. What the cache saved is left out: nobody was charged.
func EncodeWaivedUsage(u provider.Usage) string {
	return strings.TrimSuffix(EncodeUsage(u), "}") + "," + rules.WaivedEmpty + "}"
}

// storedUsage is the usage of a ledger row: what EncodeUsage writes, and the token
// classes that only voice replies have.
type storedUsage struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`

	AudioInput  int64 `json:"audio_input"`
	AudioCached int64 `json:"audio_cached"`
	AudioOutput int64 `json:"audio_output"`
	ImageInput  int64 `json:"image_input"`
	ImageCached int64 `json:"image_cached"`
}

func decodeUsage(e *rules.Entry) (storedUsage, error) {
	var u storedUsage
	if err := jsonv2.Unmarshal([]byte(e.Usage), &u); err != nil {
		return storedUsage{}, fmt.Errorf("usage of %s: %w", e.ID, err)
	}
	return u, nil
}

// tokensOf returns the input and output tokens of a ledger row, of all token classes, or nil if it has no usage.
func tokensOf(e *rules.Entry) (input, output *int64) {
	u, err := decodeUsage(e)
	if err != nil {
		return nil, nil
	}
	in := u.Input + u.Cached + u.CacheWrite + u.AudioInput + u.AudioCached + u.ImageInput + u.ImageCached
	out := u.Output + u.AudioOutput
	return &in, &out
}

// AppendUsage appends the token counts of a ledger row in OpenAI's form.
func AppendUsage(b []byte, e *rules.Entry) ([]byte, error) {
	u, err := decodeUsage(e)
	if err != nil {
		return nil, err
	}
	input := u.Input + u.Cached + u.CacheWrite
	return fmt.Appendf(b, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,`+
		`"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},`+
		`"completion_tokens_details":{"reasoning_tokens":%d}}`,
		input, u.Output, input+u.Output, u.Cached, u.CacheWrite, u.Reasoning), nil
}
