package commands

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestDrill restores a database in which an email and a payment wait, and starts a node on each of two copies: the
// ordinary one asks the mail server and Stripe, writes the daily backup, and the drill does none of it.
func TestDrill(t *testing.T) {
	t.Parallel()
	source := dbtest.URL(t, db.SQLite)
	d, err := db.Open(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_1', 'a@example.com', 'h', 1)`,
		fmt.Sprintf(`INSERT INTO mails (id, account_id, recipient, subject, text, html, unsubscribe, created_us,
			next_us) VALUES ('mail_1', 'wac_1', 'a@example.com', 's', 't', '', '', %d, 0)`, time.Now().UnixMicro()),
		`INSERT INTO checkouts (id, account_id, token, cents, session_id, next_us, created_us)
			VALUES ('top_1', 'wac_1', 't', 500, 'cs_1', 1, 1)`,
	} {
		if _, err := d.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a.backup")
	if _, err := backup.Create(t.Context(), source, file, nil); err != nil {
		t.Fatal(err)
	}
	key := newKey()
	drill, ordinary := startCopy(t, file, key, "--drill"), startCopy(t, file, key)
	deadline := time.Now().Add(30 * time.Second)
	for ordinary.mails.Load() == 0 || ordinary.payments.Load() == 0 || ordinary.countBackups(t) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("the ordinary node: %d connections for mail, %d requests to Stripe, %d backups",
				ordinary.mails.Load(), ordinary.payments.Load(), ordinary.countBackups(t))
		}
		time.Sleep(50 * time.Millisecond)
	}
	// The drill has been ready for longer, and its jobs run at once.
	if mails, payments, backups := drill.mails.Load(), drill.payments.Load(),
		drill.countBackups(t); mails+payments > 0 ||
		backups > 0 {
		t.Errorf("the drill: %d connections for mail, %d requests to Stripe, %d backups", mails, payments, backups)
	}
	resp, err := http.Get(drill.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the drill is not ready: %d, %v", resp.StatusCode, err)
	}
	for n, refused := range map[*copiedNode]bool{drill: true, ordinary: false} { // what may change something
		resp, err := http.Post(n.url+"/oauth/token", "application/x-www-form-urlencoded",
			strings.NewReader("grant_type=x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || (resp.StatusCode == http.StatusServiceUnavailable) != refused {
			t.Errorf("a request that may change something: %d, refused %t, %v", resp.StatusCode, refused, err)
		}
	}
}

// A copiedNode is a node on a restored database, with what it reaches outside.
type copiedNode struct {
	url, backups    string
	mails, payments atomic.Int64 // connections to its mail server, requests to its Stripe
}

func (n *copiedNode) countBackups(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(n.backups)
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// startCopy restores a backup, starts a node on it, and returns when the node is ready.
func startCopy(t *testing.T, file, key string, args ...string) *copiedNode {
	t.Helper()
	target := "sqlite:" + filepath.Join(t.TempDir(), "purser.db")
	if _, r, err := backup.Restore(t.Context(), file, target, nil); err != nil || r.Checks == 0 {
		t.Fatal(err)
	}
	n := &copiedNode{backups: t.TempDir()}
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.payments.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(stripe.Close)
	smtp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = smtp.Close() })
	go func() {
		for {
			conn, err := smtp.Accept()
			if err != nil {
				return
			}
			n.mails.Add(1)
			_ = conn.Close()
		}
	}()
	address := freeAddress(t)
	n.url = "http://" + address
	settings := writeFile(t, strings.Join([]string{
		"database: " + target, "listen: " + address, "base_url: " + n.url, "envelope_key: " + key, "drain: 0s",
		"smtp: {url: 'smtp://u:p@" + smtp.Addr().String() + "', from: a@example.com, tls: 'off'}",
		"stripe: {key: sk_test_0123456789, webhook_secret: whsec_0123456789abcdef, base_url: '" + stripe.URL + "'}",
		"backup: {at: '04:00', dir: '" + n.backups + "'}", "",
	}, "\n"))
	serve := exec.CommandContext(t.Context(), servertest.Binary(t),
		append([]string{"serve", "--config", settings}, args...)...)
	var log strings.Builder
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(n.url + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return n
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v", err)
		}
	}
}
