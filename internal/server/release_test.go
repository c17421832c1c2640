package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// Databases that released versions have written, in a folder for each version. A release adds its own, by
//
//	go test ./internal/server -run TestReleasedDatabases -update
//
// with its number in thisRelease. A folder of an earlier release never changes.
const (
	releases    = "testdata/releases"
	thisRelease = "v0.1.0"
)

var update = flag.Bool("update", false, "write the databases of this release again")

// The files of a release.
const (
	sqliteFile   = "sqlite.db.gz"    // the SQLite file
	postgresFile = "postgres.sql.gz" // a dump of PostgreSQL
	envelopeFile = "envelope.key"    // the key of both, which seals nothing real
)

// The user of a released database who has paid, and who has connected the live app.
const (
	releaseUser     = "user@example.com"
	releasePassword = "correct horse battery"
)

// TestReleasedDatabases opens the database that each released version has left, with this version: it migrates,
// its ledger verifies, its users sign in, and it serves and bills calls.
func TestReleasedDatabases(t *testing.T) {
	if *update {
		writeReleasedDatabases(t)
	}
	t.Parallel()
	folders, err := filepath.Glob(releases + "/v*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d released databases, %v", len(folders), err)
	}
	for _, folder := range folders {
		for _, e := range []db.Engine{db.SQLite, db.Postgres} {
			t.Run(filepath.Base(folder)+"/"+string(e), func(t *testing.T) {
				t.Parallel()
				target, data := restoreDatabase(t, folder, e)
				p := servertest.Start(t, target, "--data="+data, "--providers", "emulator")
				p.Verify()
				rows := dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM ledger`)
				p.App.RedirectURI = publicCallback
				p.Connection.AccessToken, _ = calltest.Connect(t, p.Node, releaseUser, releasePassword, "20.00")
				whole(t, p.Call("POST", luna, prompt("Hello from a later version"))).billing(t)
				now := dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM ledger`)
				if now != rows+2 { // the new cap, and the call
					t.Errorf("%v ledger rows, %v before", now, rows)
				}
				wants(t, "the audit log", operatorOf(t, p.Node).Do(t, "GET", "/v1/operator/log", ""), 200, "",
					`"action":"reverse"`)
				p.Verify()
				if code := p.Stop(); code != 0 {
					t.Errorf("stopped with %d", code)
				}
				p.Verify()
			})
		}
	}
}

// restoreDatabase makes a database from the file of a release, and returns it with its data folder.
func restoreDatabase(t *testing.T, folder string, e db.Engine) (target, data string) {
	t.Helper()
	data = t.TempDir()
	key, err := os.ReadFile(filepath.Join(folder, envelopeFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, envelopeFile), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if e == db.SQLite {
		path := filepath.Join(data, "purser.db")
		if err := os.WriteFile(path, unzip(t, filepath.Join(folder, sqliteFile)), 0o600); err != nil {
			t.Fatal(err)
		}
		return "sqlite:" + path, data
	}
	target = dbtest.URL(t, e)
	conn, err := pgx.Connect(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	dump := "DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n" +
		string(unzip(t, filepath.Join(folder, postgresFile)))
	_, err = conn.PgConn().Exec(t.Context(), dump).ReadAll()
	if err = errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return target, data
}

// writeReleasedDatabases writes the folder of this release: the databases that real processes leave behind.
func writeReleasedDatabases(t *testing.T) {
	folder, data := filepath.Join(releases, thisRelease), t.TempDir()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	target := "sqlite:" + filepath.Join(data, "purser.db")
	fillDatabase(t, target, data)
	file, err := os.ReadFile(filepath.Join(data, "purser.db"))
	if err != nil {
		t.Fatal(err)
	}
	writeGzip(t, filepath.Join(folder, sqliteFile), file)
	key, err := os.ReadFile(filepath.Join(data, envelopeFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, envelopeFile), key, 0o644); err != nil {
		t.Fatal(err)
	}
	target = dbtest.URL(t, db.Postgres)
	fillDatabase(t, target, data)
	dump, err := exec.Command("pg_dump", "--no-owner", "--no-privileges", "--inserts", target).Output()
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	for line := range bytes.Lines(dump) {
		// commands of psql
		if !bytes.HasPrefix(line, []byte(`\`)) && !bytes.HasPrefix(line, []byte("CREATE SCHEMA public")) {
			plain.Write(line)
		}
	}
	writeGzip(t, filepath.Join(folder, postgresFile), plain.Bytes())
}

// fillDatabase runs this version until the database has rows of every kind that a later version must understand.
func fillDatabase(t *testing.T, target, data string) {
	t.Helper()
	p := servertest.Start(t, target, "--data="+data)
	fillSandbox(t, p)
	promote(t, p.Node)
	if code := p.Stop(); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
	p = servertest.Start(t, target, "--data="+data, "--providers", "emulator")
	fillLive(t, p)
	p.Verify()
	if code := p.Stop(); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
	servertest.Verify(t, target)
}

// fillSandbox lets test accounts use the app: calls, a voice session, an allocation request, webhooks.
func fillSandbox(t *testing.T, p *servertest.Process) {
	t.Helper()
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	path := "/v1/apps/" + p.App.ID
	endpoint := memberOf(t,
		wants(t, "endpoint", app.Do(t, "POST", path+"/webhooks", `{"url":"https://hooks.invalid/purser"}`), 200, "",
			"whsec_"), "id")
	wants(t, "test event", app.Do(t, "POST", path+"/webhooks/"+endpoint+"/test", `{"type":"connection.frozen"}`), 200,
		"", "")

	key := "Idempotency-Key: " + servertest.UUID()
	whole(t, p.Call("POST", luna, prompt("Hello"), key, "X-Svc-Feature: chat")).billing(t)
	whole(t, p.Call("POST", luna, prompt("Hello"), key, "X-Svc-Feature: chat")).billing(t) // a replay
	whole(t, p.Call("POST", luna, prompt("Tell me more", `"stream":true`), "X-Svc-Feature: summarize"))
	whole(t, p.Call("POST", luna, prompt("!mock usage=none"))).billing(t)                          // estimated
	whole(t, p.Call("POST", luna, prompt("!mock pace=120ms words=60 chunks=20", `"stream":true`))) // checkpoints
	whole(t, p.Call("POST", luna, prompt("!mock status=500")))                                     // a failed hold
	whole(t, p.Call("POST", luna, `{"max_tokens":0}`)).wantAnswer(t, 400, "invalid_request")
	speakOnce(t, p)

	var account calltest.TestAccount
	made := app.Do(t, "POST", path+"/test-accounts", "")
	if err := json.Unmarshal([]byte(made.Body), &account); err != nil {
		t.Fatal(made, err)
	}
	token, connection := calltest.Connect(t, p.Node, account.Email, account.Password, "2.50")
	whole(t, p.Call("POST", luna, prompt("Hello"), "Authorization: Bearer "+token)).billing(t)
	request := memberOf(t,
		wants(t, "ask for more", app.Do(t, "POST", "/v1/connections/"+connection+"/allocation-requests",
			`{"target_allocation_mc":500000000,"reason":"Forty more pages."}`), 200, "", "pending"), "id")
	user := signIn(t, p.Node, account.Email, account.Password)
	user.Post("/allocation-requests/"+request, url.Values{"decision": {"approve"}}).Want(t, http.StatusSeeOther)
	user.Post("/connections/"+connection+"/freeze", nil).Want(t, http.StatusSeeOther)
	wants(t, "revoke", app.Do(t, "POST", "/v1/connections/"+connection+"/revoke", ""), 200, "", "revoked")

	testkit.Eventually(t, testkit.Patience, "a delivery was tried", func() bool {
		return dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM deliveries WHERE attempts > 0`) > 0
	})
	wants(t, "endpoint", app.Do(t, "PATCH", path+"/webhooks/"+endpoint, `{"status":"disabled"}`), 200, "", "disabled")
}

// speakOnce has a voice session with one reply at the mock voice.
func speakOnce(t *testing.T, p *servertest.Process) {
	t.Helper()
	var session struct {
		ID     string
		Client struct {
			Ticket  string
			MockURL string `json:"mock_url"`
		}
	}
	opened := whole(t,
		p.Call("POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini","instructions":"Be kind."}`))
	if err := json.Unmarshal([]byte(opened.body), &session); err != nil || opened.status != http.StatusCreated {
		t.Fatalf("%+v, %v", opened, err)
	}
	browser, _, err := websocket.Dial(t.Context(), session.Client.MockURL+"?ticket="+session.Client.Ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = browser.CloseNow() }()
	browser.SetReadLimit(1 << 20)
	for _, event := range []string{
		`{"type":"conversation.item.create",
			"item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}}`,
		`{"type":"response.create"}`,
	} {
		if err := browser.Write(t.Context(), websocket.MessageText, []byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	for done := false; !done; {
		_, event, err := browser.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done = bytes.Contains(event, []byte(`"type":"response.done"`))
	}
	if a := whole(t, p.Call("POST", "/v1/realtime/sessions/"+session.ID+"/end", `{"when":"immediate"}`)); a.status !=
		http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	testkit.Eventually(t, testkit.Patience, "the session ends", func() bool {
		return dbtest.Number(t, p.DB,
			`SELECT COUNT(*) FROM realtime_sessions WHERE status = 'ended' AND response_count = 1`) == 1
	})
}

// fillLive lets a real user sign up, pay, and use the live app; the operator reverses a charge.
func fillLive(t *testing.T, p *servertest.Process) {
	t.Helper()
	user := apitest.NewBrowser(t, p.BaseURL)
	user.Post("/sign-up", url.Values{"email": {releaseUser}, "password": {releasePassword}}).Want(t, http.StatusOK)
	link := regexp.MustCompile(`/sign-up/confirm/[A-Za-z0-9_-]+`).FindString(textOf(t, p.DB,
		`SELECT text FROM mails WHERE recipient = '`+releaseUser+`'`))
	user.Post(link, url.Values{"password": {releasePassword}}).Want(t, http.StatusSeeOther)

	pay := func(do string) {
		t.Helper()
		form := url.Values{"token": {user.Get("/top-up").Found(t, `name="token" value="([^"]+)"`)}, "amount": {"25"}}
		checkout := user.Post("/top-up", form).Want(t, http.StatusSeeOther).To
		paid, err := http.PostForm(checkout, url.Values{"do": {do}, "card": {"4242"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = paid.Body.Close() // the answer leads back to a page that needs the user's session
	}
	pay("pay")
	pay("pay")
	pay("expire")
	testkit.Eventually(t, testkit.Patience, "the payments ended", func() bool {
		return dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM payment_records WHERE kind IN ('settled', 'failed')`) == 3
	})

	p.App.RedirectURI = publicCallback
	token, connection := calltest.Connect(t, p.Node, releaseUser, releasePassword, "10.00")
	p.Connection.AccessToken = token
	whole(t, p.Call("POST", luna, prompt("Paid by free credit"))).billing(t)
	costly := whole(t,
		p.Call("POST", "/v1/ai/gpt-6-astra", `{"max_tokens":45000,"messages":[{"role":"user","content":"hello"}]}`))
	costly.billing(t)
	row := textOf(t, p.DB,
		`SELECT id FROM ledger WHERE connection_id = '`+connection+`' AND type = 'spend' AND paid_by = 'wallet'`)
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	wants(t, "provider key", app.Do(t, "PUT", "/v1/provider-keys/openai", `{"key":"a-key-of-the-developers-own"}`), 200,
		"", "openai")
	operator := operatorOf(t, p.Node)
	wants(t, "reverse", operator.Do(t, "POST", "/v1/operator/ledger/"+row+"/reverse", `{"reason":"provider_error"}`),
		200, "", row)
	wants(t, "freeze",
		operator.Do(t, "POST", "/v1/operator/connections/"+connection+"/freeze", `{"reason":"Asked for by its user."}`),
		200, "", "frozen")
	wants(t, "resume", operator.Do(t, "POST", "/v1/operator/connections/"+connection+"/resume", ""), 200, "", "active")
}

// signIn returns a browser in which an account is signed in.
func signIn(t *testing.T, p *nodetest.Node, email, password string) *apitest.Browser {
	t.Helper()
	b := apitest.NewBrowser(t, p.BaseURL)
	b.Post("/sign-in", url.Values{"email": {email}, "password": {password}}).Want(t, http.StatusSeeOther)
	return b
}

// textOf returns the one text that a query selects.
func textOf(t *testing.T, database, query string) (text string) {
	t.Helper()
	d := dbtest.OpenReadOnly(t, database)
	defer d.Close()
	if err := d.QueryRowContext(t.Context(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func writeGzip(t *testing.T, path string, text []byte) {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close(), os.WriteFile(path, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func unzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
