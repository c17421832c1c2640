package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func clientAt(address string) accounts.Client { return accounts.Client{Address: address} }

// A stranger who asks for emails to an address stops neither another purpose nor another network, and with many
// networks not the one from which the account signs in.
func TestStrangersUseUpNoMails(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newEndingsWorld(t, d), t.Context()
		a := w.account(false)
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.accounts.RecordEvent(ctx, tx, a.ID, accounts.SignedIn, clientAt("192.0.2.7"))
		})
		ask := func(address string, purpose mailPurpose) bool {
			return w.throttleMail(ctx, clientAt(address), purpose, a.Email) == nil
		}
		for i := range 6 {
			for _, purpose := range []mailPurpose{signUpMail, resetMail, addressMail} {
				if w.at = w.at.Add(6 * time.Second); ask("203.0.113.9", purpose) != (i < 5) {
					t.Errorf("the stranger's request %d for %s", i+1, purpose)
				}
			}
		}
		if !ask("198.51.100.7", resetMail) || !ask("198.51.100.7", signUpMail) {
			t.Error("the owner is refused on another network")
		}
		for i := range 40 {
			ask(fmt.Sprintf("203.0.113.%d", 100+i), resetMail)
		}
		if ask("198.51.100.8", resetMail) {
			t.Error("many networks fill a mailbox without a limit")
		}
		if !ask("192.0.2.7", resetMail) {
			t.Error("the owner is refused where the account signs in")
		}
		if !ask("198.51.100.8", signUpMail) {
			t.Error("resets use up what a sign-up needs")
		}
	})
}

// Who has only the password of an account with a second step uses up no attempts of its owner.
func TestStrangersUseUpNoCodes(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newEndingsWorld(t, d), t.Context()
		a := w.account(false)
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.accounts.RecordEvent(ctx, tx, a.ID, accounts.SignedIn, clientAt("192.0.2.7"))
		})
		wrong := func(address string) bool {
			tries := w.newCodeTries(clientAt(address), a.ID, a.Epoch)
			ok := tries.check(ctx, w.db) == nil
			if ok {
				tries.fail()
			}
			return ok
		}
		for i := range 6 {
			if wrong("203.0.113.9") != (i < 5) {
				t.Errorf("the thief's code %d", i+1)
			}
		}
		if !wrong("198.51.100.7") {
			t.Error("the owner is refused on another network")
		}
		tried := 0
		for i := range 60 {
			if wrong(fmt.Sprintf("203.0.113.%d", 100+i)) {
				tried++
			}
		}
		if tried != 14 || wrong("198.51.100.8") {
			t.Errorf("%d codes from many networks, want 14 of 20 after six", tried)
		}
		if !wrong("192.0.2.7") {
			t.Error("the owner is refused where the account signs in")
		}
		a.Epoch++ // the owner has set another password
		if !wrong("198.51.100.8") {
			t.Error("the owner is refused after a new password")
		}
	})
}

// Wrong codes count over all nodes and restarts, in the database, until a new password. The owner learns of ten, and is
// not refused where the account signs in.
func TestWrongCodesCountOnAllNodes(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		nodes := []*endingsWorld{newEndingsWorld(t, d), newEndingsWorld(t, d)}
		w, ctx := nodes[0], t.Context()
		a := w.account(false)
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.accounts.RecordEvent(ctx, tx, a.ID, accounts.SignedIn, clientAt("192.0.2.7"))
		})
		wrong := func(node int, address string) string {
			for _, n := range nodes {
				n.at = n.at.Add(time.Second)
			}
			err := twoStepStore{nodes[node].Store}.verifyCode(ctx, clientAt(address), w.reload(a), "000000")
			e, _ := errors.AsType[*apierr.Error](err)
			return fmt.Sprint(e)
		}
		refused := func(answer string) bool { return strings.Contains(answer, "Set a new password") }
		for i := range 40 {
			if got := wrong(i%2, fmt.Sprintf("203.0.113.%d", i)); refused(got) != (i >= 30) {
				t.Errorf("code %d: %s", i+1, got)
			}
		}
		if got := wrong(1, "192.0.2.7"); !strings.Contains(got, "Incorrect code") {
			t.Errorf("the owner is refused where the account signs in: %s", got)
		}
		list, err := w.mails.ListNewest(ctx, 10)
		if err != nil || len(list) != 1 || list[0].Subject != "Someone may know your password" ||
			list[0].To != a.Email {
			t.Errorf("mails: %+v, %v", list, err)
		}
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.setPassword(ctx, tx, a.ID, "hash", accounts.Client{})
		})
		if got := wrong(0, "198.51.100.8"); !strings.Contains(got, "Incorrect code") {
			t.Errorf("after a new password: %s", got)
		}
		for i := range 40 {
			wrong(i%2, fmt.Sprintf("203.0.113.%d", i))
		}
		if got := wrong(0, "198.51.100.9"); !refused(got) && !strings.Contains(got, "Too many") {
			t.Errorf("41 codes after the new password: %s", got)
		}
		for _, n := range nodes {
			n.at = n.at.Add(codeWindow)
		}
		if got := wrong(0, "198.51.100.9"); !strings.Contains(got, "Incorrect code") {
			t.Errorf("a day later: %s", got)
		}
	})
}

// A request for a reset writes as much for an address that has no account.
func TestResetsTakeTheSameWork(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	w, ctx := newEndingsWorld(t, d), t.Context()
	a := w.account(false)
	written := func() (rows, size int) {
		err := d.QueryRowContext(ctx, `SELECT
			(SELECT COUNT(*) FROM identity_links) + (SELECT COUNT(*) FROM mails),
			(SELECT COALESCE(SUM(LENGTH(next)), 0) FROM identity_links) +
			(SELECT COALESCE(SUM(LENGTH(text) + LENGTH(html)), 0) FROM mails)`).Scan(&rows, &size)
		if err != nil {
			t.Fatal(err)
		}
		return rows, size
	}
	var rows, sizes [2]int
	for i, email := range []string{a.Email, "unknown@example.com"} {
		rowsBefore, sizeBefore := written()
		if err := w.requestReset(ctx, clientAt("203.0.113.9"), email); err != nil {
			t.Fatal(err)
		}
		rows[i], sizes[i] = written()
		rows[i], sizes[i] = rows[i]-rowsBefore, sizes[i]-sizeBefore
	}
	if rows[0] != 2 || rows[1] != 2 || sizes[0] != sizes[1] || sizes[0] < 1000 {
		t.Errorf("rows %v, of characters %v", rows, sizes)
	}
}

// The purge of set-ups reads no seed that is active.
func TestSetupsUseTheirIndex(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		const n = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) `
		for _, text := range []string{
			n + `INSERT INTO accounts (id, email, password_hash, created_us)
				SELECT 'wac_' || i, 'e' || i, '', 1 FROM n`,
			n + `INSERT INTO totp_seeds (account_id, sealed, active, last_step, expires_us)
				SELECT 'wac_' || i, '', CASE WHEN i % 1000 = 0 THEN 0 ELSE 1 END, 0,
					CASE WHEN i % 1000 = 0 THEN i ELSE 0 END FROM n`,
			`ANALYZE`,
		} {
			if _, err := d.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		plan := dbtest.Explain(t, d, func(q db.Queryer) error {
			var found int
			return q.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM totp_seeds WHERE `+isExpiredSetup, 2000).
				Scan(&found)
		})
		if !strings.Contains(plan, "totp_seeds_setups") {
			t.Error(plan)
		}
		if err := deleteExpiredSetups(t.Context(), d, 2000); err != nil {
			t.Fatal(err)
		}
		var left int
		err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM totp_seeds`).Scan(&left)
		if err != nil || left != 4998 {
			t.Errorf("%d seeds are left, %v", left, err)
		}
	})
}

// The password of a sign-up cannot be guessed by concurrent attempts at its link: those that wait for a hash are
// checked again when they get it, and wait in the share of their network.
func TestSignUpLinksAreThrottled(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newEndingsWorld(t, d)
		a, network := w.account(true), "203.0.113.77" // of no other test, which would wait for a hash behind this one
		if d.Engine == db.Postgres {
			network = "203.0.113.78"
		}
		w.link(a, signUpLink)
		token := fmt.Sprint("token ", w.n)
		codes := make([]apierr.Code, 20)
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() {
				_, _, err := w.confirmSignUp(t.Context(), clientAt(network), token, "a wrong password")
				if e, ok := errors.AsType[*apierr.Error](err); ok {
					codes[i] = e.Code
				}
			})
		}
		wg.Wait()
		tried := 0
		for _, code := range codes {
			if code == apierr.Unauthorized {
				tried++
			} else if code != apierr.RateLimited && code != apierr.Unavailable {
				t.Errorf("answered with %v", code)
			}
		}
		if most := 5 + runtime.GOMAXPROCS(0) - 1; tried == 0 || tried > most {
			t.Errorf("%d of 20 wrong passwords were looked at, want from 1 to %d", tried, most)
		}
	})
}

// A browser that writes the host in another way comes back to the same origin, whose cookies it has.
func TestOriginsAreComparedInOneSpelling(t *testing.T) {
	t.Parallel()
	const connect, my = "https://connect.example.com", "https://my.example.com"
	p := NewOpenIDClient(OpenIDConfig{Issuer: "https://login.example.com"}, time.Now, connect, my)
	for host, want := range map[string]string{
		"connect.example.com":      connect,
		"Connect.Example.COM":      connect,
		"connect.example.com:443":  connect,
		"connect.example.com.":     connect,
		"my.example.com":           my,
		"connect.example.com:8443": my,
		"evil.example.com":         my,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/sign-in/provider", nil)
		if r.Host = host; p.matchOrigin(r) != want {
			t.Errorf("%s: %s", host, p.matchOrigin(r))
		}
	}
}
