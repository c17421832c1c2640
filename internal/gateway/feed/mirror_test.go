package feed

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/connections"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// TestMirrors runs random commands against the connections of a live app, pays its developer, and ends the node,
// restores an earlier copy of its database and lets months pass between them. Four applications follow, each by one
// source alone: webhooks, the list of events, the streams of the connections, and the call log. In the end each knows
// what GET says.
func TestMirrors(t *testing.T) {
	t.Parallel()
	seeds, payouts := 4, 0
	if testkit.IsLong() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newMirrorWorld(t, uint64(seed))
			for range 100 {
				w.step()
			}
			w.compare()
			payouts += w.accepted[fmt.Sprintf("%T", rules.BeginPayout{})]
		})
	}
	if payouts == 0 {
		t.Error("no payout was made")
	}
}

// unit is what amounts are multiples of: payouts are whole cents.
const unit = money.Cent / 10

// A mirrorWorld is an app of a node that can be ended and restored, and the app's mirrors.
type mirrorWorld struct {
	t      *testing.T
	rng    *mathrand.Rand
	folder string
	key    string // of the public log
	url    string // of the hook mirror's endpoint

	mu sync.Mutex
	at time.Time

	d         *db.DB
	ledger    *store.Writer
	hooks     *webhooks.Store
	publisher *proofs.Publisher
	tokens    *oauth.Store
	api       apitest.Client
	appID     string
	stop      func()

	copies   int
	backup   string // path of the last copy; "" = none
	spends   []rules.Entry
	accounts int
	accepted map[string]int // commands, by type

	byHook   hookMirror
	byList   listMirror
	byStream streamMirror
	byLog    logMirror
}

// state is what a mirror knows of a connection.
type state struct {
	ID       string
	Status   string
	Cap      int64  `json:"allocation_mc"`
	Daily    *int64 `json:"velocity_limit_mc"`
	Freeze   *struct{ Cause string }
	Consumed int64 `json:"consumed_mc"`
}

// told is the part of a state that events tell.
func (s state) told() string {
	daily, cause := int64(-1), ""
	if s.Daily != nil {
		daily = *s.Daily
	}
	if s.Freeze != nil {
		cause = s.Freeze.Cause
	}
	return fmt.Sprint(s.Status, s.Cap, daily, cause)
}

func newMirrorWorld(t *testing.T, seed uint64) *mirrorWorld {
	t.Helper()
	w := &mirrorWorld{
		t:      t,
		rng:    mathrand.New(mathrand.NewPCG(seed, 1)),
		folder: t.TempDir(),
		at:     time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),

		accepted: map[string]int{},
	}
	var err error
	if w.key, _, err = note.GenerateKey(rand.Reader, "purser.test/ledger"); err != nil {
		t.Fatal(err)
	}
	w.byHook.knows, w.byHook.seen = map[string]string{}, map[string]bool{}
	w.byList.knows, w.byList.status = map[string]string{}, map[string]string{}
	w.byStream.last, w.byStream.sum = map[string]string{}, map[string]int64{}
	w.byLog.sum, w.byLog.cursor = map[string]int64{}, "0"
	w.url = w.serveHook()
	w.start(w.path())
	err = w.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`); err != nil {
			return err
		}
		registry := apps.NewStore(w.d, w.now, true)
		app, secret, err := registry.Create(ctx, tx, apps.New{
			OwnerID:      "wac_dev",
			Name:         "Mirror",
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
		})
		w.appID, w.api.User, w.api.Secret = app.ID, app.ClientID, secret
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := w.api.Do(t, "POST", "/v1/apps/"+w.appID+"/webhooks", `{"url":"`+w.url+`"}`); a.Status != 200 {
		t.Fatal(a)
	}
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *mirrorWorld) path() string {
	w.copies++
	return filepath.Join(w.folder, fmt.Sprintf("%d.db", w.copies))
}

func (w *mirrorWorld) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(time.Millisecond)
	return w.at
}

func (w *mirrorWorld) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

// start opens a database and serves it.
func (w *mirrorWorld) start(path string) {
	t, quiet := w.t, slog.New(slog.DiscardHandler)
	var err error
	if w.d, err = db.Open(t.Context(), "sqlite:"+path); err != nil {
		t.Fatal(err)
	}
	w.d.RelaxLimits(12)
	w.ledger = store.NewWriter(w.d, w.now)
	box, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	w.hooks = webhooks.NewStore(w.d, box, w.now, webhooks.Addresses{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		HTTP:  true,
	}, web.Links{Dashboard: "https://dashboard.example"})
	if w.publisher, err = proofs.NewPublisher(w.d, w.key); err != nil {
		t.Fatal(err)
	}
	registry := apps.NewStore(w.d, w.now, true)
	w.tokens = &oauth.Store{DB: w.d, Ledger: w.ledger, Now: w.now}
	hub := NewHub(w.d, w.now)
	resolver := callers.NewResolver(w.d, w.tokens, registry, features.NewStore(w.d, w.now, nil), w.now)
	router := web.NewRouter(quiet, web.Links{})
	(&Handler{Hub: hub, Callers: resolver}).Mount(router)
	(&webhooks.Handler{Store: w.hooks, Apps: registry}).Mount(router)
	(&connections.Handler{DB: w.d, Apps: registry, Ledger: w.ledger}).Mount(router)
	(&receipts.Handler{
		DB:      w.d,
		Apps:    registry,
		Callers: resolver,
		Log:     &proofs.Log{DB: w.d, Key: w.publisher.Key()},
	}).Mount(router)
	server := httptest.NewServer(router)
	w.api.Base = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.ledger.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		hub.Stop()
		server.Close()
		cancel()
		running.Wait()
		if err := w.d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// dispatch queues and sends what is due. The endpoint refuses some events at first.
func (w *mirrorWorld) dispatch() {
	if err := webhooks.NewDispatcher(w.hooks, slog.New(slog.DiscardHandler), webhooks.Options{}).RunDue(
		w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *mirrorWorld) publish() {
	if err := w.publisher.Publish(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := w.publisher.IndexCalls(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// step does one random thing.
func (w *mirrorWorld) step() {
	switch n := w.rng.IntN(100); {
	case n < 60:
		w.command()
	case n < 66:
		w.dispatch()
	case n < 72:
		w.publish()
	case n < 78:
		w.dispatch() // what a GET shows is in the list then
		w.byList.poll(w)
	case n < 83:
		w.byStream.poll(w)
	case n < 88:
		w.byLog.poll(w)
	case n < 91: // the node ends
		w.stop()
		w.start(filepath.Join(w.folder, fmt.Sprintf("%d.db", w.copies)))
	case n < 95:
		w.backup = filepath.Join(w.folder, fmt.Sprintf("copy-%d", w.rng.Uint64()))
		if _, err := w.d.ExecContext(w.t.Context(), `VACUUM INTO '`+w.backup+`'`); err != nil {
			w.t.Fatal(err)
		}
	case n < 98:
		w.restore()
	default:
		w.pass(95 * 24 * time.Hour)
		if err := w.hooks.Purge(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// restore ends the node, and goes on with the last copy. The operator tells the apps, as the guide wants it.
func (w *mirrorWorld) restore() {
	if w.backup == "" {
		return
	}
	w.stop()
	content, err := os.ReadFile(w.backup)
	if err != nil {
		w.t.Fatal(err)
	}
	path := w.path()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.start(path)
	w.byHook.reconcile(w)
}

// command gives the ledger a random command. Many are refused.
func (w *mirrorWorld) command() {
	list := w.list()
	if len(list) < 2 || len(list) < 6 && w.rng.IntN(10) == 0 {
		w.accounts++
		account := fmt.Sprintf("wac_user_%d_%d", w.copies, w.accounts)
		w.do(rules.TopUp{AccountID: account, AmountMC: 10_000 * unit})
		w.do(rules.Connect{
			ConnectionID: id.New(id.Connection, w.now()),
			AppID:        w.appID,
			AccountID:    account,
			RequestedMC:  1_000 * unit,
		})
		return
	}
	c := list[w.rng.IntN(len(list))].ID
	switch n := w.rng.IntN(100); {
	case n < 34:
		w.spend(c)
	case n < 40:
		w.spend(c)
		w.payOut()
	case n < 55:
		if len(w.spends) > 0 {
			e := w.spends[w.rng.IntN(len(w.spends))]
			w.do(rules.Reverse{EntryID: e.ID, AccountID: e.AccountID, Reason: "odd", Receipt: receipts.JSON})
		}
	case n < 65:
		w.consentAgain(c)
	case n < 72:
		w.do(rules.ChangeCap{ConnectionID: c, TargetMC: money.MC(w.rng.IntN(3_000)) * unit})
	case n < 78:
		limit := money.MC(1+w.rng.IntN(3)) * 1_000 * unit
		w.do(rules.SetVelocityLimit{ConnectionID: c, LimitMC: &limit})
	case n < 82:
		w.do(rules.Freeze{ConnectionID: c, By: rules.FrozenByUser})
	case n < 86:
		w.do(rules.Freeze{ConnectionID: c, By: rules.FrozenByOperator, Subject: "opl_1", Reason: "Looks odd."})
	case n < 92:
		w.do(rules.Resume{ConnectionID: c})
	case n < 98:
		w.do(rules.Resume{ConnectionID: c, By: rules.FrozenByOperator})
	default:
		w.do(rules.Revoke{ConnectionID: c})
	}
}

// consentAgain lets the user of a connection allow the app to spend once more, also after a revoke.
func (w *mirrorWorld) consentAgain(connectionID string) {
	c, err := store.GetConnection(w.t.Context(), w.d, connectionID)
	if err != nil {
		w.t.Fatal(err)
	}
	w.do(rules.Connect{
		ConnectionID: id.New(id.Connection, w.now()),
		AppID:        w.appID,
		AccountID:    c.AccountID,
		RequestedMC:  money.MC(500+w.rng.IntN(2_000)) * unit,
	})
}

// do gives the ledger a command, and reports whether it was accepted.
func (w *mirrorWorld) do(c rules.Command) (rules.Result, bool) {
	w.t.Helper()
	r, err := w.ledger.Do(w.t.Context(), c)
	var refused *apierr.Error
	if err != nil && !errors.As(err, &refused) {
		w.t.Fatalf("%T: %v", c, err)
	}
	if err == nil {
		w.accepted[fmt.Sprintf("%T", c)]++
	}
	return r, err == nil
}

// spend makes a call: a third of its price, or all that is left.
func (w *mirrorWorld) spend(connectionID string) {
	c, err := store.GetConnection(w.t.Context(), w.d, connectionID)
	if err != nil {
		w.t.Fatal(err)
	}
	amount := money.MC(1+w.rng.IntN(500)) * unit
	if w.rng.IntN(3) == 0 {
		amount = max(c.RemainingMC(), 1)
	}
	call := rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        c.AppID,
		Key:          id.NewSecret(),
		RequestID:    id.New(id.Request, w.now()),
		Fingerprint:  "f",
		Model:        "gpt-6-luna",
		Terms: `{"rates":{"book":"2026-11-01","mc_per_million":[[0,100000,10000,100000,200000]]},` +
			`"margin_ppm":0,"fee_ppm":0,"input_tokens":1,"max_tokens":1}`,
		HoldMC: amount,
	}
	if _, ok := w.do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID}); !ok {
		return
	}
	r, _ := w.do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: "{}"},
		Charge:     rules.Amounts{ProviderCostMC: amount - amount/4, DevMarginMC: amount / 4, UserChargeMC: amount},
	})
	w.spends = append(w.spends, r.Entry)
}

// payOut pays what the app earned until yesterday, of which refunds take some back later. Stripe refuses some payouts.
func (w *mirrorWorld) payOut() {
	w.pass(24 * time.Hour)
	margin, err := store.ReadMaturedMargin(w.t.Context(), w.d, w.appID, w.now())
	if err != nil {
		w.t.Fatal(err)
	}
	payoutID := id.New("po_", w.now())
	if _, ok := w.do(rules.BeginPayout{
		PayoutID:    payoutID,
		AppID:       w.appID,
		DeveloperID: "wac_dev",
		Margin:      margin,
	}); !ok {
		return
	}
	end := rules.EndPayout{PayoutID: payoutID, AppID: w.appID, DeveloperID: "wac_dev", TransferID: "tr_" + payoutID}
	if w.rng.IntN(4) == 0 {
		end.TransferID, end.Failure = "", "refused"
	}
	w.do(end)
}

// read reads JSON that the API answers. It returns the status, and the cursor to go on from.
func (w *mirrorWorld) read(path, parameter string, into any) (status int, next string) {
	w.t.Helper()
	a := w.api.Do(w.t, "GET", path, "")
	if a.Status != 200 {
		return a.Status, ""
	}
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	if after := a.Header.Get(web.AfterHeader); after != "" {
		return 200, after
	}
	if m := nextLink.FindStringSubmatch(a.Header.Get("Link")); m != nil {
		u, err := url.Parse(m[1])
		if err != nil {
			w.t.Fatal(err)
		}
		next = u.Query().Get(parameter)
	}
	return 200, next
}

var nextLink = regexp.MustCompile(`<([^<>]*)>; rel="next"`)

// list returns all connections of the app.
func (w *mirrorWorld) list() (list []state) {
	if status, _ := w.read("/v1/connections", "", &list); status != 200 {
		w.t.Fatal(status)
	}
	return list
}

// get returns a connection as GET says. Of one that is unknown only its status is known.
func (w *mirrorWorld) get(connectionID string) (s state, known bool) {
	status, _ := w.read("/v1/connections/"+connectionID, "", &s)
	if status != 200 && status != 404 {
		w.t.Fatal(status)
	}
	return s, status == 200
}

// A hookMirror does what the guide's handlers do.
type hookMirror struct {
	mu    sync.Mutex
	knows map[string]string // by connection
	seen  map[string]bool   // ids of events; false = it was refused once
}

// serveHook serves the endpoint of the hook mirror, which refuses each fourth event at first.
func (w *mirrorWorld) serveHook() string {
	m := &w.byHook
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var event struct {
			ID           string
			ConnectionID string `json:"connection_id"`
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &event) != nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		done, refused := m.seen[event.ID]
		if !refused && event.ID[len(event.ID)-1]%4 == 0 {
			m.seen[event.ID] = false
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		if !done {
			m.update(w, event.ConnectionID)
			m.seen[event.ID] = true
		}
	}))
	w.t.Cleanup(server.Close)
	return server.URL
}

func (m *hookMirror) update(w *mirrorWorld, connectionID string) {
	if s, known := w.get(connectionID); known {
		m.knows[connectionID] = s.told()
	} else {
		delete(m.knows, connectionID)
	}
}

func (m *hookMirror) reconcile(w *mirrorWorld) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.knows)
	for _, s := range w.list() {
		m.knows[s.ID] = s.told()
	}
}

// A listMirror reads the list of events, and keeps what GET says of their connections, and the status that the events
// themselves say.
type listMirror struct {
	knows, status map[string]string // by connection
	cursor        string
	resets        int
}

func (m *listMirror) poll(w *mirrorWorld) {
	if m.cursor == "" {
		m.begin(w)
	}
	for m.cursor != "" {
		var events []struct {
			Type         string
			ConnectionID string `json:"connection_id"`
			Data         struct{ Connection *state }
		}
		status, next := w.read("/v1/apps/"+w.appID+"/events?limit=3&after="+m.cursor, "after", &events)
		if status == 400 {
			m.resets++
			m.begin(w)
			continue
		}
		for _, e := range events {
			if s, known := w.get(e.ConnectionID); known {
				m.knows[e.ConnectionID] = s.told()
			}
			if e.Data.Connection != nil {
				m.status[e.ConnectionID] = e.Data.Connection.Status
			}
		}
		if m.cursor = next; len(events) == 0 {
			return
		}
	}
}

// begin reads first the place, of which there is none before the first event, and then the connections.
func (m *listMirror) begin(w *mirrorWorld) {
	var newest []any
	_, m.cursor = w.read("/v1/apps/"+w.appID+"/events?limit=1", "after", &newest)
	clear(m.knows)
	clear(m.status)
	for _, s := range w.list() {
		m.knows[s.ID], m.status[s.ID] = s.told(), s.Status
	}
}

// A streamMirror reads the streams of all connections, and adds up charges less refunds.
type streamMirror struct {
	last map[string]string // id of the last event, by connection
	sum  map[string]int64
}

func (m *streamMirror) poll(w *mirrorWorld) {
	for _, s := range w.list() {
		m.follow(w, s.ID)
	}
}

// follow reads the stream of a connection up to its balance. A place that is unknown begins it again.
func (m *streamMirror) follow(w *mirrorWorld, connectionID string) {
	var token string
	if err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		given, err := w.tokens.IssueTokens(ctx, tx, connectionID, w.appID, "")
		token = given.AccessToken
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", w.api.Base+"/v1/connection/events", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Last-Event-ID", m.last[connectionID])
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == 403: // it is revoked, and there is nothing to catch up with
		return
	case resp.StatusCode == 400 && m.last[connectionID] != "":
		delete(m.last, connectionID)
		m.follow(w, connectionID)
		return
	case resp.StatusCode != 200:
		w.t.Fatalf("the stream of %s: %s", connectionID, resp.Status)
	}
	m.readStream(w, connectionID, &reader{w.t, resp, bufio.NewReader(resp.Body)})
}

func (m *streamMirror) readStream(w *mirrorWorld, connectionID string, r *reader) {
	begins := m.last[connectionID] == ""
	for {
		e, ok := r.next()
		if !ok {
			w.t.Fatalf("the stream of %s has no balance", connectionID)
		}
		if e.id != "" {
			m.last[connectionID] = e.id
		}
		switch e.kind {
		case "charge":
			m.sum[connectionID] += int64(e.data.Entry.UserChargeMC)
		case "refund":
			m.sum[connectionID] -= int64(e.data.Entry.UserChargeMC)
		case "balance":
			if begins {
				m.sum[connectionID] = int64(e.data.Connection.ConsumedMC)
			}
			return
		}
	}
}

// A logMirror reads the call log in the order of settlement, and adds up what connections were charged.
type logMirror struct {
	sum    map[string]int64
	cursor string
	resets int
}

func (m *logMirror) poll(w *mirrorWorld) {
	for {
		var rows []struct {
			ConnectionID string `json:"connection_id"`
			UserChargeMC int64  `json:"user_charge_mc"`
		}
		path := "/v1/apps/" + w.appID + "/requests?limit=3&settled_after=" + m.cursor
		status, next := w.read(path, "settled_after", &rows)
		if status == 400 {
			m.resets++
			clear(m.sum)
			m.cursor = "0"
			continue
		}
		for _, row := range rows {
			m.sum[row.ConnectionID] += row.UserChargeMC
		}
		if m.cursor = next; len(rows) == 0 {
			return
		}
	}
}

// compare lets everything be told, and compares the mirrors with what GET says.
func (w *mirrorWorld) compare() {
	for range 3 { // what was refused is sent again after a minute
		w.dispatch()
		w.pass(2 * time.Minute)
	}
	w.publish()
	w.byList.poll(w)
	w.byStream.poll(w)
	w.byLog.poll(w)
	for _, s := range w.list() {
		for mirror, knows := range map[string]string{"webhooks": w.byHook.knows[s.ID], "list": w.byList.knows[s.ID]} {
			if knows != s.told() {
				w.t.Errorf("by %s %s is %q; it is %q", mirror, s.ID, knows, s.told())
			}
		}
		if w.byList.status[s.ID] != s.Status {
			w.t.Errorf("the events of %s said %q; it is %q", s.ID, w.byList.status[s.ID], s.Status)
		}
		for mirror, sum := range map[string]int64{"stream": w.byStream.sum[s.ID], "call log": w.byLog.sum[s.ID]} {
			if sum != s.Consumed {
				w.t.Errorf("by %s %s has spent %d; it is %d", mirror, s.ID, sum, s.Consumed)
			}
		}
	}
	for _, c := range []rules.Command{rules.Settle{}, rules.Reverse{}, rules.Connect{}, rules.ChangeCap{}} {
		if w.accepted[fmt.Sprintf("%T", c)] == 0 {
			w.t.Errorf("no %T was accepted", c)
		}
	}
	w.t.Logf("%d connections, commands %v; begun again: list %d, call log %d", len(w.list()), w.accepted,
		w.byList.resets, w.byLog.resets)
}
