package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"iter"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	claudeoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// The emulator is believed because the providers' own clients take its answers:
// whole and streamed, with tools and with images.

// emulated starts `purser emulator` and returns its base URLs.
func emulated(t *testing.T) (base struct{ OpenAI, Anthropic, Google string }) {
	t.Helper()
	cmd := exec.Command(servertest.Binary(t), "emulator", "--listen", "127.0.0.1:0", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &base); err != nil {
		t.Fatal(err)
	}
	return base
}

// dot is a small picture.
func dot(t *testing.T) []byte {
	t.Helper()
	m, b := image.NewRGBA(image.Rect(0, 0, 64, 64)), bytes.Buffer{}
	m.Set(1, 1, color.White)
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	weather = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
	oslo    = `{"city":"Oslo 🙂"}`
	twice   = "What is the weather?\n!call weather " + oslo + "\n!call weather {\"city\":\"Rome\"}"
)

func schema(t *testing.T) map[string]any { return read[map[string]any](t, weather) }

func TestEmulatorTakesTheOpenAISDK(t *testing.T) {
	t.Parallel()
	c := openai.NewClient(option.WithBaseURL(emulated(t).OpenAI), option.WithAPIKey("k"), option.WithMaxRetries(1))
	ask := func(t *testing.T, stream bool, q openai.ChatCompletionNewParams) openai.ChatCompletion {
		t.Helper()
		q.Model = "gpt-6-sol"
		if !stream {
			answer, err := c.Chat.Completions.New(soon(t), q)
			if err != nil {
				t.Fatal(err)
			}
			return *answer
		}
		q.StreamOptions.IncludeUsage = openai.Bool(true)
		sum, _ := streamed(t, c, q)
		return sum.ChatCompletion
	}
	var used []int64
	for _, stream := range []bool{false, true} {
		q := openai.ChatCompletionNewParams{Messages: []openai.ChatCompletionMessageParamUnion{
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("What is it?"),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{
					URL: "data:image/png;base64," + base64.StdEncoding.EncodeToString(dot(t)),
				}),
			}),
		}}
		a := ask(t, stream, q)
		if !strings.Contains(a.Choices[0].Message.Content, "You said: What is it?") ||
			a.Choices[0].FinishReason != "stop" || a.Usage.CompletionTokensDetails.ReasoningTokens == 0 {
			t.Errorf("stream %v: %s", stream, a.RawJSON())
		}
		q = openai.ChatCompletionNewParams{
			ReasoningEffort: "none",
			Messages:        []openai.ChatCompletionMessageParamUnion{openai.UserMessage(twice)},
			Tools: []openai.ChatCompletionToolUnionParam{
				openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
					Name:       "weather",
					Parameters: schema(t),
				}),
			},
		}
		a = ask(t, stream, q)
		calls := a.Choices[0].Message.ToolCalls
		if len(calls) != 2 || calls[0].Function.Arguments != oslo || calls[1].ID == calls[0].ID ||
			a.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("stream %v: calls %+v", stream, calls)
		}
		used = append(used, a.Usage.TotalTokens)
		q.Messages = append(q.Messages, a.Choices[0].Message.ToParam(), openai.ToolMessage("sunny", calls[0].ID),
			openai.ToolMessage("rainy", calls[1].ID))
		if a = ask(t, stream, q); !strings.Contains(a.Choices[0].Message.Content, "sunny; rainy") {
			t.Errorf("stream %v: after the results %q", stream, a.Choices[0].Message.Content)
		}
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("whole and streamed used %v tokens", used)
	}
	if a := ask(t, false,
		asking("Hello\n!emu status=503 fails=1 retry_after_ms=1")); a.Choices[0].Message.Content == "" {
		t.Errorf("the second try answered %s", a.RawJSON())
	}
	_, err := c.Chat.Completions.New(soon(t),
		openai.ChatCompletionNewParams{Model: "gpt-0", Messages: asking("x").Messages})
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusNotFound ||
		e.Code != "model_not_found" {
		t.Errorf("an unknown model: %v", err)
	}
	broken := c.Chat.Completions.NewStreaming(soon(t),
		openai.ChatCompletionNewParams{Model: "gpt-6-sol", Messages: asking("Hello\n!emu error=3").Messages})
	for broken.Next() {
	}
	if broken.Err() == nil {
		t.Error("an error in mid-stream was not noticed")
	}
}

func TestEmulatorTakesTheOpenAISDKWithResponses(t *testing.T) {
	t.Parallel()
	c := openai.NewClient(option.WithBaseURL(emulated(t).OpenAI), option.WithAPIKey("k"), option.WithMaxRetries(0))
	ask := func(t *testing.T, stream bool, items responses.ResponseInputParam) *responses.Response {
		t.Helper()
		q := responses.ResponseNewParams{
			Model:           "gpt-6.2-sol",
			MaxOutputTokens: openai.Int(1000),
			Input:           responses.ResponseNewParamsInputUnion{OfInputItemList: items},
			Tools: []responses.ToolUnionParam{
				{OfFunction: &responses.FunctionToolParam{
					Name:       "weather",
					Parameters: schema(t),
					Strict:     openai.Bool(false),
				}},
			},
		}
		if !stream {
			answer, err := c.Responses.New(soon(t), q)
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		s, said, last := c.Responses.NewStreaming(soon(t), q), "", responses.Response{}
		for n := int64(0); s.Next(); n++ {
			e := s.Current()
			if e.SequenceNumber != n {
				t.Errorf("event %d has number %d", n, e.SequenceNumber)
			}
			switch e := e.AsAny().(type) {
			case responses.ResponseTextDeltaEvent:
				said += e.Delta
			case responses.ResponseCompletedEvent:
				last = e.Response
			}
		}
		if err := s.Err(); err != nil || said != last.OutputText() {
			t.Fatalf("%v; streamed %q, at last %q", err, said, last.OutputText())
		}
		return &last
	}
	var used []int64
	for _, stream := range []bool{false, true} {
		items := responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
				responses.ResponseInputContentParamOfInputText(twice),
				{
					OfInputImage: &responses.ResponseInputImageParam{
						Detail:   "auto",
						ImageURL: openai.String("data:image/png;base64," + base64.StdEncoding.EncodeToString(dot(t))),
					},
				},
			}, "user"),
		}
		a := ask(t, stream, items)
		used = append(used, a.Usage.TotalTokens)
		for i := range 2 {
			call := a.Output[1+i].AsFunctionCall() // after the reasoning
			items = append(items,
				responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name))
			if i == 0 && call.Arguments != oslo {
				t.Errorf("stream %v: arguments %s", stream, call.Arguments)
			}
		}
		for i, sky := range []string{"sunny", "rainy"} {
			items = append(items,
				responses.ResponseInputItemUnionParam{
					OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
						CallID: openai.String(a.Output[1+i].CallID),
						Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{
							OfString: openai.String(sky),
						}},
				})
		}
		b := ask(t, stream, items)
		if !strings.Contains(b.OutputText(), "sunny; rainy") {
			t.Errorf("stream %v: after the results %q", stream, b.OutputText())
		}
		if got, err := c.Responses.Get(soon(t), b.ID, responses.ResponseGetParams{}); err != nil ||
			got.Usage.OutputTokens != b.Usage.OutputTokens {
			t.Errorf("stored %v, %v", got, err)
		}
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("whole and streamed used %v tokens", used)
	}
}

func TestEmulatorKeepsWhatTheOpenAISDKStores(t *testing.T) {
	t.Parallel()
	c := openai.NewClient(option.WithBaseURL(emulated(t).OpenAI), option.WithAPIKey("k"), option.WithMaxRetries(0))
	q := asking("Hello")
	q.Store, q.Metadata = openai.Bool(true), map[string]string{"call": "c-1"}
	made, err := c.Chat.Completions.New(soon(t), q)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Chat.Completions.Get(soon(t), made.ID)
	if err != nil || got.Usage.TotalTokens != made.Usage.TotalTokens ||
		got.Choices[0].Message.Content != made.Choices[0].Message.Content {
		t.Errorf("got %v, %v", got, err)
	}
	for call, want := range map[string]int{"c-1": 1, "c-2": 0} {
		list, err := c.Chat.Completions.List(soon(t),
			openai.ChatCompletionListParams{Metadata: map[string]string{"call": call}})
		if err != nil || len(list.Data) != want {
			t.Errorf("%s: %v, %v", call, list, err)
		}
	}
}

func TestEmulatorTakesTheAnthropicSDK(t *testing.T) {
	t.Parallel()
	c := anthropic.NewClient(claudeoption.WithBaseURL(emulated(t).Anthropic), claudeoption.WithAPIKey("k"),
		claudeoption.WithMaxRetries(1))
	ask := func(t *testing.T, stream bool, q anthropic.MessageNewParams) anthropic.Message {
		t.Helper()
		q.Model, q.MaxTokens = "claude-sonnet-5-5", 1000
		if !stream {
			answer, err := c.Messages.New(soon(t), q)
			if err != nil {
				t.Fatal(err)
			}
			return *answer
		}
		var sum anthropic.Message
		s := c.Messages.NewStreaming(soon(t), q)
		for s.Next() {
			if err := sum.Accumulate(s.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	var used []int64
	for _, stream := range []bool{false, true} {
		q := anthropic.MessageNewParams{Messages: []anthropic.MessageParam{anthropic.NewUserMessage(
			anthropic.NewTextBlock("What is it?\n!emu thinking"),
			anthropic.NewImageBlockBase64("image/png", base64.StdEncoding.EncodeToString(dot(t))))}}
		a := ask(t, stream, q)
		if len(a.Content) != 2 || a.Content[0].Thinking == "" || a.Content[0].Signature == "" ||
			!strings.Contains(a.Content[1].Text, "What is it?") || a.StopReason != "end_turn" {
			t.Errorf("stream %v: %s", stream, a.RawJSON())
		}
		properties := anthropic.ToolInputSchemaParam{Properties: schema(t)["properties"], Required: []string{"city"}}
		q = anthropic.MessageNewParams{
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(twice))},
			System:   []anthropic.TextBlockParam{{Text: "Be brief."}},
			Tools:    []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(properties, "weather")},
		}
		a = ask(t, stream, q)
		if len(a.Content) != 3 || string(a.Content[1].Input) != oslo || a.StopReason != "tool_use" {
			t.Fatalf("stream %v: %s", stream, a.RawJSON())
		}
		used = append(used, a.Usage.InputTokens+a.Usage.OutputTokens)
		results := anthropic.NewUserMessage(anthropic.NewToolResultBlock(a.Content[1].ID, "sunny", false),
			anthropic.NewToolResultBlock(a.Content[2].ID, "rainy", false))
		q.Messages = append(q.Messages, a.ToParam(), results) // with its thinking block, as it came
		if b := ask(t, stream, q); !strings.Contains(b.Content[len(b.Content)-1].Text, "sunny") {
			t.Errorf("stream %v: after the results %s", stream, b.RawJSON())
		}
		q.System[0].Text, q.Model, q.MaxTokens = "Be long.", "claude-sonnet-5-5", 1000
		if _, err := c.Messages.New(soon(t), q); err == nil ||
			!strings.Contains(err.Error(), "different conversation") {
			t.Errorf("thinking after another prompt: %v", err)
		}
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("whole and streamed used %v tokens", used)
	}
	q := anthropic.MessageNewParams{
		Model:     "claude-haiku-4-5",
		MaxTokens: 100,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hi"))},
	}
	n, err := c.Messages.CountTokens(soon(t), anthropic.MessageCountTokensParams{Model: q.Model, Messages: q.Messages})
	a, err2 := c.Messages.New(soon(t), q)
	if err != nil || err2 != nil || n.InputTokens != a.Usage.InputTokens {
		t.Errorf("counted %v, used %v; %v, %v", n, a, err, err2)
	}
	q.Messages[0].Content[0].OfText.Text = "Hi\n!emu error=0 code=overloaded_error"
	s := c.Messages.NewStreaming(soon(t), q)
	for s.Next() {
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "overloaded_error") {
		t.Errorf("an error as first event: %v", err)
	}
}

func TestEmulatorTakesTheGoogleSDK(t *testing.T) {
	t.Parallel()
	c, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey:      "k",
		Backend:     genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: emulated(t).Google},
	})
	if err != nil {
		t.Fatal(err)
	}
	const model = "gemini-3.8-flash"
	ask := func(t *testing.T, stream bool, said []*genai.Content,
		config *genai.GenerateContentConfig) (parts []*genai.Part, last *genai.GenerateContentResponse) {
		t.Helper()
		answers := c.Models.GenerateContentStream(soon(t), model, said, config)
		if !stream {
			answers = once(c.Models.GenerateContent(soon(t), model, said, config))
		}
		for answer, err := range answers {
			if err != nil {
				t.Fatal(err)
			}
			parts, last = append(parts, answer.Candidates[0].Content.Parts...), answer
		}
		if last.Candidates[0].FinishReason != genai.FinishReasonStop {
			t.Errorf("stream %v: ended by %s", stream, last.Candidates[0].FinishReason)
		}
		return parts, last
	}
	text := func(parts []*genai.Part) (s string) {
		for _, p := range parts {
			s += p.Text
		}
		return s
	}
	var used []int32
	for _, stream := range []bool{false, true} {
		said := []*genai.Content{
			genai.NewContentFromParts([]*genai.Part{genai.NewPartFromText("What is it?"),
				genai.NewPartFromBytes(dot(t), "image/png")}, genai.RoleUser),
		}
		parts, last := ask(t, stream, said, nil)
		if !strings.Contains(text(parts), "What is it?") || parts[len(parts)-1].ThoughtSignature == nil ||
			last.UsageMetadata.ThoughtsTokenCount == 0 {
			t.Errorf("stream %v: %q", stream, text(parts))
		}
		config := &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText("Be brief.", ""),
			MaxOutputTokens:   1000,
			Tools: []*genai.Tool{
				{FunctionDeclarations: []*genai.FunctionDeclaration{
					{Name: "weather", ParametersJsonSchema: schema(t)},
				}},
			},
		}
		said = []*genai.Content{genai.NewContentFromText(twice, genai.RoleUser)}
		parts, last = ask(t, stream, said, config)
		used = append(used, last.UsageMetadata.TotalTokenCount)
		calls := slices.DeleteFunc(parts, func(p *genai.Part) bool { return p.FunctionCall == nil })
		if len(calls) != 2 || calls[0].FunctionCall.Args["city"] != "Oslo 🙂" || calls[0].ThoughtSignature == nil ||
			calls[1].ThoughtSignature != nil {
			t.Fatalf("stream %v: calls %+v", stream, calls)
		}
		var results []*genai.Part
		for i, sky := range []string{"sunny", "rainy"} {
			part := genai.NewPartFromFunctionResponse("weather", map[string]any{"output": sky})
			part.FunctionResponse.ID = calls[i].FunctionCall.ID
			results = append(results, part)
		}
		said = append(said, genai.NewContentFromParts(calls, genai.RoleModel),
			genai.NewContentFromParts(results, genai.RoleUser))
		if parts, _ = ask(t, stream, said, config); !strings.Contains(text(parts), "sunny") {
			t.Errorf("stream %v: after the results %q", stream, text(parts))
		}
		calls[0].ThoughtSignature = nil
		if _, err := c.Models.GenerateContent(soon(t), model, said, config); err == nil ||
			!strings.Contains(err.Error(), "thought_signature") {
			t.Errorf("without the signature: %v", err)
		}
		calls[0].ThoughtSignature = []byte("skip_thought_signature_validator")
		ask(t, stream, said, config)
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("whole and streamed used %v tokens", used)
	}
	blocked, err := c.Models.GenerateContent(soon(t), model, genai.Text("Hi\n!emu refusal"), nil)
	if err != nil || blocked.PromptFeedback == nil || len(blocked.Candidates) != 0 {
		t.Errorf("a blocked prompt: %+v, %v", blocked, err)
	}
	counted, err := c.Models.CountTokens(soon(t), model, genai.Text("Hi"), nil)
	if err != nil || counted.TotalTokens == 0 {
		t.Errorf("counted %+v, %v", counted, err)
	}
}

// once is a stream of one answer.
func once(answer *genai.GenerateContentResponse, err error) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) { yield(answer, err) }
}
