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
	Code    string // error.code, "" of a success
	Message string // error.message
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
	resp, err := Transport(t, nil).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := Answer{Status: resp.StatusCode, Body: string(text), Header: resp.Header}
	if a.Status >= 400 {
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
		a.Code, a.Message = e.Error.Code, e.Error.Message
	}
	return a
}
