package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"purser/internal/db"
	"purser/internal/db/dbtest"
	"purser/internal/server/servertest"
)

// What is triggered arrives at the developer's machine, signed; what is older does
// not; and what is sent again arrives again.
func TestListen(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			listen(t, dbtest.URL(t, e))
		})
	}
}

func listen(t *testing.T, database string) {
	node := servertest.Start(t, database)
	arrived := make(chan string, 10)
	mine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Svc-Signature") == "" || r.Header.Get("Webhook-Id") != r.Header.Get("Svc-Event-Id") {
			t.Errorf("got %v (%v)", r.Header, err)
		}
		arrived <- r.Header.Get("Svc-Event-Id") + " " + string(body)
	}))
	defer mine.Close()
	flags := appFlags{URL: node.BaseURL, App: node.App.ID, ClientID: node.App.ClientID, ClientSecret: node.App.ClientSecret}
	environ := []string{"PURSER_CLIENT_SECRET=" + node.App.ClientSecret}
	trigger := func(event string) {
		t.Helper()
		code, out, err := command(environ, "trigger", event, "--url", flags.URL, "--app", flags.App, "--client-id", flags.ClientID)
		if code != exitOK || !strings.Contains(out, `"type":"`+event+`"`) {
			t.Errorf("trigger: %d %s%s", code, out, err)
		}
	}
	trigger("connection.exhausted") // an endpoint of this app gets none of the following; see below
	listening := make(chan bool)
	out := writerFunc(func(b []byte) { // the first line says that it listens
		select {
		case <-listening:
		default:
			close(listening)
		}
	})
	c, err := flags.client(nil)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, c, 2) // the seeded connection's creation and the triggered one are in the log
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	l := &listenCmd{appFlags: flags, ForwardTo: mine.URL, Every: 20 * time.Millisecond}
	go func() { done <- l.forward(ctx, &program{out: out, err: io.Discard}, c) }()
	<-listening
	trigger("connection.revoked")
	if got := <-arrived; !strings.Contains(got, `"type":"connection.revoked"`) {
		t.Errorf("arrived: %s", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(arrived) != 0 {
		t.Errorf("arrived too: %s", <-arrived)
	}
	code, _, said := command(nil, "trigger", "connection.lost", "--url", flags.URL, "--app", flags.App, "--client-id", flags.ClientID, "--client-secret", flags.ClientSecret)
	if code != exitFailed || !strings.Contains(said, "400 invalid_request: type: must be one of") {
		t.Errorf("an unknown event: %d %s", code, said)
	}
}

// waitFor asks until the log has so many events.
func waitFor(t *testing.T, c *appClient, n int) {
	t.Helper()
	late := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _, err := c.do(t.Context(), "GET", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), `"api_version"`) >= n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(fmt.Errorf("there are not %d events: %s", n, text))
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }
