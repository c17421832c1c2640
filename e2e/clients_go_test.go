package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	claudeoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// The official SDKs for Go, as clients of the jobs in clients_test.go.

const (
	toolResult = "fine"
	forecast   = `{"type":"object","properties":{"city":{"type":"string"},"degrees":{"type":"integer"}},` +
		`"required":["city","degrees"],"additionalProperties":false}`
	noArguments = `{"type":"object","properties":{}}`
)

// offeredTools are the tools that a job may offer: name, description and schema.
var offeredTools = [][3]string{{"weather", "Tells the weather.", weather}, {"time", "Tells the time.", noArguments}}

// runGo bounds each job by five minutes, and puts what fails into its outcome.
func runGo(t *testing.T, apis map[string]func(context.Context, *testing.T, job, *outcome) error) func(job) outcome {
	t.Helper()
	return func(j job) (o outcome) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := apis[j.API](ctx, t, j, &o); err != nil {
			o.Error = &clientError{Kind: reflect.TypeOf(err).String(), Message: err.Error()}
			if refused, ok := errors.AsType[*openai.Error](err); ok {
				o.Error.Status, o.Error.Code = refused.StatusCode, refused.Code
			}
			if refused, ok := errors.AsType[*anthropic.Error](err); ok {
				o.Error.Status, o.Error.Code = refused.StatusCode, string(refused.Type())
			}
		}
		return o
	}
}

func runOpenAIGo(t *testing.T) func(job) outcome {
	t.Helper()
	return runGo(t, map[string]func(context.Context, *testing.T, job, *outcome) error{
		"chat": chatByGo, "responses": respondByGo, "models": listByOpenAIGo,
	})
}

func runAnthropicGo(t *testing.T) func(job) outcome {
	t.Helper()
	return runGo(t, map[string]func(context.Context, *testing.T, job, *outcome) error{
		"messages": messageByGo, "models": listByAnthropicGo, "count": countByGo,
	})
}

func openAIClient(j job) openai.Client {
	options := []option.RequestOption{option.WithBaseURL(j.BaseURL), option.WithAPIKey(j.APIKey)}
	if j.Once {
		options = append(options, option.WithMaxRetries(0))
	}
	return openai.NewClient(options...)
}

func anthropicClient(j job) anthropic.Client {
	options := []claudeoption.RequestOption{claudeoption.WithBaseURL(j.BaseURL), claudeoption.WithAPIKey(j.APIKey)}
	if j.Once {
		options = append(options, claudeoption.WithMaxRetries(0))
	}
	return anthropic.NewClient(options...)
}

// chatByGo has a conversation by Chat Completions.
func chatByGo(ctx context.Context, t *testing.T, j job, o *outcome) error {
	t.Helper()
	c := openAIClient(j)
	ask := askByChat(t, j)
	for o.Rounds < j.Rounds {
		var (
			made openai.ChatCompletion
			bill struct {
				SVC struct {
					UserChargeMC int64 `json:"user_charge_mc"`
				}
				Final struct {
					SVC struct {
						UserChargeMC int64 `json:"user_charge_mc"`
					}
				} `json:"svc_final"`
			}
		)
		if j.Stream {
			var sum openai.ChatCompletionAccumulator
			s, last := c.Chat.Completions.NewStreaming(ctx, ask), ""
			for s.Next() {
				last = s.Current().RawJSON()
				if !sum.AddChunk(s.Current()) {
					t.Errorf("the SDK does not take the chunk %s", last)
				}
				for _, choice := range s.Current().Choices {
					o.Text += choice.Delta.Content
				}
			}
			if s.Err() != nil {
				return s.Err()
			}
			if made = sum.ChatCompletion; json.Unmarshal([]byte(last), &bill) != nil {
				t.Errorf("the last chunk is %s", last)
			}
			o.Charged = append(o.Charged, bill.Final.SVC.UserChargeMC)
		} else {
			whole, err := c.Chat.Completions.New(ctx, ask)
			if err != nil {
				return err
			}
			if made = *whole; json.Unmarshal([]byte(whole.RawJSON()), &bill) != nil {
				t.Errorf("answered %s", whole.RawJSON())
			}
			o.Text += made.Choices[0].Message.Content
			o.Charged = append(o.Charged, bill.SVC.UserChargeMC)
		}
		message := made.Choices[0].Message
		o.Rounds++
		o.Input, o.Output = o.Input+made.Usage.PromptTokens, o.Output+made.Usage.CompletionTokens
		o.Finish = named(made.Choices[0].FinishReason, "content_filter", "refusal", "tool_calls", "calls")
		if message.Refusal != "" {
			o.Finish = "refusal"
		}
		if j.Schema {
			o.Object = read[map[string]any](t, message.Content)
		}
		if len(message.ToolCalls) == 0 {
			break
		}
		ask.Messages = append(ask.Messages, again(t, message))
		for _, call := range message.ToolCalls {
			args := read[map[string]any](t, call.Function.Arguments)
			o.Calls = append(o.Calls, toolCall{call.Function.Name, args})
			ask.Messages = append(ask.Messages, openai.ToolMessage(toolResult, call.ID))
		}
	}
	return nil
}

func askByChat(t *testing.T, j job) openai.ChatCompletionNewParams {
	t.Helper()
	parts := []openai.ChatCompletionContentPartUnionParam{openai.TextContentPart(j.Text)}
	if j.Image != "" {
		parts = append(parts,
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: j.Image}))
	}
	ask := openai.ChatCompletionNewParams{
		Model:               j.Model,
		MaxCompletionTokens: openai.Int(j.MaxTokens),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(parts)},
	}
	if j.Stream {
		ask.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	if j.Tools {
		for _, tool := range offeredTools {
			ask.Tools = append(ask.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
				Name:        tool[0],
				Description: openai.String(tool[1]),
				Parameters:  read[map[string]any](t, tool[2]),
			}))
		}
	}
	if j.Schema {
		ask.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
				Name:   "forecast",
				Strict: openai.Bool(true),
				Schema: read[map[string]any](t, forecast),
			},
		}
	}
	return ask
}

// respondByGo has a conversation by Responses.
func respondByGo(ctx context.Context, t *testing.T, j job, o *outcome) error {
	t.Helper()
	c := openAIClient(j)
	ask := askByResponses(t, j)
	for o.Rounds < j.Rounds {
		made, err := respondOnce(ctx, c, j, ask, o)
		if err != nil {
			return err
		}
		o.Rounds++
		o.Input, o.Output = o.Input+made.Usage.InputTokens, o.Output+made.Usage.OutputTokens
		var bill struct {
			SVC struct {
				UserChargeMC int64 `json:"user_charge_mc"`
			} `json:"svc"`
		}
		if err := json.Unmarshal([]byte(made.RawJSON()), &bill); err == nil && bill.SVC.UserChargeMC > 0 {
			o.Charged = append(o.Charged, bill.SVC.UserChargeMC)
		}
		o.Finish = named(made.IncompleteDetails.Reason, "max_output_tokens", "length", "content_filter", "refusal")
		called := false
		items := &ask.Input.OfInputItemList
		for _, item := range made.Output {
			var again responses.ResponseInputItemUnionParam
			if err := json.Unmarshal([]byte(item.RawJSON()), &again); err != nil {
				return err
			}
			*items = append(*items, again)
		}
		for _, item := range made.Output {
			for _, part := range item.Content {
				if part.Type == "refusal" {
					o.Finish = "refusal"
				}
			}
			if item.Type == "function_call" {
				called = true
				call := item.AsFunctionCall()
				o.Calls = append(o.Calls, toolCall{call.Name, read[map[string]any](t, call.Arguments)})
				*items = append(*items, responses.ResponseInputItemUnionParam{
					OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
						CallID: openai.String(call.CallID),
						Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{
							OfString: openai.String(toolResult),
						},
					},
				})
			}
		}
		if !called {
			if o.Finish == "" {
				o.Finish = "stop"
			}
			if j.Schema {
				o.Object = read[map[string]any](t, made.OutputText())
			}
			break
		}
		o.Finish = "calls"
	}
	return nil
}

// respondOnce makes one call, whole or streamed, and adds its text to the outcome.
func respondOnce(ctx context.Context, c openai.Client, j job, ask responses.ResponseNewParams,
	o *outcome) (made responses.Response, err error) {
	if !j.Stream {
		whole, err := c.Responses.New(ctx, ask)
		if err != nil {
			return made, err
		}
		o.Text += whole.OutputText()
		return *whole, nil
	}
	s := c.Responses.NewStreaming(ctx, ask)
	for s.Next() {
		switch e := s.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			o.Text += e.Delta
		case responses.ResponseCompletedEvent:
			made = e.Response
		case responses.ResponseIncompleteEvent:
			made = e.Response
		case responses.ResponseFailedEvent:
			return made, errors.New(e.Response.Error.Message)
		case responses.ResponseErrorEvent:
			return made, errors.New(e.Message)
		}
	}
	return made, s.Err()
}

func askByResponses(t *testing.T, j job) responses.ResponseNewParams {
	t.Helper()
	parts := responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText(j.Text)}
	if j.Image != "" {
		parts = append(parts, responses.ResponseInputContentUnionParam{
			OfInputImage: &responses.ResponseInputImageParam{Detail: "auto", ImageURL: openai.String(j.Image)},
		})
	}
	ask := responses.ResponseNewParams{
		Model:           j.Model,
		MaxOutputTokens: openai.Int(j.MaxTokens),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage(parts, "user"),
		}},
	}
	if j.Tools {
		for _, tool := range offeredTools {
			ask.Tools = append(ask.Tools, responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
				Name:        tool[0],
				Description: openai.String(tool[1]),
				Parameters:  read[map[string]any](t, tool[2]),
			}})
		}
	}
	if j.Schema {
		ask.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name:   "forecast",
			Strict: openai.Bool(true),
			Schema: read[map[string]any](t, forecast),
		}
	}
	return ask
}

// messageByGo has a conversation by Messages.
func messageByGo(ctx context.Context, t *testing.T, j job, o *outcome) error {
	t.Helper()
	c := anthropicClient(j)
	ask := askByMessages(t, j)
	for o.Rounds < j.Rounds {
		made, err := messageOnce(ctx, c, j, ask, o)
		if err != nil {
			return err
		}
		o.Rounds++
		u := made.Usage
		o.Input += u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
		o.Output += u.OutputTokens
		o.Finish = named(string(made.StopReason), "end_turn", "stop", "max_tokens", "length", "tool_use", "calls")
		ask.Messages = append(ask.Messages, made.ToParam())
		var results []anthropic.ContentBlockParamUnion
		for _, block := range made.Content {
			if block.Type == "tool_use" {
				o.Calls = append(o.Calls, toolCall{block.Name, read[map[string]any](t, string(block.Input))})
				results = append(results, anthropic.NewToolResultBlock(block.ID, toolResult, false))
			}
			if block.Type == "text" && j.Schema {
				o.Object = read[map[string]any](t, block.Text)
			}
		}
		if len(results) == 0 {
			break
		}
		ask.Messages = append(ask.Messages, anthropic.NewUserMessage(results...))
	}
	return nil
}

// messageOnce makes one call, whole or streamed, and adds its text to the outcome.
func messageOnce(ctx context.Context, c anthropic.Client, j job, ask anthropic.MessageNewParams,
	o *outcome) (made anthropic.Message, err error) {
	if !j.Stream {
		whole, err := c.Messages.New(ctx, ask)
		if err != nil {
			return made, err
		}
		for _, block := range whole.Content {
			o.Text += block.Text
		}
		return *whole, nil
	}
	s := c.Messages.NewStreaming(ctx, ask)
	for s.Next() {
		if err := made.Accumulate(s.Current()); err != nil {
			return made, err
		}
		if e, ok := s.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
			o.Text += e.Delta.Text
		}
	}
	return made, s.Err()
}

func askByMessages(t *testing.T, j job) anthropic.MessageNewParams {
	t.Helper()
	content := []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(j.Text)}
	if kind, data, ok := strings.Cut(strings.TrimPrefix(j.Image, "data:"), ";base64,"); ok {
		content = append(content, anthropic.NewImageBlockBase64(kind, data))
	}
	ask := anthropic.MessageNewParams{
		Model:     anthropic.Model(j.Model),
		MaxTokens: j.MaxTokens,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(content...)},
	}
	if j.Tools {
		for _, tool := range offeredTools {
			schema := read[map[string]any](t, tool[2])
			of := anthropic.ToolUnionParamOfTool(
				anthropic.ToolInputSchemaParam{Properties: schema["properties"]}, tool[0])
			of.OfTool.Description = anthropic.String(tool[1])
			ask.Tools = append(ask.Tools, of)
		}
	}
	if j.Schema {
		ask.OutputConfig.Format.Schema = read[map[string]any](t, forecast)
	}
	return ask
}

// listByOpenAIGo lists the models, and asks for one of them.
func listByOpenAIGo(ctx context.Context, _ *testing.T, j job, o *outcome) error {
	c := openAIClient(j)
	var ids []string
	pages := c.Models.ListAutoPaging(ctx)
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	if pages.Err() != nil {
		return pages.Err()
	}
	one, err := c.Models.Get(ctx, j.Model)
	if err != nil {
		return err
	}
	o.Object = listed(ids, j.Model, one.ID, string(one.Object))
	return nil
}

// listByAnthropicGo lists the models, and asks for one of them.
func listByAnthropicGo(ctx context.Context, _ *testing.T, j job, o *outcome) error {
	c := anthropicClient(j)
	var ids []string
	pages := c.Models.ListAutoPaging(ctx, anthropic.ModelListParams{})
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	if pages.Err() != nil {
		return pages.Err()
	}
	one, err := c.Models.Get(ctx, j.Model, anthropic.ModelGetParams{})
	if err != nil {
		return err
	}
	o.Object = listed(ids, j.Model, one.ID, string(one.Type))
	return nil
}

// listed returns the outcome of a list of models and of one model.
func listed(ids []string, model, id, kind string) map[string]any {
	return map[string]any{
		"count":  float64(len(ids)),
		"listed": slices.Contains(ids, model),
		"id":     id,
		"kind":   kind,
	}
}

// countByGo counts the input of a message.
func countByGo(ctx context.Context, t *testing.T, j job, o *outcome) error {
	t.Helper()
	c := anthropicClient(j)
	counted, err := c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
		Model:    anthropic.Model(j.Model),
		Messages: askByMessages(t, j).Messages,
	})
	if err == nil {
		o.Object = map[string]any{"counted": float64(counted.InputTokens)}
	}
	return err
}

// named renames the reasons that the APIs give for the end of an answer: pairs of an API's name and ours.
func named(reason string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(reason)
}
