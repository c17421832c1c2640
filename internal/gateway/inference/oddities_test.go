package inference

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/id"
)

// This file plays what recordings of real traffic show beside what the descriptions of the interfaces say.

// playWords makes a call whose answer the emulator is told about, and waits for its end.
func (m *matrix) playWords(d *dialect, route, words string, streamed bool) *playedCell {
	m.t.Helper()
	p := &playedCell{
		cell: &cell{dialect: d, route: route, streamed: streamed},
		m:    m,
		node: m.bundle,
		key:  id.NewUUID(),
	}
	r := m.request(m.bundle, m.token, p.key, route, d.model, "Name a river.\n!emu "+words, streamed, true, 4000)
	p.got = readCall(m.t.Context(), r)
	m.await(d.name+" "+route+" "+words, func() bool { return p.got.hasEnded() && p.running() == nil && m.hasNoHolds() })
	return p
}

// TestOddEvents plays streams with events that come twice, are of a type that nobody knows, or hold a call whole, and
// usage that lacks a member at the end: the client reads the same as otherwise, and is charged for the same.
func TestOddEvents(t *testing.T) {
	t.Parallel()
	m, _ := newEmulated(t)
	const calls = "say\n!call weather {\"city\":\"Köln\"}\n!call weather {\"city\":\"Oslo\"}"
	for _, d := range dialects {
		for _, route := range []string{"ai", "messages", "responses"} {
			if d.name == "chat" && route == "responses" {
				continue // the Responses API serves it
			}
			plain := m.playWords(d, route, calls, true)
			want, row := plain.got.message(route), plain.charge()
			if row == nil || row.settlement != "settled" || !want.done ||
				!strings.Contains(want.said, `weather{"city":"Köln"}`) {
				t.Fatalf("%s %s: %+v %+v", d.name, route, row, want)
			}
			for _, words := range []string{"twice", "unknown=0", "unknown=1", "unknown=4", "whole", "short_usage"} {
				p := m.playWords(d, route, words+" "+calls, true)
				got, charged := p.got.message(route), p.charge()
				if got.said != want.said || got.finished != want.finished || !got.done || got.failed ||
					charged == nil || charged.settlement != "settled" || charged.output != row.output {
					t.Errorf("%s %s %s: %+v %+v, want %+v %+v\n%s", d.name, route, words, got, charged, want, row,
						p.got.raw.String())
				}
			}
		}
	}
	m.audit()
}

// readBlocks returns the kinds of the blocks of an answer, in their order: r, t and c.
func readBlocks(t *testing.T, p *playedCell) (kinds string) {
	t.Helper()
	var list []struct {
		Type string `json:"type"`
		Item struct {
			Type string `json:"type"`
		} `json:"item"`
		Block struct {
			Type string `json:"type"`
		} `json:"content_block"`
	}
	body := p.got.raw.Bytes()
	if p.streamed {
		events := "[null"
		for line := range strings.Lines(string(body)) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				events += "," + data
			}
		}
		body = []byte(events + "]")
	} else {
		var whole struct{ Content, Output json.RawMessage }
		if err := json.Unmarshal(body, &whole); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		body = append(whole.Content, whole.Output...)
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, e := range list {
		kind := e.Type
		switch e.Type {
		case "content_block_start":
			kind = e.Block.Type
		case "response.output_item.added":
			kind = e.Item.Type
		}
		kinds += map[string]string{
			"thinking": "r", "text": "t", "tool_use": "c", "reasoning": "r", "message": "t", "function_call": "c",
		}[kind]
	}
	return kinds
}

// TestBlocksInAnyOrder plays answers whose thoughts, texts and calls follow each other in any order: they reach the
// clients of each API that has blocks in that order, and a client of the provider's own API reads what each message is
// for.
func TestBlocksInAnyOrder(t *testing.T) {
	t.Parallel()
	m, _ := newEmulated(t)
	for _, d := range dialects[1:] {
		for _, route := range []string{"messages", "responses"} {
			for _, order := range []string{"rtc", "rcrc", "trtct", "rctrct", "ctc"} {
				for _, streamed := range []bool{true, false} {
					p := m.playWords(d, route, "thinking blocks="+order, streamed)
					got, want := readBlocks(t, p), order
					if d.name == "google" { // the signature of a call comes as a thought of its own
						got, want = strings.ReplaceAll(got, "r", ""), strings.ReplaceAll(want, "r", "")
					}
					if got != want {
						t.Errorf("%s %s streamed %t: %s, want %s\n%s", d.name, route, streamed, got, want,
							p.got.raw.String())
					}
					text := p.got.raw.String()
					if d.name == "responses" && route == "responses" && order == "rctrct" &&
						(!strings.Contains(text, `"phase":"commentary"`) ||
							!strings.Contains(text, `"phase":"final_answer"`)) {
						t.Errorf("streamed %t: no phases in\n%s", streamed, text)
					}
				}
			}
		}
	}
	m.audit()
}

// TestFailuresWithinStreams plays failures that a stream begins with, in each form: the call goes on by the other key,
// or is tried again, and the client notices nothing. A malformed call of Gemini is asked for once.
func TestFailuresWithinStreams(t *testing.T) {
	t.Parallel()
	m, watched := newEmulated(t)
	openAI, claude, gemini := dialects[1], *dialects[2], dialects[3]
	claude.model = "claude-haiku-4-5" // a thought that has begun may have cost something, and is not tried again
	for _, tt := range []struct {
		dialect *dialect
		words   string
		alarm   bool
		asked   int
		said    string // the client's error; "" = it gets an answer
	}{
		{openAI, "error=2 code=insufficient_quota", true, 2, ""},
		{openAI, "error=2 code=insufficient_quota error_form=nested", true, 2, ""},
		{openAI, "error=1 code=insufficient_quota error_form=failed", true, 2, ""},
		{openAI, "error=2 code=server_error error_form=nested", false, 2, ""},
		{openAI, "error=0 code=rate_limit_exceeded error_form=failed", false, 2, ""},
		{&claude, "error=2 code=overloaded_error", false, 2, ""}, // after an empty block
		{&claude, "error=0 code=overloaded_error", false, 2, ""},
		{gemini, "error=0 code=UNAVAILABLE", false, 2, ""},
		{gemini, "calls=1 malformed_call", false, 1, "malformed"},
	} {
		for i, route := range []string{"ai", "messages", "responses"} {
			if tt.dialect == &claude && route == "messages" {
				continue // it asks for thoughts
			}
			m.pass(maxKeyRest)
			m.issueTokens()
			m.log.take()
			watched.take()
			words := fmt.Sprintf("%s words=%d", tt.words, 5+i) // another text each time, of which the first try fails
			if tt.said == "" {
				words += " fails=1"
			}
			p := m.playWords(tt.dialect, route, words, true)
			asked, _ := watched.take()
			log := m.log.take()
			isAnswered := p.got.status == http.StatusOK && p.got.message(route).finished && p.charge() != nil
			if isAnswered != (tt.said == "") || asked != tt.asked ||
				tt.alarm != strings.Contains(log, "provider alarm") ||
				!strings.Contains(p.got.raw.String(), tt.said) {
				t.Errorf("%s %s: asked %d times\n%d %s\n%s", words, route, asked, p.got.status, p.got.raw.String(), log)
			}
		}
	}
	m.audit()
}

// TestUsageWithAnotherSum plays usages whose total is not the sum of their parts: the parts are charged, cached tokens
// as cached.
func TestUsageWithAnotherSum(t *testing.T) {
	t.Parallel()
	m, _ := newEmulated(t)
	for _, tt := range []struct {
		dialect *dialect
		usage   string
	}{
		{dialects[0], `{"prompt_tokens":40,"completion_tokens":77,"total_tokens":127,"prompt_tokens_details":` +
			`{"cached_tokens":30}}`},
		{dialects[1], `{"input_tokens":40,"output_tokens":77,"total_tokens":10,"input_tokens_details":` +
			`{"cached_tokens":30}}`},
		{dialects[3], `{"promptTokenCount":40,"cachedContentTokenCount":30,"candidatesTokenCount":70,` +
			`"thoughtsTokenCount":7,"totalTokenCount":1000}`},
	} {
		for _, streamed := range []bool{true, false} {
			sum := m.playWords(tt.dialect, "ai", "usage=40,30,0,77,7", streamed).charge()
			p := m.playWords(tt.dialect, "ai", "usage_raw="+tt.usage, streamed)
			row := p.charge()
			if row == nil || sum == nil || row.settlement != "settled" || row.input != 40 || row.output != 77 ||
				row.charged != sum.charged {
				t.Errorf("%s streamed %t: %+v, with the right sum %+v\n%s", tt.dialect.name, streamed, row, sum,
					p.got.raw.String())
			}
		}
	}
	m.audit()
}

// TestTooLongIsSaidToEachClient sends a conversation that is too long for a model of each provider: the client of each
// API reads it where its agents look for it.
func TestTooLongIsSaidToEachClient(t *testing.T) {
	t.Parallel()
	m, _ := newEmulated(t)
	const code = `"context_length_exceeded"`
	for model, tokens := range map[string]int{
		"gpt-4o-mini": 128_000, "claude-haiku-4-5": 200_000, "gemini-2.5-flash-lite": 1_048_576,
	} {
		text := strings.Repeat("many words ", tokens*3/10)
		said := `[{"role":"user","content":"` + text + `"}]`
		for path, tt := range map[string]struct{ body, want string }{
			"/v1/ai/" + model: {`{"max_tokens":100,"messages":` + said + `}`, `"reason":` + code},
			"/openai/v1/responses": {
				`{"model":"` + model + `","max_output_tokens":100,"input":` + said + `}`, `"code":` + code,
			},
			"/anthropic/v1/messages": {
				`{"model":"` + model + `","max_tokens":100,"messages":` + said + `}`, `"message":"prompt is too long`,
			},
			"/google/v1beta/models/" + model + ":generateContent": {
				`{"contents":[{"role":"user","parts":[{"text":"` + text + `"}]}]}`,
				`input token count exceeds the maximum`,
			},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Authorization": {"Bearer " + m.token}, "Content-Type": {"application/json"},
				"Idempotency-Key": {id.NewUUID()}}
			got := readCall(t.Context(), r)
			if <-got.ended; got.status != http.StatusBadRequest || !strings.Contains(got.raw.String(), tt.want) {
				t.Errorf("%s of %s: %d %.500s", path, model, got.status, got.raw.String())
			}
		}
	}
	m.audit()
}
