package holds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/holds"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// freeBurst is how many holds of sandbox apps a node takes at once.
const freeBurst = 3

// A world is an app that charges for its own work, with a user who has allowed it, on two nodes.
type world struct {
	*testing.T
	*apitest.Books
	apps   *apps.Store
	app    apps.App
	conn   rules.Connection
	secret string
	nodes  []apitest.Client
	tokens *oauth.Store
	rate   *web.Limiter // of holds of nodes that are added; nil = none
}

func newWorld(t *testing.T, d *db.DB) *world {
	b := apitest.NewBooks(t, d)
	clients := apps.NewStore(d, b.Now, true)
	w := &world{T: t, Books: b, apps: clients, tokens: &oauth.Store{DB: d, Ledger: b.Ledger, Now: b.Now}}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', '', 1, 1), ('wac_user', 'user@example.com', '', 0, 1)`)
		if err != nil {
			return err
		}
		w.app, w.secret, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      "wac_dev",
			Name:         "Archive",
			RedirectURIs: []string{"https://app.example.com/callback"},
			Tier:         apps.FullLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Do(rules.TopUp{AccountID: "wac_user", AmountMC: 100 * money.Dollar})
	w.conn = w.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        w.app.ID,
		AccountID:    "wac_user",
		RequestedMC:  10 * money.Dollar,
	}).Connection
	w.addNode(money.One / 20)
	w.addNode(money.One / 20)
	return w
}

// addNode adds a node with a fee.
func (w *world) addNode(fee money.PPM) {
	w.Helper()
	p := policy.Default
	p.Fee = fee
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{Dashboard: "https://purser.example"})
	rt.SetClock(w.Now)
	resolver := callers.NewResolver(w.DB, w.tokens, w.apps, features.NewStore(w.DB, w.Now, nil), w.Now)
	(&holds.Handler{
		DB:       w.DB,
		Ledger:   w.Ledger,
		NodeID:   fmt.Sprintf("node_%d", len(w.nodes)),
		Apps:     w.apps,
		Tokens:   w.tokens,
		Callers:  resolver,
		Policies: policies.Fixed(p),
		FreeRate: callers.NewFreeRate(1, freeBurst, w.Now),
		Rate:     w.rate,
	}).Mount(rt)
	(&receipts.Handler{DB: w.DB, Apps: w.apps, Callers: resolver}).Mount(rt)
	server := httptest.NewServer(rt)
	w.Cleanup(server.Close)
	w.nodes = append(w.nodes, apitest.Client{Base: server.URL})
}

// allow switches own work on, and has the user allow it.
func (w *world) allow() {
	w.Helper()
	if _, err := w.DB.ExecContext(w.Context(), `UPDATE apps SET own_work = 1`); err != nil {
		w.Fatal(err)
	}
	if _, err := w.DB.ExecContext(w.Context(), `INSERT INTO work_consents
			(app_id, account_id, connection_id, created_us)
		VALUES ($1, 'wac_user', $2, 1)`, w.app.ID, w.conn.ID); err != nil {
		w.Fatal(err)
	}
}

// signIn gives the nodes' clients an access token of the connection.
func (w *world) signIn() {
	w.Helper()
	err := w.DB.InTx(w.Context(), func(ctx context.Context, tx *db.Tx) error {
		t, err := w.tokens.IssueTokens(ctx, tx, w.conn.ID, w.app.ID, "")
		for i := range w.nodes {
			w.nodes[i].Bearer = t.AccessToken
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

type hold struct {
	ID         string    `json:"id"`
	Status     string    `json:"status"`
	AmountMC   money.MC  `json:"amount_mc"`
	CapturedMC *money.MC `json:"captured_mc"`
	FeeMC      *money.MC `json:"svc_fee_mc"`
	MarginMC   *money.MC `json:"dev_margin_mc"`
}

// post sends a request to a node, and returns the hold of an answer 200.
func (w *world) post(node int, path, body, key string) (h hold, a apitest.Answer) {
	w.Helper()
	a = w.nodes[node].Do(w.T, "POST", path, body, "Idempotency-Key", key)
	if a.Status == 200 {
		if err := json.Unmarshal([]byte(a.Body), &h); err != nil {
			w.Fatal(err)
		}
	}
	return h, a
}

func (w *world) create(amount money.MC) hold {
	w.Helper()
	h, a := w.post(0, "/v1/holds", fmt.Sprintf(`{"amount_mc":%d,"description":"A search"}`, amount), id.NewUUID())
	if a.Status != 200 || h.Status != "held" {
		w.Fatalf("create: %d %s", a.Status, a.Body)
	}
	return h
}

// wantMoney checks the connection's money.
func (w *world) wantMoney(what string, held, consumed money.MC) {
	w.Helper()
	if c := w.Is(w.conn); c.HeldMC != held || c.ConsumedMC != consumed {
		w.Errorf("%s: held %d, consumed %d; want %d, %d", what, c.HeldMC, c.ConsumedMC, held, consumed)
	}
}

// TestCapture holds, captures a part on another node, and repeats both: one charge, of which the fee is a part.
func TestCapture(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.allow()
		w.signIn()
		key, body := id.NewUUID(), `{"amount_mc":1000,"description":"A search"}`
		h, a := w.post(0, "/v1/holds", body, key)
		if a.Status != 200 || h.Status != "held" || h.AmountMC != 1000 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if again, a := w.post(1, "/v1/holds", body, key); again.ID != h.ID {
			t.Errorf("the same key: %d %s", a.Status, a.Body)
		}
		if _, a := w.post(0, "/v1/holds", `{"amount_mc":1001,"description":"A search"}`, key); a.Status != 409 {
			t.Errorf("the same key for another amount: %d %s", a.Status, a.Body)
		}
		w.wantMoney("held", 1000, 0)
		for _, wrong := range []string{`{"amount_mc":1001}`, `{"amount_mc":0}`, `{"amount_mc":-1}`, `{"amount":1}`} {
			if _, a := w.post(0, "/v1/holds/"+h.ID+"/capture", wrong, ""); a.Status != 400 {
				t.Errorf("%s: %d %s", wrong, a.Status, a.Body)
			}
		}
		for node := range w.nodes {
			got, a := w.post(1-node, "/v1/holds/"+h.ID+"/capture", `{"amount_mc":61}`, "")
			if a.Status != 200 || got.Status != "captured" || *got.CapturedMC != 61 || *got.FeeMC != 4 ||
				*got.MarginMC != 57 {
				t.Errorf("capture %d: %d %s", node, a.Status, a.Body)
			}
		}
		w.wantMoney("captured", 0, 61)
		if _, a := w.post(0, "/v1/holds/"+h.ID+"/capture", `{"amount_mc":62}`, ""); a.Status != 400 {
			t.Errorf("another amount: %d %s", a.Status, a.Body)
		}
		if _, a := w.post(0, "/v1/holds/"+h.ID+"/release", "", ""); a.Status != 400 {
			t.Errorf("released after the capture: %d %s", a.Status, a.Body)
		}
		receipt := w.nodes[0].Do(t, "GET", "/v1/requests/"+h.ID, "").Body
		if !strings.Contains(receipt, `“A search”: $0.00000057 for the app and $0.00000004 of service fee`) {
			t.Errorf("the receipt: %s", receipt)
		}
		var events int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM events WHERE type = 'request.settled'`).
			Scan(&events); err != nil || events != 1 {
			t.Errorf("%d events, %v", events, err)
		}
	})
}

// TestRepeatedUnderOtherSettings repeats requests after the fee and the app's mode and margin have changed, and after
// the app no longer charges for its own work: the key answers the same hold, and no other request.
func TestRepeatedUnderOtherSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.addNode(money.One / 10)
		w.allow()
		w.signIn()
		key, body := id.NewUUID(), `{"amount_mc":1000,"description":"A search"}`
		charged := id.NewUUID()
		h, _ := w.post(0, "/v1/holds", body, key)
		other, _ := w.post(0, "/v1/holds", body, charged)
		if _, a := w.post(0, "/v1/holds/"+other.ID+"/capture", `{"amount_mc":61}`, ""); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		for _, change := range []string{
			``,
			`UPDATE apps SET dev_margin_ppm = 500000`,
			`UPDATE apps SET provider_mode = 'mock'`,
			`UPDATE holds SET fingerprint = 'of an earlier version'`,
			`UPDATE apps SET own_work = 0`,
			`DELETE FROM work_consents`,
		} {
			if change != "" {
				if _, err := d.ExecContext(t.Context(), change); err != nil {
					t.Fatal(err)
				}
			}
			w.Pass(3 * time.Second) // longer than callers are cached
			if again, a := w.post(2, "/v1/holds", body, key); again.ID != h.ID || again.Status != "held" {
				t.Errorf("%s: %d %s", change, a.Status, a.Body)
			}
			if again, a := w.post(2, "/v1/holds", body, charged); again.ID != other.ID || again.Status != "captured" {
				t.Errorf("%s: %d %s", change, a.Status, a.Body)
			}
			const another = `{"amount_mc":1000,"description":"Another search"}`
			if _, a := w.post(2, "/v1/holds", another, key); a.Status != 409 && a.Status != 400 {
				t.Errorf("%s: %d %s", change, a.Status, a.Body)
			}
		}
		w.wantMoney("in the end", 1000, 61)
	})
}

// TestRepeatedAfterAPause: a connection that is paused or revoked answers 403 to the key of a hold, at a node that has
// just cached its caller as at any other, also while the app no longer charges for its own work.
func TestRepeatedAfterAPause(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		for _, ownWork := range []int{1, 0} {
			w := newWorld(t, dbtest.Open(t, d.Engine))
			w.allow()
			w.signIn()
			key, body := id.NewUUID(), `{"amount_mc":1000,"description":"A search"}`
			h, _ := w.post(0, "/v1/holds", body, key)
			if _, err := w.DB.ExecContext(t.Context(), `UPDATE apps SET own_work = $1`, ownWork); err != nil {
				t.Fatal(err)
			}
			w.Pass(3 * time.Second) // longer than callers are cached
			wantCode := func(code string) {
				t.Helper()
				for node := range w.nodes {
					_, a := w.post(node, "/v1/holds", body, key)
					if a.Status != 403 || !strings.Contains(a.Body, code) {
						t.Errorf("own work %d, node %d: %d %s, want %s", ownWork, node, a.Status, a.Body, code)
					}
				}
			}
			if again, a := w.post(0, "/v1/holds", body, key); again.ID != h.ID {
				t.Errorf("own work %d: %d %s", ownWork, a.Status, a.Body)
			}
			w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser})
			wantCode("connection_frozen")
			w.Do(rules.Resume{ConnectionID: w.conn.ID})
			w.Pass(3 * time.Second)
			if again, a := w.post(0, "/v1/holds", body, key); again.ID != h.ID {
				t.Errorf("own work %d, resumed: %d %s", ownWork, a.Status, a.Body)
			}
			w.Do(rules.Revoke{ConnectionID: w.conn.ID})
			wantCode("connection_revoked")
		}
	})
}

// TestRelease gives everything back, and its key is not for another hold.
func TestRelease(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.allow()
		w.signIn()
		key, body := id.NewUUID(), `{"amount_mc":1000,"description":"A search"}`
		h, _ := w.post(0, "/v1/holds", body, key)
		for node := range w.nodes {
			if got, a := w.post(node, "/v1/holds/"+h.ID+"/release", "", ""); got.Status != "released" {
				t.Errorf("release %d: %d %s", node, a.Status, a.Body)
			}
		}
		w.wantMoney("released", 0, 0)
		if _, a := w.post(0, "/v1/holds/"+h.ID+"/capture", "", ""); a.Status != 400 {
			t.Errorf("captured after the release: %d %s", a.Status, a.Body)
		}
		if got, a := w.post(0, "/v1/holds", body, key); got.ID != h.ID || got.Status != "released" {
			t.Errorf("its key again: %d %s", a.Status, a.Body)
		}
		w.wantMoney("in the end", 0, 0)
	})
}

// TestRevokedMeanwhile: what was held before the user revoked the connection is the app's to capture, by its own
// credentials, and what it leaves goes to the user's balance.
func TestRevokedMeanwhile(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.allow()
		w.signIn()
		one, other := w.create(1000), w.create(500)
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		if _, a := w.post(0, "/v1/holds", `{"amount_mc":1,"description":"A search"}`, id.NewUUID()); a.Status == 200 {
			t.Errorf("held after the revocation: %s", a.Body)
		}
		w.nodes[0].Bearer = ""
		w.nodes[0].User, w.nodes[0].Secret = w.app.ClientID, w.secret
		if _, a := w.post(0, "/v1/holds/"+one.ID+"/capture", `{"amount_mc":100}`, ""); a.Status != 200 {
			t.Errorf("capture: %d %s", a.Status, a.Body)
		}
		if _, a := w.post(0, "/v1/holds/"+other.ID+"/release", "", ""); a.Status != 200 {
			t.Errorf("release: %d %s", a.Status, a.Body)
		}
		w.wantMoney("in the end", 0, 100)
		b, err := store.GetBalance(t.Context(), d, "wac_user")
		if err != nil || b.AvailableMC != 100*money.Dollar-100 || b.ReservedMC != 0 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// TestConsent: neither the app alone nor the user alone make charges possible, and other apps do not see a hold.
func TestConsent(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.signIn()
		refused := func(says string) {
			t.Helper()
			w.Pass(3 * time.Second) // longer than callers are cached
			_, a := w.post(0, "/v1/holds", `{"amount_mc":1000,"description":"A search"}`, id.NewUUID())
			if a.Status != 400 || !strings.Contains(a.Body, says) {
				t.Errorf("%d %s, want %q", a.Status, a.Body, says)
			}
		}
		refused("switch own_work on")
		if _, err := d.ExecContext(t.Context(), `UPDATE apps SET own_work = 1`); err != nil {
			t.Fatal(err)
		}
		refused("send them through the authorization again")
		w.allow()
		h := w.create(1000)
		for _, wrong := range []string{`{}`, `{"amount_mc":0,"description":"x"}`, `{"amount_mc":1}`,
			`{"amount_mc":9223372036854775807,"description":"x"}`, `{"amount_mc":1000000000000001,"description":"x"}`,
			`{"amount_mc":1,"description":" "}`, `{"amount_mc":1,"description":"a\u202eb"}`,
			`{"amount_mc":99000000000000,"description":"more than there is"}`} {
			if _, a := w.post(0, "/v1/holds", wrong, id.NewUUID()); a.Status != 400 && a.Status != 402 {
				t.Errorf("%s: %d %s", wrong, a.Status, a.Body)
			}
		}
		call := w.Hold(w.conn, 100) // a call is no hold here
		if a := w.nodes[0].Do(t, "GET", "/v1/holds/"+call.RequestID, ""); a.Status != 404 {
			t.Errorf("a call: %d %s", a.Status, a.Body)
		}
		other := w.Do(rules.Connect{
			ConnectionID: id.New(id.Connection, w.Now()),
			AppID:        "app_other",
			AccountID:    "wac_user",
			RequestedMC:  money.Dollar,
		}).Connection
		w.conn = other
		w.signIn()
		if a := w.nodes[0].Do(t, "GET", "/v1/holds/"+h.ID, ""); a.Status == 200 {
			t.Errorf("another connection: %d %s", a.Status, a.Body)
		}
	})
}

// TestOneEnd captures and releases the same holds on two nodes at once: each ends once, and no micro-cent is lost.
func TestOneEnd(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.allow()
		w.signIn()
		const n = 20
		var captured, released int
		for range n {
			h := w.create(1000)
			var wg sync.WaitGroup
			var ends [4]string
			for i := range ends {
				wg.Go(func() {
					verb := []string{"capture", "release"}[i%2]
					got, _ := w.post(i/2, "/v1/holds/"+h.ID+"/"+verb, "", "")
					ends[i] = got.Status
				})
			}
			wg.Wait()
			switch strings.Join(ends[:], " ") {
			case "captured  captured ":
				captured++
			case " released  released":
				released++
			default:
				t.Errorf("a hold ended as %q", ends)
			}
		}
		if captured+released != n {
			t.Errorf("%d captured, %d released", captured, released)
		}
		w.wantMoney("in the end", 0, money.MC(1000*captured))
	})
}

// TestRateOfHolds: each hold that is captured leaves a ledger row, also one of a micro-cent, so those of a connection
// have a rate. The key of a hold that was refused works later, and one that was used answers its hold meanwhile.
func TestRateOfHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.rate = web.NewLimiter(time.Minute, 2, w.Now)
	w.addNode(0)
	w.allow()
	w.signIn()
	node, keys := len(w.nodes)-1, []string{id.NewUUID(), id.NewUUID(), id.NewUUID()}
	for i, want := range []int{200, 200, 429, 200} {
		_, a := w.post(node, "/v1/holds", `{"amount_mc":1,"description":"A search"}`, keys[i%3])
		if a.Status != want || want == 429 && a.Header.Get("Retry-After") == "" {
			t.Errorf("hold %d: %d %s", i, a.Status, a.Body)
		}
	}
	w.Pass(time.Minute)
	if _, a := w.post(node, "/v1/holds", `{"amount_mc":1,"description":"A search"}`, keys[2]); a.Status != 200 {
		t.Errorf("later: %d %s", a.Status, a.Body)
	}
}

// TestRateOfSandboxHolds: each hold of a sandbox app that is captured leaves a ledger row for nothing, whatever its
// provider mode is. So they have the rate of what is free; those of a live app do not.
func TestRateOfSandboxHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.allow()
	w.signIn()
	for range freeBurst + 1 {
		w.create(1)
	}
	for _, mode := range []string{"mock", "live"} {
		_, err := w.DB.ExecContext(t.Context(), `UPDATE apps SET tier = 'sandbox', provider_mode = $1`, mode)
		if err != nil {
			t.Fatal(err)
		}
		w.Pass(10 * time.Second) // the cache of callers, and the rate
		for range freeBurst {
			w.create(1)
		}
		_, a := w.post(0, "/v1/holds", `{"amount_mc":1,"description":"A search"}`, id.NewUUID())
		if a.Status != 429 || !strings.Contains(a.Body, "rate_limited") || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", mode, a.Status, a.Body)
		}
	}
}
