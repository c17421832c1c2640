// Command conformance does single operations of the SDK for the driver of the conformance suite.
// sdk/conformance/README.md has the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	purser "github.com/purserhq/purser/sdk/go"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// dev is what the runner reads of the line that purser dev prints.
type dev struct {
	BaseURL string `json:"base_url"`
	App     struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		RedirectURI  string `json:"redirect_uri"`
	} `json:"app"`
}

func run(args []string, in io.Reader, out io.Writer) error {
	text, err := os.ReadFile(os.Getenv("PURSER_DEV_JSON"))
	if err != nil {
		return err
	}
	r := runner{memory: purser.NewMemoryTokenStore()}
	if err := json.Unmarshal(text, &r.dev); err != nil {
		return err
	}
	if len(args) == 3 && args[0] == "token" {
		return r.printToken(args[1], args[2], out)
	}
	if len(args) > 0 {
		return errors.New("usage: conformance [token FOLDER CONNECTION_ID]")
	}
	r.standard = r.newClient(settings{})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		answer := r.answer(lines.Bytes())
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
			return err
		}
	}
	return lines.Err()
}

// A runner has what lives as long as the process.
type runner struct {
	dev      dev
	memory   *purser.MemoryTokenStore
	standard *purser.Client // of requests without settings
}

// printToken prints a fresh access token of a connection in a folder.
func (r *runner) printToken(folder, connectionID string, out io.Writer) error {
	client := r.newClient(settings{Store: folder})
	token, err := client.Connection(connectionID).Token(context.Background())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, token)
	return err
}

// settings are the member client of a request.
type settings struct {
	ClientID     *string         `json:"client_id"`
	ClientSecret json.RawMessage `json:"client_secret"` // null is a public client
	RedirectURI  *string         `json:"redirect_uri"`
	BaseURL      *string         `json:"base_url"`
	MaxRetries   *int            `json:"max_retries"`
	TimeoutMS    int             `json:"timeout_ms"`
	Store        string          `json:"store"`
}

// newClient returns a client with settings.
func (r *runner) newClient(s settings) *purser.Client {
	o := purser.Options{
		BaseURL:      valueOr(s.BaseURL, r.dev.BaseURL),
		ClientID:     valueOr(s.ClientID, r.dev.App.ClientID),
		ClientSecret: r.dev.App.ClientSecret,
		RedirectURI:  valueOr(s.RedirectURI, r.dev.App.RedirectURI),
		Tokens:       r.tokenStore(s),
		Timeout:      time.Duration(s.TimeoutMS) * time.Millisecond,
		MaxRetries:   valueOr(s.MaxRetries, 0),
	}
	if s.MaxRetries != nil && *s.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	if len(s.ClientSecret) > 0 {
		o.ClientSecret = ""
		_ = json.Unmarshal(s.ClientSecret, &o.ClientSecret) // null leaves it empty
	}
	return purser.New(o)
}

func (r *runner) tokenStore(s settings) purser.TokenStore {
	if s.Store != "" {
		return purser.NewFileTokenStore(s.Store)
	}
	return r.memory
}

func valueOr[T any](value *T, standard T) T {
	if value != nil {
		return *value
	}
	return standard
}

type request struct {
	ID     int             `json:"id"`
	Op     string          `json:"op"`
	Client json.RawMessage `json:"client"`
	Args   json.RawMessage `json:"args"`
}

// answer does one request.
func (r *runner) answer(line []byte) map[string]any {
	var ask request
	if err := json.Unmarshal(line, &ask); err != nil {
		return map[string]any{"id": ask.ID, "crash": err.Error()}
	}
	do, known := operations[ask.Op]
	if !known {
		return map[string]any{"id": ask.ID, "unsupported": true}
	}
	call := &call{client: r.standard, store: r.memory}
	if len(ask.Client) > 0 {
		var s settings
		if err := json.Unmarshal(ask.Client, &s); err != nil {
			return map[string]any{"id": ask.ID, "crash": err.Error()}
		}
		call.client, call.store = r.newClient(s), r.tokenStore(s)
	}
	if len(ask.Args) > 0 {
		if err := json.Unmarshal(ask.Args, &call.args); err != nil {
			return map[string]any{"id": ask.ID, "crash": err.Error()}
		}
	}
	result, err := do(context.Background(), call)
	var refused *purser.Error
	switch {
	case errors.As(err, &refused):
		return map[string]any{"id": ask.ID, "error": errorJSON(refused)}
	case err != nil:
		return map[string]any{"id": ask.ID, "crash": err.Error()}
	}
	return map[string]any{"id": ask.ID, "result": result}
}

// errorJSON returns an error in the form of the protocol.
func errorJSON(e *purser.Error) map[string]any {
	var retryAfter any
	if e.RetryAfter > 0 {
		retryAfter = int(e.RetryAfter.Seconds())
	}
	return map[string]any{
		"status":        e.Status,
		"code":          e.Code,
		"message":       e.Message,
		"type":          nullable(e.Type),
		"request_id":    nullable(e.RequestID),
		"doc_url":       nullable(e.DocURL),
		"details":       e.Details,
		"retry_after":   retryAfter,
		"should_retry":  e.ShouldRetry,
		"action":        e.Action,
		"connection_id": nullable(e.ConnectionID),
		"increase_url":  nullable(e.IncreaseURL),
		"review_url":    nullable(e.ReviewURL),
	}
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}
