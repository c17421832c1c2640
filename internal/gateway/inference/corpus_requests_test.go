package inference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/id"
)

// A corpusRequest is what clients of each API ask, and what must come of it at models of each provider.
type corpusRequest struct {
	Name   string
	Bodies map[string]json.RawMessage // by route, without the model; PLAY-0 is in a text
	Wants  []corpusWanted
}

// A corpusWanted is what must come of a request.
type corpusWanted struct {
	At      []string // the route and the model
	Path    string   // of the provider, from its end
	Body    any      // without the model
	Refused string   // instead: the status, and what the body must match
}

// longText is what LONG-0 stands for: enough for a cache.
var longText = strings.Repeat("lorem ipsum ", 1000)

// unspoken are the members of a provider's request that Purser adds by itself, and that other tests prove.
var unspoken = []string{"safety_identifier", "metadata", "prompt_cache_key", "service_tier", "store", "stream",
	"stream_options"}

// playRequest asks a model, and compares what its provider gets.
func (r *corpusRun) playRequest(c *corpusRequest, w *corpusWanted, route, model string) {
	r.t.Helper()
	r.played++
	name := fmt.Sprintf("PLAY-%d", r.played)
	var path string
	var heard []byte
	r.stub.put(name, &play{heard: func(p string, body []byte) { path, heard = p, bytes.Clone(body) }})
	defer r.stub.drop(name)
	text := strings.NewReplacer("PLAY-0", name, "LONG-0", longText).Replace(string(c.Bodies[route]))
	if route != "ai" && route != "contents" {
		text = `{"model":"` + model + `",` + text[1:]
	}
	to := map[string]string{
		"ai": "/v1/ai/" + model, "chat": "/v1/chat/completions", "messages": "/anthropic/v1/messages",
		"responses": "/openai/v1/responses", "contents": "/google/v1beta/models/" + model + ":generateContent",
	}[route]
	got := r.ask(id.NewUUID(), to, text)
	fail := func(format string, args ...any) {
		r.t.Helper()
		r.t.Errorf("%s, %s, %s: %s", c.Name, route, model, fmt.Sprintf(format, args...))
	}
	if w.Refused != "" {
		status, message, _ := strings.Cut(w.Refused, " ")
		told := regexp.MustCompile(message).MatchString(got.raw.String())
		if fmt.Sprint(got.status) != status || !told || heard != nil {
			fail("%d %.600s, want %s", got.status, got.raw.String(), w.Refused)
		}
		return
	}
	if got.status != http.StatusOK {
		fail("%d %.600s", got.status, got.raw.String())
		return
	}
	o, err := decode(strings.NewReplacer(name, "PLAY-0", longText, "LONG-0").Replace(string(heard)))
	if err != nil {
		fail("%v in %s", err, heard)
		return
	}
	if named := o.at("model"); named != nil && named != model {
		fail("the model is %s", named)
	}
	delete(o, "model")
	for _, member := range unspoken {
		delete(o, member)
	}
	gotText, _ := json.Marshal(numbered(map[string]any(o)))
	wantText, _ := json.Marshal(w.Body)
	if !bytes.Equal(gotText, wantText) ||
		!strings.HasSuffix(path, strings.ReplaceAll(w.Path, "MODEL", model)) {
		fail("%s gets\n%s, want %s\n%s", path, gotText, w.Path, wantText)
	}
}

// TestCorpusRequests sends the requests of tools/corpus to models of each provider: the body that the provider gets, or
// the refusal, is what the second program wants.
func TestCorpusRequests(t *testing.T) {
	t.Parallel()
	list := readCorpus[corpusRequest](t, "requests")
	for _, e := range corpusEngines() {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			r, n, every := newCorpusRun(t, e), 0, oneOf(3, e)
			for i := range list {
				if !strings.Contains(list[i].Name, *corpusName) {
					continue
				}
				for j := range list[i].Wants {
					for _, at := range list[i].Wants[j].At {
						route, model, _ := strings.Cut(at, " ")
						if n++; n%every == 0 {
							r.playRequest(&list[i], &list[i].Wants[j], route, model)
						}
					}
				}
			}
			r.audit()
		})
	}
}
