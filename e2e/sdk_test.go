// Package e2e drives Purser from outside with heavy clients: the official OpenAI
// SDKs and a real browser. It is a module of its own, so that the product does
// not depend on them.
package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"purser/internal/db"
	"purser/internal/db/dbtest"
	"purser/internal/server/servertest"
)

func eachNode(t *testing.T, f func(t *testing.T, p *servertest.Process)) {
	t.Helper()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := servertest.Start(t, dbtest.URL(t, e))
			f(t, p)
			p.Verify()
		})
	}
}

var weather = openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
	Name: "weather", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{}},
})

// TestGoSDK calls the drop-in route by the official SDK: whole, streamed, with
// tools, and with errors that it understands.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		client := openai.NewClient(option.WithBaseURL(p.BaseURL+"/v1"), option.WithAPIKey(p.Connection.AccessToken), option.WithMaxRetries(0))
		ask := openai.ChatCompletionNewParams{Model: "gpt-5.4-mini", MaxCompletionTokens: openai.Int(100), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")}}

		whole, err := client.Chat.Completions.New(ctx, ask)
		if err != nil || whole.Choices[0].Message.Content == "" || whole.Usage.TotalTokens == 0 || !strings.Contains(whole.RawJSON(), `"user_charge_mc"`) {
			t.Fatalf("%v %s", err, whole.RawJSON())
		}

		streamed := ask
		streamed.StreamOptions.IncludeUsage = openai.Bool(true)
		stream, sum, last := client.Chat.Completions.NewStreaming(ctx, streamed), openai.ChatCompletionAccumulator{}, ""
		for stream.Next() {
			if !sum.AddChunk(stream.Current()) {
				t.Errorf("the SDK does not take the chunk %s", stream.Current().RawJSON())
			}
			last = stream.Current().RawJSON()
		}
		if err := stream.Err(); err != nil || sum.Choices[0].Message.Content != whole.Choices[0].Message.Content || sum.Usage.TotalTokens != whole.Usage.TotalTokens || !strings.Contains(last, `"svc_final"`) {
			t.Errorf("streamed %q (%v), whole %q; last %s", sum.Choices[0].Message.Content, err, whole.Choices[0].Message.Content, last)
		}

		ask.Tools = []openai.ChatCompletionToolUnionParam{weather}
		called, err := client.Chat.Completions.New(ctx, ask)
		if err != nil || called.Choices[0].FinishReason != "tool_calls" || len(called.Choices[0].Message.ToolCalls) != 1 {
			t.Fatalf("%v %s", err, called.RawJSON())
		}
		call := called.Choices[0].Message.ToolCalls[0]
		ask.Messages = append(ask.Messages, called.Choices[0].Message.ToParam(), openai.ToolMessage("sunny", call.ID))
		answered, err := client.Chat.Completions.New(ctx, ask)
		if err != nil || answered.Choices[0].FinishReason != "stop" || call.Function.Arguments != "{}" {
			t.Errorf("%v %s", err, answered.RawJSON())
		}

		var refused *openai.Error
		ask.Model = "gpt-0"
		if _, err := client.Chat.Completions.New(ctx, ask); !errors.As(err, &refused) || refused.StatusCode != 400 || refused.Code != "invalid_request" {
			t.Errorf("unknown model: %v", err)
		}
		client = openai.NewClient(option.WithBaseURL(p.BaseURL+"/v1"), option.WithAPIKey("wrong"), option.WithMaxRetries(0))
		if _, err := client.Chat.Completions.New(ctx, ask); !errors.As(err, &refused) || refused.StatusCode != 401 || refused.Code != "unauthorized" {
			t.Errorf("wrong key: %v", err)
		}
	})
}

// TestNodeSDK runs node/client.mjs, which does the same by the official SDK for Node.
func TestNodeSDK(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("node/node_modules/openai"); err != nil {
		install := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--silent")
		install.Dir = "node"
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v: %s", err, out)
		}
	}
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		node := exec.CommandContext(ctx, "node", "client.mjs", p.BaseURL+"/v1", p.Connection.AccessToken)
		node.Dir = "node"
		if out, err := node.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%v: %s", err, out)
		}
	})
}
