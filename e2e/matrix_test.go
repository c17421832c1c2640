package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// models of the three providers that can do all that the matrix asks.
var models = map[string]string{"openai": "gpt-6-luna", "anthropic": "claude-haiku-4-5", "google": "gemini-3.8-flash"}

// A said is an answer, whole or streamed, as the official SDK understood it.
type said struct {
	finish, text, refusal string
	raw                   string // the usage as it came
	calls                 []openai.ChatCompletionMessageToolCallUnion
	message               openai.ChatCompletionMessage
	usage                 openai.CompletionUsage
	err                   error
}

// tell asks whole or streamed.
func tell(t *testing.T, c openai.Client, ask openai.ChatCompletionNewParams, stream bool) said {
	t.Helper()
	if !stream {
		whole, err := c.Chat.Completions.New(soon(t), ask)
		if err != nil {
			return said{err: err}
		}
		return understood(whole.Choices, whole.Usage, whole.Usage.RawJSON())
	}
	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	var sum openai.ChatCompletionAccumulator
	s, raw := c.Chat.Completions.NewStreaming(soon(t), ask), ""
	for s.Next() {
		if u := s.Current().Usage; u.TotalTokens > 0 {
			raw = u.RawJSON()
		}
		if !sum.AddChunk(s.Current()) {
			t.Errorf("the SDK does not take the chunk %s", s.Current().RawJSON())
		}
	}
	out := understood(sum.Choices, sum.Usage, raw)
	if s.Err() != nil {
		out.err = s.Err()
	}
	return out
}

func understood(choices []openai.ChatCompletionChoice, usage openai.CompletionUsage, raw string) said {
	if len(choices) != 1 {
		return said{err: fmt.Errorf("%d choices", len(choices)), usage: usage, raw: raw}
	}
	m := choices[0].Message
	return said{
		finish:  choices[0].FinishReason,
		text:    m.Content,
		refusal: m.Refusal,
		calls:   m.ToolCalls,
		message: m,
		usage:   usage,
		raw:     raw,
	}
}

// A cell is one row of the matrix: what is asked, and what must be said.
type cell struct {
	name  string
	ask   func(*openai.ChatCompletionNewParams)
	wants func(said) bool
	free  bool // ends in an error and is not billed
	cut   bool // billed as an estimate when streamed; not billed when not
}

func says(text string) func(*openai.ChatCompletionNewParams) {
	return func(ask *openai.ChatCompletionNewParams) {
		ask.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}
	}
}

func withTools(text string, more ...func(*openai.ChatCompletionNewParams)) func(*openai.ChatCompletionNewParams) {
	tool := func(name string) openai.ChatCompletionToolUnionParam {
		return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:        name,
			Description: openai.String("Tells the " + name + "."),
			Parameters: openai.FunctionParameters{
				"type":                 "object",
				"properties":           map[string]any{"city": map[string]any{"type": "string"}},
				"additionalProperties": false,
			},
		})
	}
	return func(ask *openai.ChatCompletionNewParams) {
		says(text)(ask)
		ask.Tools = []openai.ChatCompletionToolUnionParam{tool("weather"), tool("time")}
		for _, f := range more {
			f(ask)
		}
	}
}

func showing(url string) func(*openai.ChatCompletionNewParams) {
	return func(ask *openai.ChatCompletionNewParams) {
		ask.Messages = []openai.ChatCompletionMessageParamUnion{
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("What is this?"),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}),
			}),
		}
	}
}

// called says whether exactly these calls were made, with these arguments.
func called(want ...string) func(said) bool {
	return func(s said) bool {
		var got []string
		ids := map[string]bool{}
		for _, c := range s.calls {
			ids[c.ID] = true
			var b bytes.Buffer
			if json.Compact(&b, []byte(c.Function.Arguments)) != nil {
				return false
			}
			got = append(got, c.Function.Name+b.String())
		}
		return s.finish == "tool_calls" && reflect.DeepEqual(got, want) && len(ids) == len(want)
	}
}

// String is what a failed test needs to see.
func (s said) String() string {
	var calls []string
	for _, c := range s.calls {
		calls = append(calls, c.Function.Name+c.Function.Arguments)
	}
	return fmt.Sprintf("finish %q, text %.80q, refusal %q, calls %q, usage %s, error %v", s.finish, s.text, s.refusal,
		calls, s.raw, s.err)
}

func answered(s said) bool {
	return s.err == nil && s.finish == "stop" && s.text != "" && len(s.calls) == 0
}

func failed(status int) func(said) bool {
	return func(s said) bool {
		var e *openai.Error
		return errors.As(s.err, &e) && e.StatusCode == status
	}
}

func cells(pictureURL, pictureData string) []cell {
	return []cell{
		{name: "text", ask: says("Hello, who are you?"), wants: answered},
		{name: "tools", ask: withTools(`!call weather {"city":"Rome"}`), wants: called(`weather{"city":"Rome"}`)},
		{name: "tools not called", ask: withTools("Just say something."), wants: answered},
		{
			name: "parallel tools",
			ask: withTools(
				"!call weather {\"city\":\"Rome\"}\n!call time {}\n!call weather {\"city\":\"Oslo \\\"é😀\\\"\"}"),
			wants: called(`weather{"city":"Rome"}`, `time{}`, `weather{"city":"Oslo \"é😀\""}`),
		},
		{
			name: "text before tools",
			ask:  withTools("!emu say\n!call time {}\n!call weather {\"city\":\"Rome\"}"),
			wants: func(s said) bool {
				return s.text != "" && called(`time{}`, `weather{"city":"Rome"}`)(s)
			},
		},
		{name: "tool without arguments", ask: withTools("!emu empty_args\n!call time"), wants: called(`time{}`)},
		{name: "forced tool",
			ask: withTools(`!call time {"city":"Rome"}`, func(ask *openai.ChatCompletionNewParams) {
				ask.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{
					Name: "time",
				})
			}),
			wants: called(`time{"city":"Rome"}`)},
		{name: "image data", ask: showing(pictureData), wants: answered},
		{name: "image URL", ask: showing(pictureURL), wants: answered},
		{name: "refusal", ask: says("!emu refusal\nSay it."), wants: func(s said) bool {
			return s.err == nil && (s.finish == "content_filter" || s.refusal != "")
		}},
		{
			name:  "safety",
			ask:   says("!emu safety words=40\nSay it."),
			wants: func(s said) bool { return s.err == nil && s.finish == "content_filter" },
		},
		{name: "length", ask: func(ask *openai.ChatCompletionNewParams) {
			says("!emu words=500\nSpeak.")(ask)
			ask.MaxCompletionTokens = openai.Int(60)
		}, wants: func(s said) bool { return s.err == nil && s.finish == "length" }},
		{name: "thinking", ask: says("!emu thinking\nThink."), wants: answered},
		{name: "byte by byte", ask: says("!emu split\nHé 😀."), wants: answered},
		{name: "a line of a megabyte", ask: says("!emu huge\nHello."), wants: answered},
		{name: "busy at first", ask: says("!emu status=503 fails=1\nHello."), wants: answered},
		{name: "error before", ask: says("!emu status=500\nHello."), wants: failed(http.StatusBadGateway), free: true},
		{name: "key refused", ask: says("!emu status=401\nHello."), wants: failed(http.StatusBadGateway), free: true},
		{
			name:  "request refused",
			ask:   says("!emu status=400\nHello."),
			wants: failed(http.StatusBadRequest),
			free:  true,
		},
		{name: "a page instead", ask: says("!emu html\nHello."), wants: failed(http.StatusBadGateway), free: true},
		{name: "a redirect", ask: says("!emu redirect\nHello."), wants: failed(http.StatusBadGateway), free: true},
		{
			name:  "error as the first event",
			ask:   says("!emu error=0\nHello."),
			wants: failed(http.StatusBadGateway),
			free:  true,
		},
		{
			name:  "error during",
			ask:   says("!emu error=5 words=200\nSpeak."),
			wants: func(s said) bool { return s.err != nil },
			cut:   true,
		},
		{
			name:  "cut",
			ask:   says("!emu cut=1500 words=200\nSpeak."),
			wants: func(s said) bool { return s.err != nil },
			cut:   true,
		},
		{
			name:  "ended without a word",
			ask:   says("!emu end=5 words=200\nSpeak."),
			wants: func(s said) bool { return s.err != nil },
			cut:   true,
		},
	}
}

// TestMatrix runs every cell at every provider, whole and streamed, by the
// official SDK against the real binary, and recomputes every ledger row.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 70, 50))); err != nil {
		t.Fatal(err)
	}
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(picture.Bytes())
	}))
	t.Cleanup(host.Close)
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c := sdk(p, p.Connection.AccessToken, option.WithMaxRetries(0))
		prices := offered(t, p)
		for _, name := range []string{"openai", "anthropic", "google"} {
			for _, cell := range cells(host.URL+"/p.png", data) {
				var charged []string
				for _, stream := range []bool{false, true} {
					where := fmt.Sprintf("%s, %s, stream %v", name, cell.name, stream)
					before := len(spends(t, p, p.Connection.ID))
					ask := openai.ChatCompletionNewParams{Model: models[name], MaxCompletionTokens: openai.Int(2000)}
					cell.ask(&ask)
					s := tell(t, c, ask, stream)
					if !cell.wants(s) {
						t.Errorf("%s: %v", where, s)
					}
					rows := spends(t, p, p.Connection.ID)
					rows = rows[:len(rows)-before]
					switch billed := !cell.free && (stream || !cell.cut); {
					case len(rows) != map[bool]int{true: 1}[billed]:
						t.Errorf("%s: %d rows", where, len(rows))
					case billed && cell.cut:
						if rows[0].Settlement != rules.Estimated || rows[0].UserChargeMC <= 0 ||
							rows[0].UserChargeMC > rows[0].HoldMC {
							t.Errorf("%s: row %+v", where, rows[0])
						}
					case billed:
						check(t, where, prices[models[name]], s, rows[0])
						charged = append(charged, fmt.Sprint(rows[0].UserChargeMC))
					}
				}
				if len(charged) == 2 && charged[0] != charged[1] {
					t.Errorf("%s, %s: %s whole, %s streamed", name, cell.name, charged[0], charged[1])
				}
			}
		}
	}, "--providers=emulator")
}

// TestToolRoundTrip gives what tools said back to every model, whole and
// streamed, in the same conversation.
func TestToolRoundTrip(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c := sdk(p, p.Connection.AccessToken, option.WithMaxRetries(0))
		for _, model := range []string{"gpt-6-luna", "gpt-6.2-sol", "claude-haiku-4-5", "claude-opus-5-5",
			"gemini-3.8-flash", "gemini-2.5-flash-lite"} {
			for _, stream := range []bool{false, true} {
				ask := openai.ChatCompletionNewParams{Model: model, MaxCompletionTokens: openai.Int(2000)}
				withTools("!emu thinking\n!call weather {\"city\":\"Rome\"}\n!call time {}\n!step\n!call weather {\"city\":\"Oslo\"}")(&ask)
				for step, want := range []func(said) bool{called(`weather{"city":"Rome"}`, `time{}`),
					called(`weather{"city":"Oslo"}`), answered} {
					s := tell(t, c, ask, stream)
					if s.err != nil || !want(s) {
						t.Errorf("%s, stream %v, step %d: %v", model, stream, step, s)
						break
					}
					ask.Messages = append(ask.Messages, again(t, s.message))
					for _, call := range s.calls {
						ask.Messages = append(ask.Messages, openai.ToolMessage("fine", call.ID))
					}
				}
			}
		}
	}, "--providers=emulator")
}

// again is a message as clients send it back: with all its members.
func again(t *testing.T, m openai.ChatCompletionMessage) openai.ChatCompletionMessageParamUnion {
	t.Helper()
	raw := m.RawJSON()
	if raw == "" { // the SDK put it together from chunks, and dropped what it does not know
		return m.ToParam()
	}
	var param openai.ChatCompletionAssistantMessageParam
	if err := json.Unmarshal([]byte(raw), &param); err != nil {
		t.Fatal(err)
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &param}
}

// offered are the listed prices, in US dollars per thousand tokens.
func offered(t *testing.T, p *servertest.Process) map[string]map[string]string {
	t.Helper()
	var list []map[string]any
	if status := send(t, p, "GET", "/v1/models", "", "", &list); status != http.StatusOK {
		t.Fatalf("GET /v1/models: %d", status)
	}
	prices := map[string]map[string]string{}
	for _, m := range list {
		one := map[string]string{}
		for name, v := range m {
			if text, ok := v.(string); ok && strings.HasSuffix(name, "_per_1k_usd") {
				one[name] = text
			}
		}
		prices[m["id"].(string)] = one
	}
	return prices
}

// check recomputes a row from the usage that the client was told and the listed
// prices, by rational numbers.
func check(t *testing.T, where string, prices map[string]string, s said, row rules.Entry) {
	t.Helper()
	cached := s.usage.PromptTokensDetails.CachedTokens
	written := read[struct {
		Details struct {
			Written int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
	}](t, s.raw).Details.Written
	checkCharge(t, where, prices, map[string]int64{
		"input_cost_per_1k_usd":        s.usage.PromptTokens - cached - written,
		"cached_input_cost_per_1k_usd": cached,
		"cache_write_cost_per_1k_usd":  written,
		"output_cost_per_1k_usd":       s.usage.CompletionTokens,
	}, row)
}

// checkCharge recomputes a row from token counts by the names of their listed prices.
func checkCharge(t *testing.T, where string, prices map[string]string, used map[string]int64, row rules.Entry) {
	t.Helper()
	c := computeCharge(t, prices, used, 20)
	if row.Settlement != rules.Settled || row.Amounts != c {
		t.Errorf("%s: computed %+v of %v, the ledger has %+v", where, c, used, row)
	}
}

// computeCharge computes the amounts of a call from token counts by the names of their listed prices and the app's
// margin in percent, by rational numbers.
func computeCharge(t *testing.T, prices map[string]string, used map[string]int64, percent int64) (c rules.Amounts) {
	t.Helper()
	cost := new(big.Rat)
	for class, n := range used {
		price, ok := new(big.Rat).SetString(prices[class])
		if !ok {
			t.Fatalf("no price %s in %v", class, prices)
		}
		cost.Add(cost, price.Mul(price, big.NewRat(n*100_000_000, 1000)))
	}
	provider := ceil(cost)
	margin := new(big.Rat).Mul(new(big.Rat).SetInt64(provider), big.NewRat(percent, 100))
	margin.Add(margin, big.NewRat(1, 2))
	c.ProviderCostMC = money.MC(provider)
	c.SvcFeeMC = money.MC(ceil(new(big.Rat).Mul(new(big.Rat).SetInt64(provider), big.NewRat(5, 100))))
	c.DevMarginMC = money.MC(new(big.Int).Quo(margin.Num(), margin.Denom()).Int64())
	c.UserChargeMC = c.ProviderCostMC + c.SvcFeeMC + c.DevMarginMC
	return c
}

func ceil(r *big.Rat) int64 {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return n.Quo(n, r.Denom()).Int64()
}
