package commands

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// What is triggered arrives at the developer's machine, signed, with a line for
// each; what is older does not; what is sent again arrives again; and a second
// listener goes on where the first one stopped.
func TestListen(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		listen(t, apptest.Start(t, apptest.URL(t, e)).Node)
	})
}

func listen(t *testing.T, node *nodetest.Node) {
	secret, err := deriveSigningSecret(node.App.ClientSecret)
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan string, 10)
	mine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		at, v1, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Svc-Signature"), "t="), ",v1=")
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(at + "." + string(body)))
		if err != nil || v1 != hex.EncodeToString(mac.Sum(nil)) ||
			r.Header.Get("Webhook-Id") != r.Header.Get("Svc-Event-Id") {
			t.Errorf("got %v (%v)", r.Header, err)
		}
		w.WriteHeader(http.StatusAccepted)
		arrived <- eventType(body)
	}))
	defer mine.Close()
	flags := appFlags{
		URL:          node.BaseURL,
		App:          node.App.ID,
		ClientID:     node.App.ClientID,
		ClientSecret: node.App.ClientSecret,
	}
	c, err := flags.newClient(&program{})
	if err != nil {
		t.Fatal(err)
	}
	trigger := func(event string) {
		t.Helper()
		code, out, err := command([]string{"PURSER_CLIENT_SECRET=" + flags.ClientSecret}, "trigger", event, "--url",
			flags.URL, "--app", flags.App, "--client-id", flags.ClientID)
		if code != exitOK || eventType([]byte(out)) != event {
			t.Errorf("trigger: %d %s%s", code, out, err)
		}
	}
	// start returns the lines of a listener, and how to stop it.
	start := func(after string) (lines chan string, stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		lines, done := make(chan string, 20), make(chan error, 1)
		l := &listenCmd{
			appFlags:  flags,
			ForwardTo: mine.URL,
			Secret:    secret,
			After:     after,
			Every:     20 * time.Millisecond,
		}
		go func() {
			done <- l.forwardEvents(ctx,
				&program{out: writerFunc(func(b []byte) { lines <- string(b) }), err: io.Discard}, c)
		}()
		return lines, func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	expect := func(what string, lines chan string) {
		t.Helper()
		if got := <-arrived; got != what {
			t.Errorf("%s arrived, not %s", got, what)
		}
		if line := <-lines; !strings.HasPrefix(line, "evt_") || !strings.HasSuffix(line, " "+what+": 202 Accepted\n") {
			t.Errorf("the line of %s: %q", what, line)
		}
	}

	trigger("connection.exhausted")
	waitFor(t, c, 2) // the seeded connection's creation and the triggered one are in the log
	lines, stop := start("")
	if line := <-lines; line != "Listening. Events are signed with "+secret+"\n" {
		t.Errorf("the first line: %q", line)
	}
	trigger("connection.revoked")
	expect("connection.revoked", lines)
	redeliver(t, node, mine.URL)
	expect("request.settled", lines)
	stop()
	place, ok := strings.CutPrefix(<-lines, "Stopped. To continue from here: --after ")
	if !ok || len(arrived) != 0 {
		t.Errorf("at last %q; %d events more", place, len(arrived))
	}

	trigger("connection.frozen")
	lines, stop = start(strings.TrimSpace(place))
	<-lines // that it listens
	expect("connection.frozen", lines)
	stop()
	if len(arrived) != 0 {
		t.Errorf("arrived too: %s", <-arrived)
	}
}

// redeliver makes an endpoint whose test event is sent again.
func redeliver(t *testing.T, node *nodetest.Node, url string) {
	t.Helper()
	call := func(method, path, body string, out any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, node.BaseURL+"/v1/apps/"+node.App.ID+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(node.App.ClientID, node.App.ClientSecret)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %v", method, path, resp.Status, err)
		}
	}
	var endpoint, delivery struct{ ID string }
	call("POST", "/webhooks", `{"url":"`+url+`","events":["connection.created"]}`, &endpoint)
	// its own delivery waits: nothing arrives but by listening
	call("PATCH", "/webhooks/"+endpoint.ID, `{"status":"disabled"}`, &endpoint)
	call("POST", "/webhooks/"+endpoint.ID+"/test", `{"type":"request.settled"}`, &delivery)
	call("POST", "/webhooks/"+endpoint.ID+"/deliveries/"+delivery.ID+"/redeliver", "", &delivery)
}

// A service that fails for a while is asked again, from the same place; one that
// refuses us is not.
func TestListenGoesOn(t *testing.T) {
	t.Parallel()
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch len(asked) {
		case 1:
			w.Header().Set("Svc-After", "7")
			fmt.Fprint(w, `[{"id":"evt_old","type":"t"}]`)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			fmt.Fprint(w, `[{"id":`) // cut off
		case 4:
			w.Header().Set("Svc-After", "9")
			fmt.Fprint(w, `[{"id":"evt_new","type":"t"}]`)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":"unauthorized","message":"no longer"}}`)
		}
	}))
	defer api.Close()
	var out, failed strings.Builder
	l := &listenCmd{
		appFlags:  appFlags{URL: api.URL, App: "a", ClientID: "c", ClientSecret: "s"},
		ForwardTo: "http://127.0.0.1:1/",
		Secret:    "whsec_MTIz",
		Every:     time.Millisecond,
	}
	c, err := l.newClient(&program{})
	if err != nil {
		t.Fatal(err)
	}
	err = l.forwardEvents(t.Context(), &program{out: &out, err: &failed}, c)
	if err == nil || err.Error() != "401 unauthorized: no longer" {
		t.Errorf("it ended with %v", err)
	}
	if got := strings.Join(asked, " "); got != "limit=1 after=7 after=7 after=7 after=9" {
		t.Errorf("asked %s", got)
	}
	if s := out.String(); strings.Contains(s, "evt_old") || !strings.Contains(s, "evt_new t: ") ||
		!strings.Contains(s, "connection refused") {
		t.Errorf("said %s", s)
	}
	if s := failed.String(); !strings.Contains(s, "503") || !strings.Contains(s, "no list of events") {
		t.Errorf("failed with %s", s)
	}
}

// A listener that is stopped goes on behind the last event that it has posted:
// whether the stop comes within a list, after it, or within a post.
func TestListenStops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, last, posted, asked, place string
	}{
		{"before the end of a list", "evt_b", "evt_a evt_b", "after=0 after=0&limit=2", "2"},
		{"at the end of a list", "evt_c", "evt_a evt_b evt_c", "after=0", "3"},
		{"within a post", "", "evt_a", "after=0 after=0&limit=1", "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var asked []string
			events := []string{`{"id":"evt_a"}`, `{"id":"evt_b"}`, `{"id":"evt_c"}`}
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.RawQuery)
				list := events
				if n, err := strconv.Atoi(r.FormValue("limit")); err == nil {
					list = events[:n]
				}
				w.Header().Set("Svc-After", strconv.Itoa(len(list)))
				fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
			}))
			defer api.Close()
			mine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				// A server notices that a request is cut only behind its body.
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				if test.last == "" && r.Header.Get("Svc-Event-Id") == "evt_b" {
					stop()
					<-r.Context().Done() // the post is cut
				}
			}))
			defer mine.Close()
			var posted []string
			var at string
			out := writerFunc(func(b []byte) {
				at, _ = strings.CutPrefix(string(b), "Stopped. To continue from here: --after ")
				if id, _, ok := strings.Cut(string(b), " : 200 OK"); ok {
					posted = append(posted, id)
					if id == test.last {
						stop()
					}
				}
			})
			l := &listenCmd{
				appFlags:  appFlags{URL: api.URL, App: "a", ClientID: "c", ClientSecret: "s"},
				ForwardTo: mine.URL,
				Secret:    "whsec_MTIz",
				After:     "0",
				Every:     time.Minute,
			}
			c, err := l.newClient(&program{})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.forwardEvents(ctx, &program{out: out, err: io.Discard}, c); err != nil {
				t.Error(err)
			}
			if got := strings.Join(posted, " "); got != test.posted {
				t.Errorf("posted %s", got)
			}
			if got := strings.Join(asked, " "); got != test.asked {
				t.Errorf("asked %s", got)
			}
			if strings.TrimSpace(at) != test.place {
				t.Errorf("to go on: %q", at)
			}
		})
	}
}

// A listener that is stopped between a post that failed and its next step prints the cursor before that event, so that
// the event comes again. So it does when the service cannot say which cursor follows an event.
func TestListenStopsBeforeAnUndeliveredEvent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, last, place string
		failing           bool // the service, once the listener is stopped
	}{
		{"the last of a list was refused", "evt_c", "2", false},
		{"one of a list was refused", "evt_b", "1", false},
		{"the first was refused", "evt_a", "0", false},
		{"the service is gone", "evt_b", "0", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			events := []string{`{"id":"evt_a"}`, `{"id":"evt_b"}`, `{"id":"evt_c"}`}
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				list := events
				if n, err := strconv.Atoi(r.FormValue("limit")); err == nil {
					list = events[:n]
				}
				if test.failing && ctx.Err() != nil {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Svc-After", strconv.Itoa(len(list)))
				fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
			}))
			defer api.Close()
			mine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Svc-Event-Id") == test.last && !test.failing {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			defer mine.Close()
			var at string
			out := writerFunc(func(b []byte) {
				at, _ = strings.CutPrefix(string(b), "Stopped. To continue from here: --after ")
				if strings.HasPrefix(string(b), test.last+" ") {
					stop()
				}
			})
			l := &listenCmd{
				appFlags:  appFlags{URL: api.URL, App: "a", ClientID: "c", ClientSecret: "s"},
				ForwardTo: mine.URL,
				Secret:    "whsec_MTIz",
				After:     "0",
				Every:     time.Minute,
			}
			c, err := l.newClient(&program{})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.forwardEvents(ctx, &program{out: out, err: io.Discard}, c); err != nil {
				t.Error(err)
			}
			if strings.TrimSpace(at) != test.place {
				t.Errorf("stopped at %q, want %s", at, test.place)
			}
		})
	}
}

// eventType is the type of an event.
func eventType(body []byte) string {
	var e struct{ Type string }
	if err := json.Unmarshal(body, &e); err != nil {
		return err.Error()
	}
	return e.Type
}

// waitFor asks until the log has so many events.
func waitFor(t *testing.T, c *appClient, n int) {
	t.Helper()
	late := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list, _, err := c.listEvents(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) >= n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("there are %d events, not %d", len(list), n)
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }
