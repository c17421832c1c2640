package feed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A bundle is a served node with one user, who has connected two apps.
type bundle struct {
	*apitest.Books
	t      *testing.T
	hub    *Hub
	tokens *oauth.Store
	url    string
	conn   rules.Connection
	other  rules.Connection // of the same user
	token  string           // of conn
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	b := &bundle{Books: apitest.NewBooks(t, d), t: t}
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', '', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	b.Do(rules.TopUp{AccountID: "wac_user", AmountMC: 100 * money.Dollar})
	b.tokens = &oauth.Store{DB: d, Ledger: b.Ledger, Now: b.Now}
	b.conn, b.other = b.connect("app_1"), b.connect("app_2")
	b.token = b.issueToken(b.conn)
	b.hub, b.url = b.serve()
	b.Ledger.Observe = b.hub.Observe
	return b
}

// serve starts a node that serves the route, and polls.
func (b *bundle) serve() (*Hub, string) {
	b.t.Helper()
	hub := NewHub(b.DB, b.Now)
	router := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	resolver := callers.NewResolver(b.DB, b.tokens, apps.NewStore(b.DB, b.Now, true),
		features.NewStore(b.DB, b.Now, nil), b.Now)
	(&Handler{Hub: hub, Callers: resolver, keepAlive: 50 * time.Millisecond}).Mount(router)
	server := httptest.NewServer(router)
	ctx, stop := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			if err := hub.Poll(ctx); err != nil && ctx.Err() == nil {
				b.t.Error(err)
			}
			<-time.After(20 * time.Millisecond)
		}
	})
	b.t.Cleanup(func() {
		stop()
		polling.Wait()
		hub.Stop()
		server.Close()
	})
	return hub, server.URL
}

func (b *bundle) connect(appID string) rules.Connection {
	b.t.Helper()
	if _, err := b.DB.ExecContext(b.t.Context(),
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier,
			provider_mode, test_allowlist, dev_margin_ppm, created_us)
		VALUES ($1, 'wac_dev', 'App', $1, '', '[]', '[]', 'full-live', 'live', '[]', 100000, 1)`, appID); err != nil {
		b.t.Fatal(err)
	}
	return b.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        appID,
		AccountID:    "wac_user",
		RequestedMC:  10 * money.Dollar,
	}).Connection
}

func (b *bundle) issueToken(c rules.Connection) (token string) {
	b.t.Helper()
	if err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		given, err := b.tokens.IssueTokens(ctx, tx, c.ID, c.AppID, "")
		token = given.AccessToken
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return token
}

// A reader reads a stream, whose events are checked against the contract when it is closed.
type reader struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// received is one event as a client sees it.
type received struct {
	kind, id string
	data     struct {
		Type       string
		Connection struct {
			HeldMC, ConsumedMC, AllocationMC money.MC
			Status                           string
		}
		Entry struct {
			ID           string
			ConnectionID string   `json:"connection_id"`
			ReversalOf   *string  `json:"reversal_of"`
			UserChargeMC money.MC `json:"user_charge_mc"`
		}
		RequestID  string   `json:"request_id"`
		HoldMC     money.MC `json:"hold_amount_mc"`
		ReleasedMC money.MC `json:"released_mc"`
		Reason     string
		Reconnect  bool
	}
	text string
}

// ask sends a request for events. Headers are pairs.
func (b *bundle) ask(url, token string, headers ...string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: apitest.Transport(b.t, nil)}).Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (b *bundle) open(url string, headers ...string) *reader {
	b.t.Helper()
	resp := b.ask(url+"/v1/connection/events", b.token, headers...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		b.t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return &reader{b.t, resp, bufio.NewReader(resp.Body)}
}

func (r *reader) close() { _ = r.resp.Body.Close() }

// next returns the next event that is no comment; false = the stream has ended.
func (r *reader) next() (e received, ok bool) {
	r.t.Helper()
	var text bytes.Buffer
	for {
		line, err := r.in.ReadString('\n')
		if err == io.EOF {
			return e, false
		} else if err != nil {
			r.t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			text.WriteString(value)
			// The members of a connection end in _mc, which encoding/json does not match with MC.
			plain := strings.NewReplacer(`"held_mc"`, `"heldmc"`, `"consumed_mc"`, `"consumedmc"`,
				`"allocation_mc"`, `"allocationmc"`).Replace(value)
			if err := json.Unmarshal([]byte(plain), &e.data); err != nil {
				r.t.Fatalf("%v\n%s", err, value)
			}
		case "":
			if e.text = text.String(); e.kind != "" {
				return e, true
			}
		}
	}
}

// await reads until an event passes, and returns those that it has read.
func (r *reader) await(pass func(*received) bool) (read []received) {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream has ended after %+v", read)
		}
		if read = append(read, e); pass(&e) {
			return read
		}
	}
}

// awaitBoth reads until an event of a kind and another that passes have come, in any order, and returns the first. On
// PostgreSQL the poll may see a commit before the command's caller tells of it.
func (r *reader) awaitBoth(kind string, pass func(*received) bool) (found received) {
	r.t.Helper()
	first, second := false, false
	r.await(func(e *received) bool {
		if e.kind == kind {
			first, found = true, *e
		}
		second = second || pass(e)
		return first && second
	})
	return found
}

// awaitThen reads until an event of a kind has come, and after it a balance that passes. It returns the first. A
// balance before it may pass, too: the feed reads the connection after its rows.
func (r *reader) awaitThen(kind string, pass func(*received) bool) received {
	r.t.Helper()
	read := r.await(isKind(kind))
	r.await(func(e *received) bool { return e.kind == "balance" && pass(e) })
	return read[len(read)-1]
}

func isKind(kind string) func(*received) bool {
	return func(e *received) bool { return e.kind == kind }
}

func chargesOf(list []received) (ids []string) {
	for _, e := range list {
		if e.kind == "charge" || e.kind == "refund" {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// A call shows as a hold, a charge and the new balance, and a failed one as a hold and a release. What
// happens to the user's other connection does not show.
func TestEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		s := b.open(b.url)
		first, _ := s.next()
		if first.kind != "balance" || !strings.HasPrefix(first.id, id.Ledger) ||
			first.data.Connection.AllocationMC != 10*money.Dollar || strings.Contains(first.text, "available") {
			t.Errorf("first %+v", first)
		}
		b.Spend(b.other, money.Dollar)
		call := b.Hold(b.conn, 50*money.Cent)
		hold := s.awaitBoth("hold", func(e *received) bool { return e.data.Connection.HeldMC == 50*money.Cent })
		if hold.data.RequestID != call.RequestID || hold.data.HoldMC != 50*money.Cent {
			t.Errorf("a hold is %+v", hold)
		}
		b.Do(rules.Release{Call: call, Attempt: 1})
		release := s.awaitBoth("release", func(e *received) bool {
			return e.kind == "balance" && e.data.Connection.HeldMC == 0
		})
		if release.data.RequestID != call.RequestID || release.data.ReleasedMC != call.HoldMC {
			t.Errorf("a release is %+v", release)
		}
		row := b.Spend(b.conn, 20*money.Cent)
		charge := s.awaitThen("charge", func(e *received) bool { return e.data.Connection.ConsumedMC == 20*money.Cent })
		if charge.id != row.ID || charge.data.Entry.UserChargeMC != 20*money.Cent {
			t.Errorf("a charge is %+v", charge)
		}
		back := b.Do(rules.Reverse{EntryID: row.ID, AccountID: row.AccountID, Reason: "provider_error"}).Entry
		refund := s.awaitThen("refund", func(e *received) bool { return e.data.Connection.ConsumedMC == 0 })
		if refund.id != back.ID || *refund.data.Entry.ReversalOf != row.ID {
			t.Errorf("a refund is %+v", refund)
		}
		b.Do(rules.Freeze{ConnectionID: b.conn.ID, By: rules.FrozenByUser})
		s.await(func(e *received) bool { return e.data.Connection.Status == "frozen" })
		b.Do(rules.Revoke{ConnectionID: b.conn.ID})
		got := s.await(isKind("end"))
		if e := got[len(got)-1]; e.data.Reason != "connection_revoked" || e.data.Reconnect {
			t.Errorf("the end is %+v", e)
		}
		if _, more := s.next(); more {
			t.Error("the stream goes on after its end")
		}
		// What the client has missed still comes, and then nothing.
		s = b.open(b.url, "Last-Event-ID", row.ID)
		if got := chargesOf(s.await(isKind("end"))); len(got) != 1 || got[0] != back.ID {
			t.Errorf("after the revoke: %v", got)
		}
		if resp := b.ask(b.url+"/v1/connection/events", b.token, "Last-Event-ID", back.ID); resp.StatusCode != 403 {
			t.Errorf("a revoked connection: %d", resp.StatusCode)
		}
	})
}

// Changes of another process are seen by the poll: charges, holds in the balance, limits.
func TestEventsOfAnotherNode(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.Postgres)) // SQLite serves one process
	_, url := b.serve()                            // its hub observes no commands
	s := b.open(url)
	s.await(isKind("balance"))
	call := b.Hold(b.conn, 50*money.Cent)
	s.await(func(e *received) bool { return e.data.Connection.HeldMC == 50*money.Cent })
	b.Do(rules.Settle{Call: call, Attempt: 1, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
		Charge: rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7}})
	if got := s.await(isKind("charge")); got[len(got)-1].data.Entry.UserChargeMC != 7 {
		t.Errorf("%+v", got)
	}
	limit := money.Dollar
	b.Do(rules.SetVelocityLimit{ConnectionID: b.conn.ID, LimitMC: &limit})
	s.await(func(e *received) bool { return strings.Contains(e.text, `"velocity_limit_mc":100000000`) })
}

// Clients that disconnect again and again, while many calls are settled, get each charge once and in
// the order of the ledger.
func TestNoChargeIsMissed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		first, _ := b.open(b.url).next()
		var spent []string
		var spending sync.WaitGroup
		spending.Go(func() {
			for i := range 300 {
				if i%3 == 0 {
					b.Spend(b.other, money.Cent/100)
				}
				spent = append(spent, b.Spend(b.conn, money.Cent/100).ID)
			}
		})
		var got []string
		last, byQuery := first.id, false
		for len(got) < 300 {
			header, url := []string{"Last-Event-ID", last}, b.url
			s := func() *reader {
				if byQuery = !byQuery; byQuery {
					resp := b.ask(url+"/v1/connection/events?after="+last, b.token)
					return &reader{t, resp, bufio.NewReader(resp.Body)}
				}
				return b.open(url, header...)
			}()
			for range 40 {
				e, ok := s.next()
				if !ok {
					t.Fatal("the stream has ended")
				}
				if e.kind == "charge" {
					got = append(got, e.id)
				}
				if e.id != "" {
					last = e.id
				}
				if len(got) == 300 {
					break
				}
			}
			s.close()
		}
		spending.Wait()
		if strings.Join(got, " ") != strings.Join(spent, " ") {
			t.Errorf("got %d charges, want %d, in the order of the ledger", len(got), len(spent))
		}
	})
}

// A long backlog comes in pages, and the live events follow it.
func TestBacklog(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	first, _ := b.open(b.url).next()
	for range rowsPerRead + 20 {
		b.Spend(b.conn, money.Cent/100)
	}
	s := b.open(b.url, "Last-Event-ID", first.id)
	n := 0
	s.await(func(e *received) bool {
		if e.kind == "charge" {
			n++
		}
		return n == rowsPerRead+20
	})
}

// TestBacklogOfARevokedConnection: a client that has missed more than one read's rows gets all of them before the end.
func TestBacklogOfARevokedConnection(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	first, _ := b.open(b.url).next()
	for range rowsPerRead + 20 {
		b.Spend(b.conn, money.Cent/100)
	}
	b.Do(rules.Revoke{ConnectionID: b.conn.ID})
	charges := chargesOf(b.open(b.url, "Last-Event-ID", first.id).await(isKind("end")))
	if len(charges) != rowsPerRead+20 {
		t.Errorf("%d charges before the end", len(charges))
	}
}

// TestReadsAreBounded: a stream that begins far back in its account's chain reads one page of it at a time.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	b.Spend(b.conn, money.Cent)
	if _, err := b.DB.ExecContext(t.Context(), `UPDATE balances SET seq = 100000 WHERE account_id = $1`,
		b.conn.AccountID); err != nil { // as if the account's other connections had made calls since
		t.Fatal(err)
	}
	s := &stream{
		subscription: &subscription{changed: make(chan struct{}, 1)},
		hub:          b.hub,
		connectionID: b.conn.ID,
		accountID:    b.conn.AccountID,
	}
	reads, charges := 0, 0
	for ; s.seq < 100_000; reads++ {
		before := s.seq
		events, _, err := s.readEvents(t.Context())
		if err != nil || s.seq <= before || s.seq > before+10_000 {
			t.Fatalf("from %d to %d, %v", before, s.seq, err)
		}
		if charges += len(events); s.isBehind != (s.seq < 100_000) || s.isBehind && len(s.changed) == 0 {
			t.Errorf("at %d: behind %t, %d wakes", s.seq, s.isBehind, len(s.changed))
		}
	}
	if charges != 1 || reads < 10 {
		t.Errorf("%d charges in %d reads", charges, reads)
	}
}

// TestDatabaseWentBack puts the database back to an earlier moment under an open stream, and makes other calls, fewer
// or more than were lost. The stream ends: what came after its position would be missing. The client that opens it
// again is told that its last event is unknown.
func TestDatabaseWentBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, calls := range []int{1, 3, 5} {
			b := newBundle(t, dbtest.Open(t, d.Engine))
			b.Spend(b.conn, money.Cent)
			putBack := b.keep()
			s := b.open(b.url)
			s.await(isKind("balance"))
			for range 3 {
				b.Spend(b.conn, money.Cent)
			}
			lost := s.awaitThen("charge", func(e *received) bool {
				return e.data.Connection.ConsumedMC == 4*money.Cent
			})
			putBack()
			for range calls {
				b.Spend(b.conn, money.Cent/2)
			}
			for more := true; more; {
				var e received
				if e, more = s.next(); e.kind == "charge" {
					t.Errorf("%d calls: the stream goes on with %s", calls, e.text)
				}
			}
			again := b.ask(b.url+"/v1/connection/events?after="+lost.id, b.token)
			if again.StatusCode != http.StatusBadRequest {
				t.Errorf("%d calls: an event that is lost: %d", calls, again.StatusCode)
			}
		}
	})
}

// keep returns what puts the tables of the ledger back to what they are now.
func (b *bundle) keep() (putBack func()) {
	b.t.Helper()
	tables := []string{"balances", "connections", "ledger"}
	exec := func(statement string) {
		b.t.Helper()
		if _, err := b.DB.ExecContext(b.t.Context(), statement); err != nil {
			b.t.Fatal(statement, err)
		}
	}
	for _, table := range tables {
		exec(`CREATE TABLE kept_` + table + ` AS SELECT * FROM ` + table)
	}
	return func() {
		b.t.Helper()
		unlock := []string{`DROP TRIGGER ledger_no_delete`, `PRAGMA defer_foreign_keys = ON`}
		if b.DB.Engine == db.Postgres {
			unlock = []string{`SET LOCAL session_replication_role = replica`}
		}
		if err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for _, statement := range unlock {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			for _, table := range tables {
				if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO `+table+` SELECT * FROM kept_`+table); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// The stream ends when its token expires or is revoked, and when the node stops. What is wrong with a
// request is answered with its own status.
func TestEndsAndRefusals(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	refused := func(status int, url, token string, headers ...string) {
		t.Helper()
		if resp := b.ask(b.url+url, token, headers...); resp.StatusCode != status {
			t.Errorf("%s %v: %d, want %d", url, headers, resp.StatusCode, status)
		}
	}
	foreign := b.Spend(b.other, money.Cent)
	refused(401, "/v1/connection/events", "wrong")
	refused(400, "/v1/connection/events", b.token, "Last-Event-ID", foreign.ID)
	refused(400, "/v1/connection/events?after=led_nothing", b.token)
	refused(400, "/v1/connection/events?after=%27", b.token)

	var open []*reader
	for range maxStreamsPerConnection {
		open = append(open, b.open(b.url))
	}
	refused(429, "/v1/connection/events", b.token)
	open[0].close()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if resp := b.ask(b.url+"/v1/connection/events", b.token); resp.StatusCode == 200 {
			open[0] = &reader{t, resp, bufio.NewReader(resp.Body)}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed stream still counts")
		}
	}
	if _, err := b.DB.ExecContext(t.Context(), `DELETE FROM oauth_tokens`); err != nil {
		t.Fatal(err)
	}
	b.Pass(3 * time.Second) // callers are cached for two
	for _, s := range open {
		got := s.await(isKind("end"))
		if e := got[len(got)-1]; e.data.Reason != "token_expired" || !e.data.Reconnect {
			t.Errorf("the end of a token: %+v", e)
		}
	}
	b.token = b.issueToken(b.conn)
	s := b.open(b.url)
	b.hub.Stop()
	got := s.await(isKind("end"))
	if e := got[len(got)-1]; e.data.Reason != "server_shutdown" || !e.data.Reconnect {
		t.Errorf("the end of a node: %+v", e)
	}
	refused(503, "/v1/connection/events", b.token)
	if n := b.hub.open.Load(); n > 1 { // the handler of the last one may still return
		t.Errorf("%d streams are open", n)
	}
}

// A client that does not read loses holds and releases, and never charges; nobody waits for it.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, time.Now)
	s, err := hub.subscribe("conn_1", "wac_1")
	if err != nil {
		t.Fatal(err)
	}
	for range maxNotices + 10 {
		hub.Observe(rules.Hold{Call: rules.Call{ConnectionID: "conn_1"}}, &rules.Result{})
	}
	hub.Observe(rules.Hold{Call: rules.Call{ConnectionID: "conn_2"}}, &rules.Result{})
	if n := len(s.takeNotices()); n != maxNotices {
		t.Errorf("%d notices are kept", n)
	}
	hub.unsubscribe("conn_1", s)
	if len(hub.topics) != 0 || hub.open.Load() != 0 {
		t.Errorf("%d topics, %d streams remain", len(hub.topics), hub.open.Load())
	}
}

// Without streams, observing a command allocates nothing.
func TestObserveIsFree(t *testing.T) {
	hub := NewHub(nil, time.Now)
	c, r := rules.Command(rules.Hold{}), &rules.Result{}
	if n := testing.AllocsPerRun(100, func() { hub.Observe(c, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestDevelopersShareStreams: a developer with any number of connections leaves streams to others, whose share grows as
// the first one's streams end.
func TestDevelopersShareStreams(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, time.Now)
	open := map[string][]*subscription{}
	fill := func(developerID string) int {
		for i := 0; ; i++ {
			s, err := hub.subscribe(fmt.Sprint(developerID, "/", i/maxStreamsPerConnection), developerID)
			if err != nil {
				e, ok := errors.AsType[*apierr.Error](err)
				if !ok || e.Code != apierr.Unavailable || e.RetryAfter == 0 {
					t.Fatalf("%v", err)
				}
				return i
			}
			open[developerID] = append(open[developerID], s)
		}
	}
	greedy, second, third := fill("wac_1"), fill("wac_2"), fill("wac_3")
	if greedy < maxStreams*8/9 || greedy > maxStreams*9/10 || second < 100 || third < 10 {
		t.Errorf("the first developer has %d streams, and then others %d and %d", greedy, second, third)
	}
	for i, s := range open["wac_1"] {
		hub.unsubscribe(fmt.Sprint("wac_1/", i/maxStreamsPerConnection), s)
	}
	if hub.streams.Keys() != 2 || int(hub.open.Load()) != second+third {
		t.Errorf("streams that ended are counted: %+v, %d", hub.streams, hub.open.Load())
	}
	if again := fill("wac_4"); again < 1000 {
		t.Errorf("a new developer has %d streams", again)
	}
}
