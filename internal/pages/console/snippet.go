package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// connect is an authorize address of the app, to be completed by its server.
func (v visit) connect(authURL string) string {
	redirect := "YOUR_REDIRECT_URI"
	if len(v.app.RedirectURIs) > 0 {
		redirect = v.app.RedirectURIs[0]
	}
	return authURL + "/oauth/authorize?response_type=code\n  &client_id=" + url.QueryEscape(v.app.ClientID) +
		"\n  &redirect_uri=" + url.QueryEscape(redirect) +
		"\n  &state=YOUR_STATE\n  &code_challenge=YOUR_CHALLENGE&code_challenge_method=S256"
}

// exchange is the exchange of a code as a command.
func (v visit) exchange(baseURL string) string {
	redirect := "YOUR_REDIRECT_URI"
	if len(v.app.RedirectURIs) > 0 {
		redirect = v.app.RedirectURIs[0]
	}
	return fmt.Sprintf(
		"curl -s -u %s:\"$CLIENT_SECRET\" \\\n  -d grant_type=authorization_code \\\n  -d code=\"$CODE\" \\\n  --data-urlencode %s \\\n  -d code_verifier=\"$VERIFIER\" \\\n  %s/oauth/token",
		v.app.ClientID, quoted("redirect_uri="+redirect), baseURL)
}

// A call is what the examples show: one chat completion.
type call struct {
	BaseURL, Feature, Model, Prompt string
	MaxTokens                       int64 // 0 = not sent
}

// calls shows a call in three languages.
func calls(c call) []ui.Code {
	return []ui.Code{
		{Language: "curl", Text: c.curl()},
		{Language: "Go", Text: c.golang()},
		{Language: "TypeScript", Text: c.typescript()},
	}
}

// body is the request's JSON.
func (c call) body() string {
	tokens := ""
	if c.MaxTokens > 0 {
		tokens = `"max_tokens": ` + strconv.FormatInt(c.MaxTokens, 10) + `, `
	}
	return `{"model": ` + literal(c.Model) + `, ` + tokens + `"messages": [{"role": "user", "content": ` +
		literal(c.Prompt) + `}]}`
}

func (c call) curl() string {
	feature := ""
	if c.Feature != "" {
		feature = fmt.Sprintf("  -H '%s: %s' \\\n", web.FeatureHeader, c.Feature)
	}
	return fmt.Sprintf(
		"curl -s %s/v1/chat/completions \\\n  -H \"Authorization: Bearer $ACCESS_TOKEN\" \\\n  -H \"Idempotency-Key: $(uuidgen)\" \\\n  -H 'Content-Type: application/json' \\\n%s  -d %s",
		c.BaseURL, feature, quoted(c.body()))
}

func (c call) golang() string {
	var b strings.Builder
	b.WriteString("// go get github.com/openai/openai-go/v3\nclient := openai.NewClient(\n")
	fmt.Fprintf(&b, "\toption.WithBaseURL(%q),\n\toption.WithAPIKey(os.Getenv(\"ACCESS_TOKEN\")),\n", c.BaseURL+"/v1")
	if c.Feature != "" {
		fmt.Fprintf(&b, "\toption.WithHeader(%q, %q),\n", web.FeatureHeader, c.Feature)
	}
	fmt.Fprintf(&b, ")\nanswer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{\n\tModel:    %q,\n\tMessages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(%q)},\n", c.Model, c.Prompt)
	if c.MaxTokens > 0 {
		fmt.Fprintf(&b, "\tMaxTokens: openai.Int(%d),\n", c.MaxTokens)
	}
	b.WriteString("})\nif err != nil {\n\treturn err\n}\nfmt.Println(answer.Choices[0].Message.Content)")
	return b.String()
}

func (c call) typescript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "import OpenAI from \"openai\";\n\nconst client = new OpenAI({\n  baseURL: %s,\n  apiKey: process.env.ACCESS_TOKEN,\n", literal(c.BaseURL+"/v1"))
	if c.Feature != "" {
		fmt.Fprintf(&b, "  defaultHeaders: { %s: %s },\n", literal(web.FeatureHeader), literal(c.Feature))
	}
	fmt.Fprintf(&b, "});\nconst answer = await client.chat.completions.create({\n  model: %s,\n", literal(c.Model))
	if c.MaxTokens > 0 {
		fmt.Fprintf(&b, "  max_tokens: %d,\n", c.MaxTokens)
	}
	fmt.Fprintf(&b, "  messages: [{ role: \"user\", content: %s }],\n});\nconsole.log(answer.choices[0].message.content);", literal(c.Prompt))
	return b.String()
}

// literal writes text as JSON and JavaScript do.
func literal(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic("console: a string is always JSON: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// quoted quotes for the shell: what people typed will be pasted there.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
