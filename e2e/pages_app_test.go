package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A sampleApp is what a newcomer writes on an afternoon: golang.org/x/oauth2 to
// connect a user, the OpenAI SDK to call a model, and nothing of ours.
type sampleApp struct {
	*httptest.Server
	base, issuer string
	config       *oauth2.Config
	verifier     string // of the login that is under way; this app has one user
	token        *oauth2.Token
}

func newSampleApp(t *testing.T, p *servertest.Process) *sampleApp {
	a, mux := &sampleApp{base: p.BaseURL, issuer: p.AuthURL}, http.NewServeMux()
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	register(t, p, a.URL+"/callback")
	a.config = client(p)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		a.page(w, `<h1>A sample app</h1><a href="/connect">Connect</a>`)
	})
	mux.HandleFunc("GET /connect", func(w http.ResponseWriter, r *http.Request) {
		a.verifier = oauth2.GenerateVerifier()
		http.Redirect(w, r, a.config.AuthCodeURL("secret-state", oauth2.S256ChallengeOption(a.verifier)),
			http.StatusSeeOther)
	})
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("state") != "secret-state" || q.Get("iss") != a.issuer {
			http.Error(w, "not from our login", http.StatusBadRequest)
			return
		}
		if q.Has("error") {
			a.page(w, `<h1>Not connected</h1><p>`+q.Get("error")+`</p>`)
			return
		}
		var err error
		if a.token, err = a.config.Exchange(r.Context(), q.Get("code"), oauth2.VerifierOption(a.verifier)); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		answer, err := a.ask(r.Context(), "Hello")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		a.page(w, `<h1>Connected</h1><p>The model said: `+answer+`</p>`)
	})
	return a
}

func (a *sampleApp) page(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, `<!doctype html><html lang="en"><title>A sample app</title><link rel="icon" href="data:,">`+body)
}

// ask calls a model; the library refreshes the token when that is due.
func (a *sampleApp) ask(ctx context.Context, text string) (string, error) {
	source := a.config.TokenSource(ctx, a.token)
	c := openai.NewClient(option.WithBaseURL(a.base+"/v1"), option.WithAPIKey("unused"),
		option.WithHTTPClient(oauth2.NewClient(ctx, source)))
	answer, err := c.Chat.Completions.New(ctx, asking(text))
	if err != nil {
		return "", err
	}
	if a.token, err = source.Token(); err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

// TestSampleApp connects a user to an app that knows of us only what the
// documentation says, in a browser, at an origin of the app's own.
func TestSampleApp(t *testing.T) {
	testkit.Long(t, "TestPersonFromNothing uses the same app")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		app := newSampleApp(t, p)
		b := newTab(t, p.BaseURL, app.URL)
		b.open(app.URL)
		b.press("link", "Connect")
		b.signIn(p.TestAccount.Email, p.TestAccount.Password)
		b.press("button", "Not now")
		b.says("Not connected", "access_denied")

		b.open(app.URL)
		b.press("link", "Connect")
		b.pressFirst("Allow")
		b.says("Connected", "The model said: ")
		if at := b.at(); at.Host != app.Listener.Addr().String() {
			t.Errorf("landed at %s", at)
		}
		if app.token.TokenType != "Bearer" || time.Until(app.token.Expiry) < 10*time.Minute {
			t.Errorf("the token is of type %q and ends at %s", app.token.TokenType, app.token.Expiry)
		}

		first := *app.token
		app.token.Expiry = time.Now().Add(-time.Minute)
		if _, err := app.ask(t.Context(), "Hello again"); err != nil || app.token.AccessToken == first.AccessToken ||
			app.token.RefreshToken == first.RefreshToken {
			t.Errorf("the token was not refreshed: %v", err)
		}
		if n := len(spends(t, p, p.Connection.ID)); n != 2 {
			t.Errorf("two calls made %d rows", n)
		}
	})
}
