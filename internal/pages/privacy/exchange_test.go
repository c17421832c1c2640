package privacy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestClosingBesideAnExchange closes a developer's account while a user connects to the developer's live app: either
// the closing finds the connection, or the exchange finds the app suspended. The closing that comes first is held up
// after it has looked for connections, and the exchange that comes first before it has stored its own.
func TestClosingBesideAnExchange(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"exchange", "closing"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *world) {
				w.Do(rules.Revoke{ConnectionID: w.conn.ID})
				exchange := w.newExchange()
				developer := w.signedIn("developer")
				closed := func() int {
					return developer.post(closing, farewell("developer@example.com")).status
				}
				started := []func() int{exchange, closed} // in their order
				held := "person"                          // whom the exchange locks after the app
				if first == "closing" {
					started[0], started[1], held = closed, exchange, "tester" // whom the closing deletes
				}
				statuses := [2]chan int{make(chan int, 1), make(chan int, 1)}
				w.inTx(func(ctx context.Context, tx *db.Tx) error {
					if _, err := accounts.Lock(ctx, tx, w.ids[held]); err != nil {
						return err
					}
					for i, start := range started {
						go func() { statuses[i] <- start() }()
						dbtest.AwaitLocks(t, w.d, i+1)
					}
					return nil
				})
				got := map[int]int{} // by status
				for i := range statuses {
					got[<-statuses[i]]++
				}
				live := w.count(`SELECT COUNT(*) FROM connections WHERE status <> 'revoked'`)
				ended := w.count(`SELECT COUNT(*) FROM apps WHERE suspension_by IS NOT NULL`)
				refused := got[http.StatusConflict] // of the closing
				if ended == 1 {                     // of the exchange, whose app has no secret any more
					refused = got[http.StatusBadRequest] + got[http.StatusUnauthorized]
				}
				if live+ended != 1 || got[http.StatusOK] != 1 || refused != 1 {
					t.Errorf("%d live connections, %d ended apps, statuses %v", live, ended, got)
				}
				if w.d.Engine == db.Postgres && (live == 1) != (first == "exchange") {
					t.Errorf("%d live connections", live)
				}
			})
		})
	}
}

// newExchange returns the exchange of a code that the person has approved, which returns its status.
func (w *world) newExchange() func() int {
	w.t.Helper()
	verifier := strings.Repeat("v", 43)
	store := &oauth.Store{DB: w.d, Ledger: w.Ledger, Now: w.Now}
	var code string
	w.inTx(func(ctx context.Context, tx *db.Tx) (err error) {
		code, err = store.CreateCode(ctx, tx, oauth.Consent{
			AppID:       w.app.ID,
			AccountID:   w.ids["person"],
			RedirectURI: w.app.RedirectURIs[0],
			Challenge:   id.Hash(verifier),
			CapMC:       money.Dollar,
		})
		return err
	})
	w.exec(`UPDATE apps SET secret_hash = $1 WHERE id = $2`, id.Hash("secret"), w.app.ID)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	(&oauth.Handler{Store: store, Apps: w.apps}).Mount(rt)
	server := httptest.NewServer(rt)
	w.t.Cleanup(server.Close)
	return func() int {
		form := url.Values{
			"grant_type":    {"authorization_code"},
			"code":          {code},
			"redirect_uri":  {w.app.RedirectURIs[0]},
			"code_verifier": {verifier},
		}
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, server.URL+"/oauth/token",
			strings.NewReader(form.Encode()))
		if err != nil {
			w.t.Error(err)
			return 0
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(w.app.ClientID, "secret")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Error(err)
			return 0
		}
		defer func() { _ = answer.Body.Close() }()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode >= 500 {
			w.t.Errorf("exchange: %d %s %v", answer.StatusCode, text, err)
		}
		return answer.StatusCode
	}
}

func (w *world) inTx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.d.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}
