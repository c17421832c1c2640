package voice

import (
	"testing"

	"github.com/purserhq/purser/internal/models/catalog"
)

// TestVoicesOfAModel: an app may ask for the voices that its session's model has, and of a model whose voices are not
// known for any.
func TestVoicesOfAModel(t *testing.T) {
	t.Parallel()
	known := &catalog.Model{ID: "m", Voices: []string{"alloy", "marin"}}
	const none = `session.voice: m has no voice "nova"; its voices are alloy, marin`
	for _, tt := range []struct {
		model *catalog.Model
		voice string
		want  string
	}{
		{known, `"voice":"marin"`, ""},
		{known, `"voice":"nova"`, none},
		{known, `"audio":{"output":{"voice":"nova"}}`, none},
		{&catalog.Model{ID: "m"}, `"voice":"nova"`, ""},
		{&catalog.Model{ID: "m"}, `"voice":"a b"`, "session.voice: must be the name of a voice"},
	} {
		e := parseControlEvent([]byte(`{"type":"session.update","session":{`+tt.voice+`}}`), tt.model)
		if e.Problem != tt.want || tt.want == "" && e.Update.Voice == nil {
			t.Errorf("%s: %q", tt.voice, e.Problem)
		}
	}
}
