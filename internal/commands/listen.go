package commands

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
)

// environmentVariable returns the last value of an environment variable; "" = not set.
func environmentVariable(environ []string, name string) (value string) {
	for _, pair := range environ {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value = v
		}
	}
	return value
}

// appClient calls the management API as one app.
type appClient struct {
	server           string // base URL of the API
	appPath          string // path of the app
	clientID, secret string
	http             *http.Client
}

// maxAnswerBytes bounds an answer. It is more than a list of events can have.
const maxAnswerBytes = 4 << 20

// callAPI sends a request and reads the answer. An answer other than 200 is an apiError.
func (c *appClient) callAPI(ctx context.Context, method, path string, body []byte) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
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
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message string }
		}
		_ = json.Unmarshal(text, &e) // without an envelope only the status is known
		return nil, nil, apiError{resp.StatusCode, e.Error.Code, e.Error.Message}
	}
	return text, resp.Header, nil
}

// nextLink matches the URL of the next page in the header Link.
var nextLink = regexp.MustCompile(`<([^<>]*)>; rel="next"`)

// listEvents returns events as the bytes that are signed, and the cursor after them, "" if
// there is none.
func (c *appClient) listEvents(ctx context.Context, query string) (list []json.RawMessage, cursor string, err error) {
	header, err := c.read(ctx, c.appPath+"/events"+query, "list of events", &list)
	return list, header.Get(web.AfterHeader), err
}

// list reads what is at a path, such as a page of a list, into dst. It returns the path of the next page; "" = there is
// none.
func (c *appClient) list(ctx context.Context, path, what string, dst any) (next string, err error) {
	header, err := c.read(ctx, path, what, dst)
	if err != nil {
		return "", err
	}
	if m := nextLink.FindStringSubmatch(header.Get("Link")); m != nil && strings.HasPrefix(m[1], "/v1/") {
		next = m[1]
	}
	return next, nil
}

// read reads what is at a path into dst, and returns the headers of the answer.
func (c *appClient) read(ctx context.Context, path, what string, dst any) (http.Header, error) {
	text, header, err := c.callAPI(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, dst); err != nil {
		return nil, fmt.Errorf("%s%s: no %s: %w", c.server, path, what, err)
	}
	return header, nil
}

// cursorAfter returns the cursor n events after another one. It is for a listener that is
// being stopped, so it has a time limit and no parent context. If the service does not
// answer, it returns the cursor that it was given: events may be posted again, but none
// is left out.
func (c *appClient) cursorAfter(after string, n int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, cursor, err := c.listEvents(ctx, "?after="+url.QueryEscape(after)+"&limit="+strconv.Itoa(n))
	if err != nil || len(list) != n {
		return after
	}
	return cmp.Or(cursor, after)
}

// apiError is an error answer of the API.
type apiError struct {
	status        int
	code, message string
}

func (r apiError) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.code, r.message) }

// isPermanent reports whether a retry cannot succeed.
func (r apiError) isPermanent() bool { return r.status < 500 && r.status != http.StatusTooManyRequests }

type listenCmd struct {
	appFlags
	ForwardTo string        `name:"forward-to" required:"" placeholder:"URL" help:"Where each event is posted, such as http://localhost:3000/webhooks."`
	Secret    string        `placeholder:"SECRET" help:"Signing secret (whsec_…), or PURSER_WEBHOOK_SECRET (default: one that is derived from the app and printed)."`
	After     string        `placeholder:"CURSOR" help:"Start after this cursor or event id; 0 = with the first event that is kept (default: new events only)."`
	Every     time.Duration `default:"1s" hidden:""`
}

// Help is shown by purser listen --help.
func (listenCmd) Help() string {
	return `Posts the app's events to your machine as they happen, signed like webhooks. Events that are sent again are posted too. You need not register an endpoint. A failed post is not repeated: send the event again. If the service cannot be reached, it retries and continues where it was. When you stop it, it prints the cursor to continue from.

` + appHelp + `

Example:
  purser listen --forward-to http://localhost:3000/webhooks`
}

// Run forwards events until it is interrupted.
func (l *listenCmd) Run(p *program) error {
	c, err := l.newClient(p)
	if err != nil {
		return err
	}
	to, err := url.Parse(l.ForwardTo)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return exitError{errors.New("--forward-to: must be an address such as http://localhost:3000/webhooks"),
			exitUsage}
	}
	l.Secret = cmp.Or(l.Secret, environmentVariable(p.environ, config.WebhookSecretVariable))
	if l.Secret == "" {
		if l.Secret, err = deriveSigningSecret(c.secret); err != nil {
			return err
		}
	}
	if webhooks.Sign(http.Header{}, l.Secret, "", nil, time.Now()) != nil || !strings.HasPrefix(l.Secret, "whsec_") {
		return exitError{errors.New("--secret: must be a signing secret, whsec_…"), exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	return l.forwardEvents(ctx, p, c)
}

// deriveSigningSecret derives the signing secret for listening from the client secret
// (HKDF, RFC 5869), so that it is the same each time.
func deriveSigningSecret(clientSecret string) (string, error) {
	key, err := hkdf.Key(sha256.New, []byte(clientSecret), nil, "purser listen", 33)
	return "whsec_" + base64.StdEncoding.EncodeToString(key), err
}

// forwardEvents posts the events after l.After, or new events only, until ctx ends.
func (l *listenCmd) forwardEvents(ctx context.Context, p *program, c *appClient) error {
	if l.After == "" {
		_, cursor, err := c.listEvents(ctx, "?limit=1") // the newest event: older ones are not posted
		if err != nil {
			return err
		}
		l.After = cmp.Or(cursor, "0")
	}
	fmt.Fprintf(p.out, "Listening. Events are signed with %s\n", l.Secret)
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		list, cursor, err := c.listEvents(ctx, "?after="+url.QueryEscape(l.After))
		if r, ok := errors.AsType[apiError](err); ok && r.isPermanent() {
			return err
		} else if err != nil && ctx.Err() == nil {
			fmt.Fprintln(p.err, "purser:", err)
		}
		switch posted := l.postEvents(ctx, p, list); posted {
		case len(list):
			l.After = cmp.Or(cursor, l.After)
		case 0: // no events, or interrupted before the first one
		default:
			l.After = c.cursorAfter(l.After, posted)
		}
		if len(list) > 0 {
			continue // there may be more
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	fmt.Fprintf(p.out, "Stopped. To continue from here: --after %s\n", l.After)
	return nil
}

// postEvents posts events until ctx ends, and returns how many are done. If ctx ends before an event was taken with
// 2xx, the event is not done: it comes again from the printed cursor.
func (l *listenCmd) postEvents(ctx context.Context, p *program, list []json.RawMessage) int {
	for i, body := range list {
		if ctx.Err() != nil || !l.postEvent(ctx, p, body) && ctx.Err() != nil {
			return i
		}
	}
	return len(list)
}

// postEvent posts one event and prints the result. It reports whether the event was taken with 2xx.
func (l *listenCmd) postEvent(ctx context.Context, p *program, body []byte) bool {
	var e struct{ ID, Type string }
	status, err := 0, json.Unmarshal(body, &e)
	if err == nil {
		status, err = l.sendRequest(ctx, e.ID, body)
	}
	said := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if err != nil && ctx.Err() != nil {
		return false
	} else if err != nil {
		said = err.Error()
	}
	fmt.Fprintf(p.out, "%s %s: %s\n", e.ID, e.Type, said)
	return err == nil && status/100 == 2
}

// sendRequest posts an event and returns the status of the response.
func (l *listenCmd) sendRequest(ctx context.Context, eventID string, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.ForwardTo, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if err := webhooks.Sign(r.Header, l.Secret, eventID, body, time.Now()); err != nil {
		return 0, err
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows no redirect, as webhooks do not
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

type triggerCmd struct {
	appFlags
	Event string `arg:"" predict:"event" help:"The type of the event, such as connection.revoked."`
}

// Help is shown by purser trigger --help.
func (triggerCmd) Help() string {
	return "Makes a sample event, which the app's endpoints and purser listen receive. It is about a connection " +
		"that does not exist, and moves no money.\n\n" +
		"Events: " + strings.Join(webhooks.Types, ", ") +
		"\n\n" + appHelp + "\n\nExample:\n  purser trigger connection.revoked"
}

// Run makes the event and prints it.
func (t *triggerCmd) Run(p *program) error {
	c, err := t.newClient(p)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"type": t.Event})
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	text, _, err := c.callAPI(ctx, http.MethodPost, c.appPath+"/events", body)
	if err != nil {
		return err
	}
	_, err = p.out.Write(text)
	return err
}
