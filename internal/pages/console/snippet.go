package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// authorizeURL returns the app's authorization URL, with placeholders for what its server adds.
func (v visit) authorizeURL(authURL string) string {
	redirect := "YOUR_REDIRECT_URI"
	if len(v.app.RedirectURIs) > 0 {
		redirect = v.app.RedirectURIs[0]
	}
	return authURL + "/oauth/authorize?response_type=code\n  &client_id=" + url.QueryEscape(v.app.ClientID) +
		"\n  &redirect_uri=" + url.QueryEscape(redirect) +
		"\n  &state=YOUR_STATE\n  &code_challenge=YOUR_CHALLENGE&code_challenge_method=S256"
}

// exchangeCommand returns a curl command that exchanges a code.
func (v visit) exchangeCommand(baseURL string) string {
	redirect := "YOUR_REDIRECT_URI"
	if len(v.app.RedirectURIs) > 0 {
		redirect = v.app.RedirectURIs[0]
	}
	credentials := fmt.Sprintf(`-u %s:"$CLIENT_SECRET"`, v.app.ClientID)
	if v.app.ClientType == apps.Public {
		credentials = "-d client_id=" + v.app.ClientID
	}
	return fmt.Sprintf(`curl -s %s \
  -d grant_type=authorization_code \
  -d code="$CODE" \
  --data-urlencode %s \
  -d code_verifier="$VERIFIER" \
  %s/oauth/token`,
		credentials, quoteShell("redirect_uri="+redirect), baseURL)
}

// An exampleCall is one chat completion that the examples show.
type exampleCall struct {
	BaseURL, Feature, Model, Prompt string
	MaxTokens                       int64 // 0 = not sent
}

// exampleCode returns the call in three languages.
func exampleCode(c exampleCall) []ui.Code {
	return []ui.Code{
		{Language: "curl", Text: c.curlCommand()},
		{Language: "Go", Text: c.goCode()},
		{Language: "TypeScript", Text: c.typeScriptCode()},
	}
}

// requestBody returns the JSON body of the request.
func (c exampleCall) requestBody() string {
	tokens := ""
	if c.MaxTokens > 0 {
		tokens = `"max_tokens": ` + strconv.FormatInt(c.MaxTokens, 10) + `, `
	}
	return `{"model": ` + quoteJSON(c.Model) + `, ` + tokens + `"messages": [{"role": "user", "content": ` +
		quoteJSON(c.Prompt) + `}]}`
}

func (c exampleCall) curlCommand() string {
	feature := ""
	if c.Feature != "" {
		feature = fmt.Sprintf("  -H '%s: %s' \\\n", web.FeatureHeader, c.Feature)
	}
	return fmt.Sprintf(`curl -s %s/v1/chat/completions \
  -H "Authorization: Bearer $ACCESS_TOKEN" \
  -H "Idempotency-Key: $(uuidgen)" \
  -H 'Content-Type: application/json' \
%s  -d %s`,
		c.BaseURL, feature, quoteShell(c.requestBody()))
}

func (c exampleCall) goCode() string {
	var b strings.Builder
	b.WriteString("// go get github.com/openai/openai-go/v3\nclient := openai.NewClient(\n")
	fmt.Fprintf(&b, "\toption.WithBaseURL(%q),\n\toption.WithAPIKey(os.Getenv(\"ACCESS_TOKEN\")),\n", c.BaseURL+"/v1")
	if c.Feature != "" {
		fmt.Fprintf(&b, "\toption.WithHeader(%q, %q),\n", web.FeatureHeader, c.Feature)
	}
	fmt.Fprintf(&b, ")\nanswer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{\n"+
		"\tModel:    %q,\n"+
		"\tMessages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(%q)},\n", c.Model, c.Prompt)
	if c.MaxTokens > 0 {
		fmt.Fprintf(&b, "\tMaxTokens: openai.Int(%d),\n", c.MaxTokens)
	}
	b.WriteString("})\nif err != nil {\n\treturn err\n}\nfmt.Println(answer.Choices[0].Message.Content)")
	return b.String()
}

func (c exampleCall) typeScriptCode() string {
	var b strings.Builder
	fmt.Fprintf(&b, "import OpenAI from \"openai\";\n\nconst client = new OpenAI({\n"+
		"  baseURL: %s,\n  apiKey: process.env.ACCESS_TOKEN,\n", quoteJSON(c.BaseURL+"/v1"))
	if c.Feature != "" {
		fmt.Fprintf(&b, "  defaultHeaders: { %s: %s },\n", quoteJSON(web.FeatureHeader), quoteJSON(c.Feature))
	}
	fmt.Fprintf(&b, "});\nconst answer = await client.chat.completions.create({\n  model: %s,\n", quoteJSON(c.Model))
	if c.MaxTokens > 0 {
		fmt.Fprintf(&b, "  max_tokens: %d,\n", c.MaxTokens)
	}
	fmt.Fprintf(&b, "  messages: [{ role: \"user\", content: %s }],\n});\n"+
		"console.log(answer.choices[0].message.content);", quoteJSON(c.Prompt))
	return b.String()
}

// quoteJSON returns text as a string literal of JSON and JavaScript.
func quoteJSON(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic("console: a string is always JSON: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// quoteShell quotes text for a shell, since developers paste the command there.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
