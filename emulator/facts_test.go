package emulator

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/facts"
)

func loadFacts(t *testing.T) []facts.Fact {
	t.Helper()
	list, err := facts.Load()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFacts sends what each rule of the provider notes is about: the emulator is as strict as the providers, and no
// stricter.
func TestFacts(t *testing.T) {
	t.Parallel()
	e := New(Options{})
	for _, f := range loadFacts(t) {
		if f.Without != "" {
			continue
		}
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, f.Path,
				bytes.NewReader(exchange.Encode(f.Body)))
			header := map[string]string{
				"Content-Type": "application/json", "Authorization": "Bearer k", "X-Api-Key": "k",
				"X-Goog-Api-Key": "k", "Anthropic-Version": "2023-06-01",
			}
			if f.Header["X-Api-Key"] == "" && f.Header["Authorization"] == "" && strings.HasPrefix(f.Path, "/v1/mess") {
				delete(header, "Authorization")
			}
			maps.Copy(header, f.Header)
			for name, value := range header {
				if value != "" {
					r.Header[http.CanonicalHeaderKey(name)] = []string{value}
				}
			}
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			body, err := io.ReadAll(w.Result().Body)
			if err != nil {
				t.Fatal(err)
			}
			if f.Refused == nil {
				if w.Code != http.StatusOK {
					t.Errorf("refused: %d %s", w.Code, body)
				}
				return
			}
			checkRefusal(t, f.Refused, w.Code, body)
		})
	}
}

// checkRefusal checks an error of any provider.
func checkRefusal(t *testing.T, want *facts.Refusal, status int, body []byte) {
	t.Helper()
	var got struct {
		Error struct {
			Type    string `json:"type"`
			Status  string `json:"status"` // of Google, whose code is a number
			Code    any    `json:"code"`
			Param   string `json:"param"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	wanted := want.Status
	if wanted == 0 {
		wanted = http.StatusBadRequest
	}
	code, _ := got.Error.Code.(string)
	if status != wanted || want.Type != "" && want.Type != got.Error.Type+got.Error.Status ||
		want.Code != "" && want.Code != code || want.Param != "" && want.Param != got.Error.Param ||
		!strings.Contains(got.Error.Message, want.Text) || got.Error.Message == "" {
		t.Errorf("want %+v, got %d %s", *want, status, body)
	}
}

// ruleWord is how a sentence of the provider notes sounds that says what a request must be.
var ruleWord = regexp.MustCompile(
	`(?i)\b(?:400|refuses?|refused|must|at most|at least|required|up to|only|never|cannot)\b`)

// TestEachRuleHasAFact finds the words of each fact in the section that it names, and a fact for each sentence of the
// provider notes about the text APIs that says what a request must be.
func TestEachRuleHasAFact(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/internals/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(page), "\n### ") {
		part, _, _ = strings.Cut(part, "\n## ")
		rule, _, _ := strings.Cut(part, " ")
		sections[rule] = strings.Join(strings.Fields(part), " ")
	}
	type span struct{ from, to int }
	covered := map[string][]span{}
	for _, f := range loadFacts(t) {
		at := strings.Index(sections[f.Rule], f.Says)
		if at < 0 {
			t.Errorf("section %s does not say %q", f.Rule, f.Says)
			continue
		}
		to := at + len(f.Says)
		if f.Says == "" {
			to = len(sections[f.Rule])
		}
		covered[f.Rule] = append(covered[f.Rule], span{at, to})
	}
	for rule, text := range sections {
		if !slices.Contains([]string{"A", "B", "C"}, rule[:1]) {
			continue
		}
		for _, word := range ruleWord.FindAllStringIndex(text, -1) {
			if !slices.ContainsFunc(covered[rule], func(s span) bool { return s.from <= word[0] && word[1] <= s.to }) {
				t.Errorf("no fact says what this of section %s means: …%s…", rule,
					text[max(0, word[0]-60):min(len(text), word[1]+60)])
			}
		}
	}
}
