package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"purser/internal/webhooks"
)

// appFlags say which app of which service a command works for.
type appFlags struct {
	URL          string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where the service is (default: http://127.0.0.1:8080)."`
	App          string `placeholder:"ID" help:"The app's id; or PURSER_APP."`
	ClientID     string `name:"client-id" placeholder:"ID" help:"The app's client_id; or PURSER_CLIENT_ID."`
	ClientSecret string `name:"client-secret" placeholder:"SECRET" help:"The app's client_secret; better PURSER_CLIENT_SECRET, for other users of the machine can read flags."`
}

// client returns what calls the service as the app.
func (f appFlags) client(environ []string) (*appClient, error) {
	for _, v := range []struct {
		name string
		flag *string
	}{{"PURSER_APP", &f.App}, {"PURSER_CLIENT_ID", &f.ClientID}, {"PURSER_CLIENT_SECRET", &f.ClientSecret}} {
		for _, pair := range environ {
			if value, ok := strings.CutPrefix(pair, v.name+"="); ok {
				*v.flag = cmp.Or(*v.flag, value)
			}
		}
		if *v.flag == "" {
			return nil, exitError{fmt.Errorf("%s: required, or its flag", v.name), exitUsage}
		}
	}
	base := strings.TrimSuffix(f.URL, "/") + "/v1/apps/" + url.PathEscape(f.App) + "/events"
	return &appClient{base, f.ClientID, f.ClientSecret, &http.Client{Timeout: 30 * time.Second}}, nil
}

// appClient calls the events of one app.
type appClient struct {
	events           string // URL
	clientID, secret string
	http             *http.Client
}

// maxEvents is more than an answer of events can be.
const maxEvents = 4 << 20

// do sends a request and reads its answer, which must be a success.
func (c *appClient) do(ctx context.Context, method, query string, body []byte) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.events+query, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.SetBasicAuth(c.clientID, c.secret)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxEvents))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message string }
		}
		_ = json.Unmarshal(text, &e) // what is no envelope says nothing more than its status
		return nil, nil, refusal{resp.StatusCode, e.Error.Code, e.Error.Message}
	}
	return text, resp.Header, nil
}

// refusal is an answer that is no success.
type refusal struct {
	status        int
	code, message string
}

func (r refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.code, r.message) }

// lasting reports whether trying again cannot help.
func (r refusal) lasting() bool { return r.status < 500 && r.status != http.StatusTooManyRequests }

type listenCmd struct {
	appFlags
	ForwardTo string        `name:"forward-to" required:"" placeholder:"URL" help:"Where each event is posted, such as http://localhost:3000/webhooks."`
	Secret    string        `placeholder:"whsec_…" help:"Sign with this secret; without it, a new one is made and printed."`
	Every     time.Duration `default:"1s" hidden:""`
}

// Help is shown by purser listen --help.
func (listenCmd) Help() string {
	return `Posts the app's events to your own machine as they happen, those that are sent again too, signed as a webhook is. No endpoint has to be registered. A post that fails is not repeated.

Example:
  purser listen --app app_… --client-id cid_… --forward-to http://localhost:3000/webhooks`
}

// Run forwards events until it is interrupted.
func (l *listenCmd) Run(p *program) error {
	c, err := l.client(p.environ)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	return l.forward(ctx, p, c)
}

// next finds where to go on in the header Link.
var next = regexp.MustCompile(`[?&]after=([0-9]+)>; rel="next"`)

func (l *listenCmd) forward(ctx context.Context, p *program, c *appClient) error {
	_, header, err := c.do(ctx, http.MethodGet, "?limit=1", nil)
	if err != nil {
		return err
	}
	after := "0"
	if m := next.FindStringSubmatch(header.Get("Link")); m != nil {
		after = m[1]
	}
	if l.Secret == "" {
		l.Secret = webhooks.NewSecret()
	}
	fmt.Fprintf(p.out, "Listening. Events are signed with %s\n", l.Secret)
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	for {
		text, header, err := c.do(ctx, http.MethodGet, "?after="+after, nil)
		if r, ok := errors.AsType[refusal](err); ok && r.lasting() {
			return err
		}
		var events []json.RawMessage // as they are: signatures are over bytes
		if err == nil {
			err = json.Unmarshal(text, &events)
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(p.err, "purser:", err)
		}
		for _, e := range events {
			l.post(ctx, p, e)
		}
		if m := next.FindStringSubmatch(header.Get("Link")); m != nil && err == nil {
			after = m[1]
		}
		if len(events) > 0 {
			continue // there may be more
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// post forwards one event and prints what became of it.
func (l *listenCmd) post(ctx context.Context, p *program, body []byte) {
	var e struct{ ID, Type string }
	said, err := "", json.Unmarshal(body, &e)
	if err == nil {
		said, err = l.send(ctx, e.ID, body)
	}
	if err != nil {
		said = err.Error()
	}
	fmt.Fprintf(p.out, "%s %s: %s\n", e.ID, e.Type, said)
}

func (l *listenCmd) send(ctx context.Context, eventID string, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.ForwardTo, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if err := webhooks.Sign(r.Header, l.Secret, eventID, body, time.Now()); err != nil {
		return "", err
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows no redirect, as webhooks do not
	if err != nil {
		return "", err
	}
	return resp.Status, resp.Body.Close()
}

type triggerCmd struct {
	appFlags
	Event string `arg:"" help:"The type of the event, such as connection.revoked."`
}

// Help is shown by purser trigger --help.
func (triggerCmd) Help() string {
	return "Makes a sample event: the app's endpoints get it, and purser listen. It is about a connection that does not exist, and moves nothing.\n\n" +
		"Events: " + strings.Join(webhooks.Types, ", ") + "\n\nExample:\n  purser trigger connection.revoked --app app_… --client-id cid_…"
}

// Run makes the event and prints it.
func (t *triggerCmd) Run(p *program) error {
	c, err := t.client(p.environ)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"type": t.Event})
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	text, _, err := c.do(ctx, http.MethodPost, "", body)
	if err != nil {
		return err
	}
	_, err = p.out.Write(text)
	return err
}
