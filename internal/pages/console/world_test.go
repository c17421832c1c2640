package console_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/pages/console"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// A world is the pages, served, with a developer and another one, who both have an
// app, and a person.
type world struct {
	*httptest.Server
	t                 *testing.T
	d                 *db.DB
	ledger            *store.Writer
	apps              *apps.Store
	people            *accounts.Store
	routes            []string
	prices            *catalog.Catalog
	developer, person accounts.Account
	app, foreign      apps.App
	tester            accounts.Account // the developer's
}

// api stands in for the node in the playground: it shows what came.
func api(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", "req_"+strings.Repeat("0", 26))
	body, _ := io.ReadAll(r.Body)
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") || r.URL.Path != "/v1/chat/completions" ||
		!strings.Contains(string(body), `"max_tokens":50,`) {
		http.Error(w, `{"error":{"code":"invalid_request","message":"not a call",`+
			`"doc_url":"https://docs.example.com/#e"}}`, http.StatusBadRequest)
		return
	}
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+string(body)+"\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
		return
	}
	_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"Good <evening>."}}],"svc":{"user_charge_mc":2750}}`)
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{
		t:      t,
		d:      d,
		ledger: store.NewWriter(d, d.Now),
		people: accounts.NewStore(d, d.Now),
		apps:   apps.NewStore(d, d.Now, true),
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.prices = prices.Current()
	provider := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { // takes one key
		if r.Header.Get("Authorization") != "Bearer sk-good-0123456789-abcd" {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(provider.Close)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.people, false)
	(&accounts.Handler{Store: w.people, Sessions: sessions}).Mount(rt)
	(&apps.Handler{Store: w.apps}).Mount(rt)
	offered := func(model string) bool { _, _, ok := prices.Current().Find(model, d.Now()); return ok }
	(&console.Handler{
		DB:       d,
		Accounts: w.people,
		Sessions: sessions,
		Apps:     w.apps,
		Features: features.NewStore(d, d.Now, offered),
		Sandbox:  sandbox.NewStore(d, w.people, w.ledger, d.Now),
		Keys:     providerkeys.NewStore(d, box, d.Now, map[string]string{"openai": provider.URL}),
		Domains:  domains.New(webhooks.Addresses{}),
		Webhooks: webhooks.NewStore(d, box, d.Now, webhooks.Addresses{HTTP: true}, web.Links{}),
		Members:  members.NewStore(d, w.people, &mail.Store{DB: d, Now: d.Now}, d.Now, "https://example.com"),
		GoLive:   &golive.Store{DB: d, Apps: w.apps, Ledger: w.ledger, Now: d.Now},
		Tokens:   &oauth.Store{DB: d, Ledger: w.ledger, Now: d.Now},
		Catalog:  prices,
		Voice:    voice.NewSupervisor(voice.Options{DB: d, Now: d.Now}),
		Refunds:  &receipts.Refunder{DB: d, Ledger: w.ledger, Now: d.Now},
		Payouts:  &payouts.Store{DB: d, Apps: w.apps, Now: d.Now},
		Now:      d.Now,
		API:      http.HandlerFunc(api),
		BaseURL:  "https://api.example.com",
		AuthURL:  "https://auth.example.com",
	}).Mount(rt)
	for _, r := range rt.Routes() {
		if strings.Contains(r, "/developer") {
			w.routes = append(w.routes, r)
		}
	}
	w.fill()
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

// fill makes the people and their apps.
func (w *world) fill() {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		if w.developer, err = w.people.Create(ctx, tx,
			accounts.NewAccount{Email: "developer@example.com", Developer: true}); err != nil {
			return err
		}
		other, err := w.people.Create(ctx, tx, accounts.NewAccount{Email: "other@example.com", Developer: true})
		if err != nil {
			return err
		}
		if w.person, err = w.people.Create(ctx, tx, accounts.NewAccount{Email: "person@example.com"}); err != nil {
			return err
		}
		if w.tester, err = w.people.Create(ctx, tx, accounts.NewAccount{
			Email:   "tester@example.com",
			Sandbox: true,
			OwnerID: w.developer.ID,
		}); err != nil {
			return err
		}
		if w.app, _, err = w.apps.Create(ctx, tx, apps.New{
			OwnerID:      w.developer.ID,
			Name:         "My <b>App</b>",
			RedirectURIs: []string{"https://app.example.com/cb"},
		}); err != nil {
			return err
		}
		w.foreign, _, err = w.apps.Create(ctx, tx, apps.New{
			OwnerID:      other.ID,
			Name:         "Foreign",
			RedirectURIs: []string{"https://app.example.com/cb"},
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE accounts SET password_hash = $1`, apitest.PasswordHash(w.t))
	w.do(rules.TopUp{AccountID: w.person.ID, AmountMC: 100 * money.Dollar})
	w.do(rules.TopUp{AccountID: w.tester.ID, Sandbox: true, AmountMC: 100 * money.Dollar})
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(c rules.Command) rules.Result {
	w.t.Helper()
	r, err := w.ledger.Do(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("%T: %v", c, err)
	}
	return r
}

// mine is the path of a page of the developer's app.
func (w *world) mine(rest string) string { return "/developer/apps/" + w.app.ID + rest }

func (w *world) connect(accountID string, fake bool) rules.Connection {
	w.t.Helper()
	return w.do(rules.Connect{
		ConnectionID: id.New(id.Connection, w.d.Now()),
		AppID:        w.app.ID,
		AccountID:    accountID,
		Sandbox:      fake,
		RequestedMC:  20 * money.Dollar,
	}).Connection
}

// spend bills a call.
func (w *world) spend(c rules.Connection, feature, bucket string, cost, margin money.MC) rules.Entry {
	w.t.Helper()
	return w.spendUsage(c, feature, bucket, cost, margin, rules.Usage{
		JSON:         `{"input":1200,"output":34}`,
		InputTokens:  1200,
		OutputTokens: 34,
	})
}

// spendUsage bills a call with this usage.
func (w *world) spendUsage(
	c rules.Connection, feature, bucket string, cost, margin money.MC, usage rules.Usage,
) rules.Entry {
	w.t.Helper()
	_, rates, ok := w.prices.Find("gpt-5.6-terra", w.d.Now())
	if !ok {
		w.t.Fatal("the model is not offered")
	}
	call := rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        c.AppID,
		Key:          id.NewSecret(),
		RequestID:    id.New(id.Request, w.d.Now()),
		Fingerprint:  "f",
		Feature:      feature,
		FeatureLabel: bucket,
		Model:        "gpt-5.6-terra",
		Terms:        `{"rates":` + rates.Snapshot() + `}`,
		HoldMC:       cost + margin,
	}
	w.do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
	return w.do(rules.Settle{
		Call: call, Attempt: 1, Settlement: rules.Settled, Usage: usage,
		Charge: rules.Amounts{ProviderCostMC: cost, DevMarginMC: margin, UserChargeMC: cost + margin},
	}).Entry
}

// is returns the developer's app as it is now.
func (w *world) is() apps.App {
	w.t.Helper()
	a, err := w.apps.Get(w.t.Context(), w.app.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// authenticates reports whether the API takes the app's credentials.
func (w *world) authenticates(secret string) bool {
	w.t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(w.app.ClientID, secret)
	_, err := w.apps.Authenticate(w.t.Context(), r)
	return err == nil
}

// everything is what strangers and page views must leave as it was.
func (w *world) everything() (sum string) {
	w.t.Helper()
	err := w.d.QueryRowContext(w.t.Context(),
		`SELECT (SELECT COUNT(*) FROM apps) || ' ' || (SELECT MAX(secret_hash || name || suspended) FROM apps) || ' ' || (SELECT COUNT(*) FROM features) || ' ' || (SELECT COUNT(*) FROM app_logos) || ' ' || (SELECT COUNT(*) FROM accounts) || ' ' ||
		(SELECT COUNT(*) FROM webhooks) || ' ' || (SELECT COUNT(*) FROM deliveries) || ' ' || (SELECT COUNT(*) FROM golive_requests) || ' ' || (SELECT COUNT(*) FROM connections) || ' ' || (SELECT COUNT(*) FROM ledger) || ' ' ||
		(SELECT COUNT(*) FROM provider_keys) || ' ' || (SELECT COUNT(*) FROM oauth_tokens) || ' ' || (SELECT COUNT(*) FROM accounts WHERE developer = 1)`).Scan(&sum)
	if err != nil {
		w.t.Fatal(err)
	}
	return sum
}

func (w *world) browser() *apitest.Browser { return apitest.NewBrowser(w.t, w.URL) }

// signedIn is a browser in which somebody signed in.
func (w *world) signedIn(name string) *apitest.Browser {
	w.t.Helper()
	return w.browser().SignIn(name + "@example.com")
}

// upload sends a file as a browser's form does.
func (w *world) upload(b *apitest.Browser, path, field string, file []byte, headers ...string) apitest.Page {
	w.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile(field, "picture.png")
	if err == nil {
		_, err = part.Write(file)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequest("POST", w.URL+path, &body)
	if err == nil {
		req.Header.Set("Content-Type", form.FormDataContentType())
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return b.Do(req, err)
}
