package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A Client sends requests with one credential and checks every answer.
type Client struct {
	Base         string // {base_url}
	User, Secret string // HTTP Basic, if User is not empty
	Bearer       string // an access token, if it is not empty
}

// An Answer is what came back.
type Answer struct {
	Status  int
	Code    string         // error.code, "" of a success
	Message string         // error.message
	Details map[string]any // error.details
	Body    string
	Header  http.Header
}

// String is short enough for a test's message.
func (a Answer) String() string {
	if a.Code == "" {
		return fmt.Sprintf("%d %s", a.Status, shorten([]byte(a.Body)))
	}
	return fmt.Sprintf("%d %s: %s", a.Status, a.Code, a.Message)
}

// Do sends a request, with body as JSON if it is not empty, and with headers: name, value, …
func (c Client) Do(t testing.TB, method, path, body string, headers ...string) Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.Base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.User != "" {
		req.SetBasicAuth(c.User, c.Secret)
	}
	if c.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.Bearer)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return Read(t, resp)
}

// Read reads an answer to its end, and checks it.
func Read(t testing.TB, resp *http.Response) Answer {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	Check(t, resp.Request, resp, text)
	a := Answer{Status: resp.StatusCode, Body: string(text), Header: resp.Header}
	if a.Status >= 400 && isJSON(resp) { // a page of errors has no code
		text = Envelope(resp.Request.URL.Path, text)
		var e struct {
			Error struct {
				Code, Message string
				Details       map[string]any
			}
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatalf("%s %s: %v: %s", resp.Request.Method, resp.Request.URL.Path, err, text)
		}
		a.Code, a.Message, a.Details = e.Error.Code, e.Error.Message, e.Error.Details
	}
	return a
}

// Svc returns the block that says what a call costs, of a whole answer or of a stream.
func (a Answer) Svc(t testing.TB) map[string]any {
	t.Helper()
	text := a.Body
	if i := strings.Index(text, `{"svc_final":`); i >= 0 {
		text, _, _ = strings.Cut(text[i:], "\n")
	}
	var v struct {
		SVC   map[string]any `json:"svc"`
		Final struct {
			SVC map[string]any `json:"svc"`
		} `json:"svc_final"`
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, a.Body)
	}
	if v.SVC == nil {
		return v.Final.SVC
	}
	return v.SVC
}
