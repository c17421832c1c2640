package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	claudeoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/servertest"
	purser "github.com/purserhq/purser/sdk/go"
)

const model = "gpt-5.4-mini"

func sdk(p *servertest.Process, token string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(p.BaseURL + "/v1"),
		option.WithAPIKey(token)}, more...)...)
}

func asking(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               model,
		MaxCompletionTokens: openai.Int(100),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

// bill is what the SDK passes on of an answer's svc block, streamed or not.
type bill struct {
	UserChargeMC money.MC `json:"user_charge_mc"`
	Settlement   string   `json:"settlement"`
}

// streamed reads a stream to its end and returns the text, and the bill if asked
// for with include_usage.
func streamed(t *testing.T, c openai.Client,
	ask openai.ChatCompletionNewParams) (sum openai.ChatCompletionAccumulator, last string) {
	t.Helper()
	stream := c.Chat.Completions.NewStreaming(soon(t), ask)
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			t.Errorf("the SDK does not take the chunk %s", stream.Current().RawJSON())
		}
		last = stream.Current().RawJSON()
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return sum, last
}

// TestGoSDK calls the drop-in route by the official SDK, whole and streamed.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c, ask := sdk(p, p.Connection.AccessToken), asking("Hello")
		whole, err := c.Chat.Completions.New(soon(t), ask)
		if err != nil {
			t.Fatal(err)
		}
		said, ours := whole.Choices[0].Message.Content, read[struct{ SVC bill }](t, whole.RawJSON()).SVC
		row := spends(t, p, p.Connection.ID)[0]
		if said == "" || whole.Usage.TotalTokens == 0 || ours.UserChargeMC == 0 ||
			ours.UserChargeMC != row.UserChargeMC {
			t.Errorf("answered %s, in the ledger %+v", whole.RawJSON(), row)
		}

		silent, last := streamed(t, c, ask)
		if silent.Choices[0].Message.Content != said || strings.Contains(last, "svc") {
			t.Errorf("streamed %q, whole %q; last chunk %s", silent.Choices[0].Message.Content, said, last)
		}
		ask.StreamOptions.IncludeUsage = openai.Bool(true)
		told, last := streamed(t, c, ask)
		final := read[struct {
			Final struct {
				SVC        bill
				Settlement string
			} `json:"svc_final"`
		}](t, last).Final
		if told.Choices[0].Message.Content != said || told.Usage.TotalTokens != whole.Usage.TotalTokens ||
			final.SVC.UserChargeMC != ours.UserChargeMC || final.Settlement != "settled" {
			t.Errorf("streamed %q with %d tokens, last chunk %s", told.Choices[0].Message.Content,
				told.Usage.TotalTokens, last)
		}
		if rows := spends(t, p, p.Connection.ID); len(rows) != 3 || rows[0].UserChargeMC != rows[2].UserChargeMC {
			t.Errorf("three calls made %d rows", len(rows))
		}
	})
}

// TestGoSDKTools has tools called, whole and streamed, and tells what they said.
func TestGoSDKTools(t *testing.T) {
	t.Parallel()
	tool := func(name string) openai.ChatCompletionToolUnionParam {
		return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:       name,
			Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{}},
		})
	}
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c, ask := sdk(p, p.Connection.AccessToken), asking("What is it like outside?")
		ask.Tools = []openai.ChatCompletionToolUnionParam{tool("weather"), tool("time")}
		forced := ask
		forced.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{
			Name: "time",
		})
		for name, ask := range map[string]openai.ChatCompletionNewParams{"weather": ask, "time": forced} {
			whole, err := c.Chat.Completions.New(soon(t), ask)
			if err != nil {
				t.Fatal(err)
			}
			sum, _ := streamed(t, c, ask)
			for how, choice := range map[string]openai.ChatCompletionChoice{
				"whole":    whole.Choices[0],
				"streamed": sum.Choices[0],
			} {
				calls := choice.Message.ToolCalls
				if choice.FinishReason != "tool_calls" || len(calls) != 1 || calls[0].Function.Name != name ||
					calls[0].Function.Arguments != "{}" {
					t.Errorf("%s: %s: %s %+v", name, how, choice.FinishReason, calls)
					continue
				}
				back := ask
				back.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
				back.Messages = append(ask.Messages[:1:1], choice.Message.ToParam(),
					openai.ToolMessage("sunny", calls[0].ID))
				if answer, err := c.Chat.Completions.New(soon(t), back); err != nil ||
					answer.Choices[0].FinishReason != "stop" || answer.Choices[0].Message.Content == "" {
					t.Errorf("%s: %s: the round trip ended with %v", name, how, err)
				}
			}
		}
	})
}

// A flaky network loses the first answer: fault does what it likes with it.
type flaky struct {
	sent  atomic.Int64
	fault func(*http.Request) (*http.Response, error)
}

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.sent.Add(1) == 1 && f.fault != nil {
		return f.fault(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

var errLost = errors.New("connection reset by peer")

const whileItRuns = "the connection breaks while the call runs"

// faults of the network between an SDK and us, by name.
var faults = map[string]func(*http.Request) (*http.Response, error){
	"the answer is lost": func(r *http.Request) (*http.Response, error) {
		if resp, err := http.DefaultTransport.RoundTrip(r); err != nil {
			return nil, err
		} else if err := resp.Body.Close(); err != nil {
			return nil, err
		}
		return nil, errLost
	},
	"a proxy in between fails": func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return &http.Response{
			StatusCode: http.StatusBadGateway,
			Header:     http.Header{},
			Body:       http.NoBody,
			Request:    r,
		}, resp.Body.Close()
	},
	whileItRuns: func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
		defer cancel()
		if resp, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx)); err == nil {
			return nil, errors.Join(errors.New("the call was meant to last longer"), resp.Body.Close())
		}
		return nil, errLost
	},
}

// TestGoSDKRetries loses answers on their way. The SDK asks again by itself, gets
// the answer, and its user pays once.
func TestGoSDKRetries(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		for name, fault := range faults {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, stream=%t", name, stream), func(t *testing.T) {
					t.Parallel()
					token, network := grant(t, p, "5", ""), &flaky{fault: fault}
					c, ask := sdk(p, token.AccessToken, option.WithHTTPClient(&http.Client{Transport: network})),
						asking("Hello")
					if name == whileItRuns {
						ask = asking("Hello\n!mock delay=1s")
					}
					said := ""
					if stream {
						sum, _ := streamed(t, c, ask)
						said = sum.Choices[0].Message.Content
					} else if whole, err := c.Chat.Completions.New(soon(t), ask); err != nil {
						t.Fatal(err)
					} else {
						said = whole.Choices[0].Message.Content
					}
					settled(t, p, token.AccessToken)
					if rows := spends(t, p, token.Extra("connection_id").(string)); said == "" ||
						network.sent.Load() != 2 || len(rows) != 1 {
						t.Errorf("sent %d times, answered %q, billed %d times", network.sent.Load(), said, len(rows))
					}
				})
			}
		}
	})
}

// TestGoSDKErrors has every kind of refusal arrive as the SDK's own error, and
// none that stays true is tried again.
func TestGoSDKErrors(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		features, cheap, rare := "/v1/apps/"+p.App.ID+"/features", "cheap-"+servertest.UUID()[:8],
			"rare-"+servertest.UUID()[:8]
		manage(t, p, "POST", features, `{"slug":"`+cheap+
			`","display_name":"Cheap","description":"Costs nothing.","max_cost_per_call_mc":1}`, nil)
		manage(t, p, "POST", features, `{"slug":"`+rare+
			`","display_name":"Rare","description":"Once a minute.","rate_limit":1}`, nil)
		poor, slow, revoked := grant(t, p, "0.0001", ""), grant(t, p, "5", "0.0001"), grant(t, p, "5", "")
		manage(t, p, "POST", "/v1/connections/"+revoked.Extra("connection_id").(string)+"/revoke", "", nil)

		good, key := p.Connection.AccessToken, option.WithHeader("Idempotency-Key", servertest.UUID())
		feature := func(slug string) option.RequestOption { return option.WithHeader("X-Svc-Feature", slug) }
		for _, before := range []option.RequestOption{key, feature(rare)} {
			if _, err := ask(t, p, good, model, "Hello", before); err != nil {
				t.Fatal(err)
			}
		}
		billed := len(spends(t, p, p.Connection.ID))
		for _, tt := range []struct {
			token, model, text string
			more               []option.RequestOption
			status, attempts   int
			code               string
		}{
			{"wrong", model, "Hello", nil, 401, 1, "unauthorized"},
			{good, "gpt-0", "Hello", nil, 400, 1, "invalid_request"},
			{good, model, "", nil, 400, 1, "invalid_request"},
			{poor.AccessToken, model, "Hello", nil, 402, 1, "allocation_exhausted"},
			{good, model, "Hello", []option.RequestOption{feature(cheap)}, 402, 1, "feature_cost_exceeded"},
			{revoked.AccessToken, model, "Hello", nil, 403, 1, "connection_revoked"},
			{good, model, "Something else", []option.RequestOption{key}, 409, 1, "idempotency_key_reused"},
			{good, model, "Hello", []option.RequestOption{feature(rare), option.WithMaxRetries(0)}, 429, 1,
				"rate_limited"},
			{slow.AccessToken, model, "Hello", []option.RequestOption{option.WithMaxRetries(0)}, 429, 1,
				"daily_limit_reached"},
			{good, model, "!mock status=500", nil, 502, 3, "provider_error"},
		} {
			attempts, err := ask(t, p, tt.token, tt.model, tt.text, tt.more...)
			var refused *openai.Error
			if !errors.As(err, &refused) || refused.StatusCode != tt.status || refused.Code != tt.code ||
				refused.Message == "" || refused.Type == "" {
				t.Errorf("want %d %s, got %v", tt.status, tt.code, err)
			} else if attempts != tt.attempts {
				t.Errorf("%s: tried %d times, want %d", tt.code, attempts, tt.attempts)
			} else if tt.code == "rate_limited" && refused.Response.Header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", tt.code)
			}
		}
		if now := len(spends(t, p, p.Connection.ID)); now != billed {
			t.Errorf("refusals were billed: %d rows", now-billed)
		}
	})
}

// ask makes one call and tells how often the SDK sent it.
func ask(t *testing.T, p *servertest.Process, token, model, text string,
	more ...option.RequestOption) (attempts int, err error) {
	t.Helper()
	network := &flaky{}
	params := asking(text)
	params.Model = model
	if text == "" {
		params.Messages = []openai.ChatCompletionMessageParamUnion{}
	}
	c := sdk(p, token,
		append([]option.RequestOption{option.WithHTTPClient(&http.Client{Transport: network})}, more...)...)
	_, err = c.Chat.Completions.New(soon(t), params)
	return int(network.sent.Load()), err
}

// TestGoSDKAborts leaves in the middle of a stream: the call is settled as one
// that was read to its end.
func TestGoSDKAborts(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c, ask := sdk(p, p.Connection.AccessToken), asking("Tell me a story.\n!mock words=40 pace=20ms")
		streamed(t, c, ask)
		stays := spends(t, p, p.Connection.ID)[0]

		ctx, cancel := context.WithCancel(soon(t))
		stream := c.Chat.Completions.NewStreaming(ctx, ask)
		for range 3 {
			if !stream.Next() {
				t.Fatal(stream.Err())
			}
		}
		cancel()
		if stream.Next(); !errors.Is(stream.Err(), context.Canceled) {
			t.Errorf("the stream ended with %v", stream.Err())
		}
		rows := spends(t, p, p.Connection.ID)
		for ctx := soon(t); len(rows) < 2 && ctx.Err() == nil; rows = spends(t, p, p.Connection.ID) {
			settled(t, p, p.Connection.AccessToken)
		}
		if len(rows) != 2 || rows[0].Settlement != rules.Settled || rows[0].Amounts != stays.Amounts ||
			rows[0].Usage != stays.Usage {
			t.Errorf("%d rows; left: %+v, stayed: %+v", len(rows), rows[0], stays)
		}
	})
}

// TestGoSDKTransport has the official SDKs sign their calls by Purser's own: with a token that has expired, which is
// refreshed once, and with one that the service no longer accepts.
func TestGoSDKTransport(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		first, store := grant(t, p, "5", ""), purser.NewMemoryTokenStore()
		id, _ := first.Extra("connection_id").(string)
		tokens := purser.Tokens{
			ConnectionID: id,
			AccessToken:  first.AccessToken,
			RefreshToken: first.RefreshToken,
			ExpiresAt:    time.Now(),
		}
		if err := store.Save(t.Context(), id, tokens); err != nil {
			t.Fatal(err)
		}
		connection := purser.New(purser.Options{
			BaseURL:      p.BaseURL,
			ClientID:     p.App.ClientID,
			ClientSecret: p.App.ClientSecret,
			Tokens:       store,
		}).Connection(id)
		chat := func(how string) {
			t.Helper()
			c := openai.NewClient(option.WithBaseURL(connection.OpenAIBaseURL()), option.WithAPIKey("unused"),
				option.WithHTTPClient(connection.HTTPClient()))
			answer, err := c.Chat.Completions.New(soon(t), asking("Hello"))
			if err != nil || answer.Choices[0].Message.Content == "" {
				t.Fatalf("%s: %v", how, err)
			}
		}
		chat("expired")
		refreshed, err := store.Load(t.Context(), id)
		if err != nil || refreshed.AccessToken == first.AccessToken || refreshed.RefreshToken == first.RefreshToken {
			t.Errorf("not refreshed: %v", err)
		}
		refreshed.AccessToken = "rejected"
		if err := store.Save(t.Context(), id, refreshed); err != nil {
			t.Fatal(err)
		}
		chat("rejected")

		c := anthropic.NewClient(claudeoption.WithBaseURL(connection.AnthropicBaseURL()),
			claudeoption.WithAPIKey("unused"), claudeoption.WithHTTPClient(connection.HTTPClient()))
		message, err := c.Messages.New(soon(t), anthropic.MessageNewParams{
			Model:     model,
			MaxTokens: 100,
			Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))},
		})
		if err != nil || len(message.Content) == 0 {
			t.Fatal(err)
		}
		if rows := spends(t, p, id); len(rows) != 3 {
			t.Errorf("three calls made %d rows", len(rows))
		}
	})
}
