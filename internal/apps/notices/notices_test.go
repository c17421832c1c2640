package notices_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const (
	dashboard = "https://purser.example.com"
	password  = "a long enough one"
)

// world is a node's part that makes mail of notices: a person, a developer with a
// test account, an app, and the pages.
type world struct {
	*notices.Store
	t                    *testing.T
	accounts             *accounts.Store
	url                  string
	ada, developer, test accounts.Account
	app                  apps.App
	log                  bytes.Buffer
	seq                  int
	clock                time.Time
}

// newWorld makes one. With a password everybody can sign in by it; hashing it takes time.
func newWorld(t *testing.T, d *db.DB, appName, password string) *world {
	t.Helper()
	w := &world{t: t, clock: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	now := func() time.Time { return w.clock }
	w.accounts = accounts.NewStore(d, now)
	stops, err := notices.NewSigner(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	store := apps.NewStore(d, now, false)
	w.Store = &notices.Store{
		DB:    d,
		Apps:  store,
		Mails: &mail.Store{DB: d, Now: now},
		Links: web.Links{Dashboard: dashboard},
		Stops: stops,
		Log:   slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, a := range []struct {
			to *accounts.Account
			accounts.NewAccount
		}{
			{&w.ada, accounts.NewAccount{Email: "ada@example.com", Password: password}},
			{&w.developer, accounts.NewAccount{Email: "dev@example.com", Password: password, Developer: true}},
		} {
			if *a.to, err = w.accounts.Create(ctx, tx, a.NewAccount); err != nil {
				return err
			}
		}
		if w.test, err = w.accounts.Create(ctx, tx, accounts.NewAccount{
			Email:    "test@example.com",
			Password: password,
			Sandbox:  true,
			OwnerID:  w.developer.ID,
		}); err != nil {
			return err
		}
		w.app, _, err = store.Create(ctx, tx, apps.New{OwnerID: w.developer.ID, Name: appName})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.accounts, false)
	(&accounts.Handler{Store: w.accounts, Sessions: sessions}).Mount(rt)
	(&notices.Handler{Accounts: w.accounts, Sessions: sessions, Stops: stops}).Mount(rt)
	srv := httptest.NewServer(rt)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

// happen writes a notice as the ledger does.
func (w *world) happen(kind, accountID, appID, data string) {
	w.t.Helper()
	w.seq++
	_, err := w.DB.ExecContext(w.t.Context(), `INSERT INTO notices (id, kind, account_id, connection_id, app_id, data,
			created_us) VALUES ($1, $2, $3, 'conn_x', $4, $5, 1)`,
		fmt.Sprintf("ntc_%04d", w.seq), kind, accountID, appID, data)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) once() {
	w.t.Helper()
	if err := w.QueuePending(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// all is the outbox.
func (w *world) all() []mail.Mail {
	w.t.Helper()
	list, err := w.Mails.ListNewest(w.t.Context(), 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

const half = `{"connection":{"id":"conn_x","allocation_mc":2500000000,"consumed_mc":1250000000,"allocation_remaining_mc":1250000000}}`

const request = `{"allocation_request":{"id":"acr_1","current_allocation_mc":2500000000,"target_allocation_mc":4000000000,"reason":"Win a prize"}}`

func TestEachKindSaysWhatHappened(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]struct {
		subject, link string
		says          []string
		stoppable     bool
	}{
		"allocation_50": {"“Notes” has used half of its spend cap", "/connections/conn_x/increase",
			[]string{"used $12.50 of its $25.00", "$12.50 is left"}, true},
		"allocation_80": {"“Notes” has used 80% of its spend cap", "/connections/conn_x/increase",
			[]string{"used $12.50 of its $25.00"}, true},
		"allocation_100": {"“Notes” has used all of its spend cap", "/connections/conn_x/increase",
			[]string{"$25.00", "can’t make more calls"}, true},
		"frozen": {"We paused “Notes”: please review its spending", "/connections/conn_x/review",
			[]string{"paused it", "used $12.50 of its $25.00",
				"You’re receiving this because it concerns your balance."}, false},
		"allocation_request": {
			"“Notes” requested a higher spend cap", "/allocation-requests/acr_1",
			[]string{"from $25.00 to $40.00", "Nothing changes unless you approve"}, true,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
				w := newWorld(t, d, "Notes", "")
				data := half
				if kind == "allocation_request" {
					data = request
				}
				w.happen(kind, w.ada.ID, w.app.ID, data)
				w.once()
				w.once()
				all := w.all()
				if len(all) != 1 {
					t.Fatalf("%d mails\n%s", len(all), &w.log)
				}
				m := all[0]
				if m.To != "ada@example.com" || m.AccountID != w.ada.ID || m.Subject != want.subject {
					t.Errorf("%q to %s", m.Subject, m.To)
				}
				for _, text := range append(want.says, dashboard+want.link) {
					if !strings.Contains(m.Text, text) || !strings.Contains(m.HTML, text) {
						t.Errorf("%q is not in\n%s\n%s", text, m.Text, m.HTML)
					}
				}
				if strings.Contains(m.Text, "prize") {
					t.Error("the app writes in our mail")
				}
				stop := dashboard + "/unsubscribe/" + w.Stops.Sign(w.ada.ID)
				if want.stoppable != (m.Unsubscribe == stop) || want.stoppable != strings.Contains(m.Text, stop) ||
					want.stoppable != strings.Contains(m.HTML, stop) {
					t.Errorf("to stop it: %q\n%s", m.Unsubscribe, m.Text)
				}
			})
		})
	}
}

// Test accounts get nothing; whoever stopped notices is still told that an app is
// paused; what nobody can make a mail of holds nothing up.
func TestWhoIsToldWhat(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		for _, kind := range []string{"allocation_50", "allocation_80", "allocation_100", "frozen",
			"allocation_request"} {
			w.happen(kind, w.test.ID, w.app.ID, half)
		}
		w.once()
		if n := len(w.all()); n != 0 {
			t.Fatalf("the test account got %d mails", n)
		}
		if err := w.accounts.SetNotices(t.Context(), w.ada.ID, false); err != nil {
			t.Fatal(err)
		}
		w.happen("allocation_50", w.ada.ID, w.app.ID, half)
		w.happen("allocation_request", w.ada.ID, w.app.ID, half)
		w.happen("frozen", w.ada.ID, w.app.ID, half)
		w.once()
		if all := w.all(); len(all) != 1 || !strings.Contains(all[0].Subject, "We paused") {
			t.Fatalf("after stopping notices: %d mails", len(all))
		}
		if err := w.accounts.SetNotices(t.Context(), w.ada.ID, true); err != nil {
			t.Fatal(err)
		}
		w.happen("unheard_of", w.ada.ID, w.app.ID, half)
		w.happen("frozen", "wac_gone", w.app.ID, half)
		w.happen("frozen", w.ada.ID, "app_gone", half)
		w.happen("allocation_50", w.ada.ID, w.app.ID, "{")
		w.happen("allocation_50", w.ada.ID, w.app.ID, half)
		w.once()
		if n := len(w.all()); n != 2 {
			t.Errorf("%d mails, want 2", n)
		}
		if n := strings.Count(w.log.String(), "notice not turned into email"); n != 4 {
			t.Errorf("%d are logged, want 4\n%s", n, &w.log)
		}
	})
}

// More than a batch waits, and two nodes take it at once: each becomes one mail.
func TestNoticesBecomeOneMailEach(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		for range 230 {
			w.happen("allocation_50", w.ada.ID, w.app.ID, half)
		}
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.QueuePending(t.Context()) }()
		}
		for range 2 {
			// On a busy machine one waits too long for the other.
			if err := <-done; err != nil && !db.IsUnavailable(err) {
				t.Error(err)
			}
		}
		w.once()
		if n := len(w.all()); n != 230 {
			t.Errorf("%d mails of 230 notices", n)
		}
	})
}

// An app chooses its name; the mail stays ours.
func TestNamesOfAppsAreText(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`<script>alert(1)</script>`, `"><a href="https://evil.example.com">Pay</a>`,
		`{{.Stop}}`, `a & b`} {
		w := newWorld(t, dbtest.Open(t, db.SQLite), name, "")
		w.happen("frozen", w.ada.ID, w.app.ID, half)
		w.once()
		m := w.all()[0]
		if strings.Contains(m.HTML, "<script") || strings.Contains(m.HTML, `href="https://evil`) ||
			!strings.Contains(m.Text, "“"+name+"”") || strings.Contains(m.HTML, "a & b") {
			t.Errorf("%s\n%s", m.Text, m.HTML)
		}
	}
}

func (w *world) do(method, path, cookie, kind, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(page)
}

const form = "application/x-www-form-urlencoded"

func (w *world) signIn(email string) string {
	w.t.Helper()
	resp, _ := w.do("POST", "/sign-in", "", form, url.Values{"email": {email}, "password": {password}}.Encode())
	if len(resp.Cookies()) != 1 {
		w.t.Fatalf("%s cannot sign in: %d", email, resp.StatusCode)
	}
	return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
}

// on reads the setting.
func (w *world) on(accountID string) bool {
	w.t.Helper()
	a, err := w.accounts.Get(w.t.Context(), accountID)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Notices
}

func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", password)
		for _, method := range []string{"GET", "POST"} {
			if resp, _ := w.do(method, "/settings/notices", "", form,
				"notices=off"); resp.StatusCode != http.StatusSeeOther ||
				resp.Header.Get("Location") != "/sign-in?next=%2Fsettings%2Fnotices" {
				t.Errorf("%s by nobody: %d to %s", method, resp.StatusCode, resp.Header.Get("Location"))
			}
		}
		ada := w.signIn("ada@example.com")
		for _, c := range []struct {
			body    string
			headers []string
			status  int
			on      bool
		}{
			{body: "notices=off", headers: []string{"Sec-Fetch-Site", "cross-site"}, status: 403, on: true},
			{body: "notices=off", headers: []string{"Origin", "https://evil.example.com"}, status: 403, on: true},
			{body: "notices=maybe", status: 400, on: true},
			{body: "", status: 400, on: true},
			{body: "notices=off&notices=on", status: 400, on: true},
			{body: "notices=off", status: 200},
			{body: "notices=off", status: 200},
			{body: "notices=on", status: 200, on: true},
		} {
			resp, page := w.do("POST", "/settings/notices", ada, form, c.body, c.headers...)
			if resp.StatusCode != c.status || w.on(w.ada.ID) != c.on {
				t.Errorf("%q %v: %d, on is %v", c.body, c.headers, resp.StatusCode, w.on(w.ada.ID))
			}
			if checked := fmt.Sprintf(`value="%s" checked`,
				map[bool]string{true: "on", false: "off"}[c.on]); c.status == 200 && !strings.Contains(page, checked) {
				t.Errorf("%q: the page does not show it", c.body)
			}
		}
		// A tab that was open for long changes what was chosen in it.
		if resp, page := w.do("POST", "/settings/notices", ada, form,
			"notices=off&shown=notices%3Doff"); resp.StatusCode != http.StatusOK ||
			!w.on(w.ada.ID) || !strings.Contains(page, `name="notices" value="on" checked`) {
			t.Errorf("a stale tab: %d, on is %v", resp.StatusCode, w.on(w.ada.ID))
		}
		if !w.on(w.developer.ID) {
			t.Error("somebody else's setting changed")
		}
		if _, page := w.do("GET", "/settings/notices", w.signIn("test@example.com"), "", ""); !strings.Contains(page,
			"Test accounts never get email") {
			t.Error("the test account is not told")
		}
	})
}

// The link of a mail asks; its button, and the one click of a mail program, which
// sends either kind of body and no cookie, stop the notices.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		token := w.Stops.Sign(w.ada.ID)
		path := "/unsubscribe/" + token
		for range 2 {
			if resp, page := w.do("GET", path, "", "", ""); resp.StatusCode != 200 ||
				!strings.Contains(page, `action="`+path+`"`) || !w.on(w.ada.ID) {
				t.Fatalf("GET: %d, on is %v\n%s", resp.StatusCode, w.on(w.ada.ID), page)
			}
		}
		other, err := notices.NewSigner(bytes.Repeat([]byte{2}, 32))
		if err != nil {
			t.Fatal(err)
		}
		_, sum, _ := strings.Cut(token, ".")
		for _, forged := range []string{w.ada.ID, w.ada.ID + ".", w.developer.ID + "." + sum, other.Sign(w.ada.ID),
			token[:len(token)-1], token + "A", w.Stops.Sign("wac_gone"), w.Stops.Sign(w.ada.ID + "~digest"), "x"} {
			for _, method := range []string{"GET", "POST"} {
				if resp, _ := w.do(method, "/unsubscribe/"+forged, "", form,
					"List-Unsubscribe=One-Click"); resp.StatusCode != 404 &&
					!(method == "GET" && strings.HasPrefix(forged, "wac_gone")) {
					t.Errorf("%s %s: %d", method, forged, resp.StatusCode)
				}
			}
		}
		if !w.on(w.ada.ID) || !w.on(w.developer.ID) {
			t.Fatal("a forged link has an effect")
		}
		for kind, body := range map[string]string{
			form: "List-Unsubscribe=One-Click",
			"multipart/form-data; boundary=b": "--b\r\nContent-Disposition: form-data; " +
				"name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n",
		} {
			if err := w.accounts.SetNotices(t.Context(), w.ada.ID, true); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if resp, _ := w.do("POST", path, "", kind, body); resp.StatusCode != 200 || w.on(w.ada.ID) {
					t.Errorf("%s: %d, on is %v", kind, resp.StatusCode, w.on(w.ada.ID))
				}
			}
		}
		if !w.on(w.developer.ID) {
			t.Error("somebody else's notices stopped")
		}
	})
}
