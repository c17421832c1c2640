package e2e

import (
	"fmt"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	claudeoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	goopenai "github.com/sashabaranov/go-openai"
	"google.golang.org/genai"
)

// The clients for Go, as their documentation begins.

// tellFine is what the tool of these clients says.
func tellFine(t *testing.T, arguments string) string {
	t.Helper()
	return "It is fine in " + read[struct{ City string }](t, arguments).City + "."
}

// runGoOpenAI calls by the library github.com/sashabaranov/go-openai, which knows Chat Completions alone.
func runGoOpenAI(t *testing.T, at place) string {
	t.Helper()
	config := goopenai.DefaultConfig(at.token)
	config.BaseURL = at.url + "/openai/v1"
	client := goopenai.NewClientWithConfig(config)
	ask := goopenai.ChatCompletionRequest{
		Model:           at.model,
		ReasoningEffort: "low",
		Messages:        []goopenai.ChatCompletionMessage{{Role: goopenai.ChatMessageRoleUser, Content: at.task}},
		Tools: []goopenai.Tool{{
			Type: goopenai.ToolTypeFunction,
			Function: &goopenai.FunctionDefinition{
				Name:        "weather",
				Description: "Tells the weather.",
				Parameters:  read[map[string]any](t, weather),
			},
		}},
	}
	for {
		resp, err := client.CreateChatCompletion(soon(t), ask)
		if err != nil {
			t.Errorf("go-openai with %s: %v", at.model, err)
			return ""
		}
		message := resp.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content
		}
		ask.Messages = append(ask.Messages, message)
		for _, call := range message.ToolCalls {
			ask.Messages = append(ask.Messages, goopenai.ChatCompletionMessage{
				Role:       goopenai.ChatMessageRoleTool,
				Content:    tellFine(t, call.Function.Arguments),
				ToolCallID: call.ID,
			})
		}
	}
}

// runOpenAIGoLoop calls by OpenAI's SDK, whose ToParam keeps nothing of a message that it does not know.
func runOpenAIGoLoop(t *testing.T, at place) string {
	t.Helper()
	client := openai.NewClient(option.WithBaseURL(at.url+"/openai/v1"), option.WithAPIKey(at.token))
	ask := openai.ChatCompletionNewParams{
		Model:           at.model,
		ReasoningEffort: shared.ReasoningEffortLow,
		Messages:        []openai.ChatCompletionMessageParamUnion{openai.UserMessage(at.task)},
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
				Name:        "weather",
				Description: openai.String("Tells the weather."),
				Parameters:  read[map[string]any](t, weather),
			}),
		},
	}
	for {
		completion, err := client.Chat.Completions.New(soon(t), ask)
		if err != nil {
			t.Errorf("openai-go with %s: %v", at.model, err)
			return ""
		}
		message := completion.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content
		}
		ask.Messages = append(ask.Messages, message.ToParam())
		for _, call := range message.ToolCalls {
			ask.Messages = append(ask.Messages,
				openai.ToolMessage(tellFine(t, call.Function.Arguments), call.ID))
		}
	}
}

// runAnthropicGoLoop calls by Anthropic's SDK with interleaved thinking, streamed.
func runAnthropicGoLoop(t *testing.T, at place) string {
	t.Helper()
	client := anthropic.NewClient(claudeoption.WithBaseURL(at.url+"/anthropic"), claudeoption.WithAPIKey(at.token))
	schema := read[map[string]any](t, weather)
	tool := anthropic.BetaToolUnionParamOfTool(anthropic.BetaToolInputSchemaParam{Properties: schema["properties"]},
		"weather")
	ask := anthropic.BetaMessageNewParams{
		Model:     anthropic.Model(at.model),
		MaxTokens: 16000,
		Thinking:  anthropic.BetaThinkingConfigParamOfEnabled(10000),
		Betas:     []anthropic.AnthropicBeta{anthropic.AnthropicBetaInterleavedThinking2025_05_14},
		Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(at.task))},
		Tools:     []anthropic.BetaToolUnionParam{tool},
	}
	for {
		stream := client.Beta.Messages.NewStreaming(soon(t), ask)
		var message anthropic.BetaMessage
		for stream.Next() {
			if err := message.Accumulate(stream.Current()); err != nil {
				t.Errorf("anthropic-sdk-go with %s: %v", at.model, err)
				return ""
			}
		}
		if stream.Err() != nil {
			t.Errorf("anthropic-sdk-go with %s: %v", at.model, stream.Err())
			return ""
		}
		ask.Messages = append(ask.Messages, message.ToParam())
		var results []anthropic.BetaContentBlockParamUnion
		said := ""
		for _, block := range message.Content {
			said += block.Text
			if block.Type == "tool_use" {
				results = append(results, anthropic.NewBetaToolResultBlock(block.ID,
					tellFine(t, string(block.Input)), false))
			}
		}
		if len(results) == 0 {
			return said
		}
		ask.Messages = append(ask.Messages, anthropic.NewBetaUserMessage(results...))
	}
}

// runGenAIGoLoop calls by Google's SDK, as a chat.
func runGenAIGoLoop(t *testing.T, at place) string {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey:      at.token,
		Backend:     genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: at.url + "/google"},
	})
	if err != nil {
		t.Fatal(err)
	}
	chat, err := client.Chats.Create(t.Context(), at.model, &genai.GenerateContentConfig{
		ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true},
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name:                 "weather",
			Description:          "Tells the weather.",
			ParametersJsonSchema: read[map[string]any](t, weather),
		}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := []genai.Part{{Text: at.task}}
	for {
		resp, err := chat.SendMessage(soon(t), parts...)
		if err != nil {
			t.Errorf("genai with %s: %v", at.model, err)
			return ""
		}
		parts = nil
		for _, call := range resp.FunctionCalls() {
			fine := fmt.Sprintf("It is fine in %v.", call.Args["city"])
			parts = append(parts, *genai.NewPartFromFunctionResponse(call.Name, map[string]any{"output": fine}))
		}
		if len(parts) == 0 {
			return resp.Text()
		}
	}
}
