package accounts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func init() { accounts.HashLightly() }

const password = "correct horse battery"

// clock is a clock that tests advance.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func create(t *testing.T, d *db.DB, s *accounts.Store, n accounts.NewAccount) (a accounts.Account, err error) {
	t.Helper()
	err = d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error { // a password is slow to hash
		a, err = s.Create(ctx, tx, n)
		return err
	})
	return a, err
}

func mustCreate(t *testing.T, d *db.DB, s *accounts.Store, n accounts.NewAccount) accounts.Account {
	t.Helper()
	a, err := create(t, d, s, n)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// code returns the code of an API error, "" for nil.
func code(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e.Code.Name
	}
	return err.Error()
}

func TestEmails(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"person@example.com":                     "person@example.com",
		"  Person.Name+tag@Example.COM ":         "person.name+tag@example.com",
		"o'neil@mail.example.co.uk":              "o'neil@mail.example.co.uk",
		"":                                       "",
		"person":                                 "",
		"person@":                                "",
		"@example.com":                           "",
		"person@localhost":                       "",
		"a b@example.com":                        "",
		"a..b@example.com":                       "",
		".a@example.com":                         "",
		"a@@example.com":                         "",
		"a@exa_mple.com":                         "",
		"a@-example.com":                         "",
		"a@example..com":                         "",
		"a@example.com\n":                        "a@example.com",
		"a\x00b@example.com":                     "",
		"pеrson@example.com":                     "", // a Cyrillic е
		"\u212Aelvin@example.com":                "", // the Kelvin sign, which is k in lower case
		"person@\u0130.example.com":              "", // a capital i with a dot
		"ｐerson@example.com":                     "", // of full width
		strings.Repeat("a", 65) + "@example.com": "",
		"a@" + strings.Repeat("a.", 130) + "com": "",
		"a@" + strings.Repeat("b", 64) + ".com":  "",
		"Name <person@example.com>":              "",
		"person@example.com, other@example.com":  "",
	} {
		got, err := accounts.NormalizeEmail(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("NormalEmail(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

// Each spelling of an address is one account: where it is stored, looked up, shown, and counted by the limits. What
// only looks like it is none.
func TestSpellingsOfAnAddress(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := accounts.NewStore(d, newClock().now)
		from := accounts.Client{Address: "192.0.2.1"}
		person := mustCreate(t, d, s, accounts.NewAccount{Email: " Person@EXAMPLE.com", Password: password})
		if person.Email != "person@example.com" {
			t.Errorf("it is shown as %q", person.Email)
		}
		same := []string{"person@example.com", "PERSON@EXAMPLE.COM", "Person@Example.Com", " person@example.com",
			"person@example.com\n", "\tperson@example.com\r\n", "\u00a0person@example.com", "pErSoN@example.com",
			"person@eXample.com", "person@example.COM "}
		for _, email := range same {
			if a, err := s.GetByEmail(t.Context(), email); err != nil || a.ID != person.ID {
				t.Errorf("%q is looked up: %+v, %v", email, a, err)
			}
			if a, err := s.SignIn(t.Context(), from, email, password); err != nil || a.ID != person.ID {
				t.Errorf("%q signs in: %v", email, err)
			}
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := s.Create(ctx, tx, accounts.NewAccount{Email: email})
				return err
			})
			if code(err) != "invalid_request" {
				t.Errorf("%q gets another account: %v", email, err)
			}
		}
		for _, email := range []string{"person@example.com.", "person@exa\u00admple.com", "p\u0435rson@example.com",
			"\uff50erson@example.com", "person\u200b@example.com", "per son@example.com", "person@example\u3002com",
			"person@\u212Axample.com", "\"person\"@example.com", "person@EXAMPLE"} {
			if a, err := s.GetByEmail(t.Context(), email); err == nil {
				t.Errorf("%q is %+v", email, a)
			}
		}
		for _, email := range same { // ten wrong passwords use up what a network has for an account
			if _, err := s.SignIn(t.Context(), from, email, "wrong password"); code(err) != "unauthorized" {
				t.Errorf("%q with a wrong password: %v", email, err)
			}
		}
		for _, email := range same {
			if _, err := s.SignIn(t.Context(), from, email, "wrong password"); code(err) != "rate_limited" {
				t.Errorf("%q has a limit of its own: %v", email, err)
			}
		}
	})
}

// A password is the same in each spelling of its letters, and none of those that everybody tries.
func TestPasswords(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	s := accounts.NewStore(d, newClock().now)
	from := accounts.Client{Address: "192.0.2.1"}
	mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com", Password: "gar\u00e7on \u00e9l\u00e8ve"})
	for i, same := range []string{"gar\u00e7on \u00e9l\u00e8ve", "garc\u0327on e\u0301le\u0300ve",
		"gar\u00e7on\u00a0\u00e9l\u00e8ve", "\uff47ar\u00e7on \u00e9l\u00e8ve"} {
		if _, err := s.SignIn(t.Context(), from, "person@example.com", same); err != nil {
			t.Errorf("spelling %d: %v", i, err)
		}
	}
	for try, ok := range map[string]bool{
		"1234567890":                     false,
		"0987654321":                     false,
		"1111111111":                     false,
		"abababababab":                   false,
		"ABCDEFGHIJ":                     false,
		"qwertyuiop":                     false,
		"Password123":                    false,
		"e\u0301e\u0301abc\u0301d\u0301": false, // eight letters
		"1234567890 and more":            true,
		"correct horse 1":                true,
	} {
		if _, err := accounts.HashNewPassword(t.Context(), try); (err == nil) != ok {
			t.Errorf("%q: %v", try, err)
		}
	}
}

func TestAccountsAreKept(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := accounts.NewStore(d, newClock().now)
		made := mustCreate(t, d, s, accounts.NewAccount{
			Email:     "Developer@Example.com",
			Password:  password,
			Developer: true,
			Operator:  true,
		})
		tester := mustCreate(t, d, s, accounts.NewAccount{Email: "tester@example.com", Sandbox: true, OwnerID: made.ID})

		got, err := s.Get(t.Context(), made.ID)
		if err != nil || cmp.Diff(made, got) != "" {
			t.Errorf("Get: %v, %s", err, cmp.Diff(made, got))
		}
		if got, err = s.GetByEmail(t.Context(), " DEVELOPER@example.com"); err != nil || got != made {
			t.Errorf("ByEmail: %v, %v", got, err)
		}
		list, err := s.ListTestAccounts(t.Context(), made.ID)
		if err != nil || cmp.Diff([]accounts.Account{tester}, list) != "" {
			t.Errorf("TestAccounts: %v, %v", list, err)
		}
		for _, unknown := range []string{"wac_none", ""} {
			if _, err := s.Get(t.Context(), unknown); !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("Get(%q): %v, want sql.ErrNoRows", unknown, err)
			}
			if _, err := s.GetByEmail(t.Context(), unknown); !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("ByEmail(%q): %v, want sql.ErrNoRows", unknown, err)
			}
		}
		for name, n := range map[string]accounts.NewAccount{
			"taken address":         {Email: "developer@EXAMPLE.com", Password: password},
			"short password":        {Email: "a@example.com", Password: "ninechars"},
			"long password":         {Email: "a@example.com", Password: strings.Repeat("x", 257)},
			"sandbox without owner": {Email: "a@example.com", Sandbox: true},
			"owner without sandbox": {Email: "a@example.com", OwnerID: made.ID},
			"owner does not exist":  {Email: "a@example.com", Sandbox: true, OwnerID: "wac_none"},
			"owner is a tester":     {Email: "a@example.com", Sandbox: true, OwnerID: tester.ID},
		} {
			if _, err := create(t, d, s, n); code(err) != "invalid_request" {
				t.Errorf("%s: %v, want invalid_request", name, err)
			}
		}
	})
}

// Contract §8: at most 25 test accounts, also under concurrent requests.
func TestTestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := accounts.NewStore(d, newClock().now)
		owner := mustCreate(t, d, s, accounts.NewAccount{Email: "developer@example.com", Developer: true})
		results := make([]error, 40)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				_, results[i] = create(t, d, s, accounts.NewAccount{
					Email:   fmt.Sprintf("t%d@example.com", i),
					Sandbox: true,
					OwnerID: owner.ID,
				})
			})
		}
		wg.Wait()
		made := 0
		for _, err := range results {
			switch code(err) {
			case "":
				made++
			case "invalid_request":
			default:
				t.Errorf("create: %v", err)
			}
		}
		if list, err := s.ListTestAccounts(t.Context(), owner.ID); made != 25 || len(list) != 25 || err != nil {
			t.Errorf("%d were made, %d exist, want 25 (%v)", made, len(list), err)
		}
	})
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		clock := newClock()
		s := accounts.NewStore(d, clock.now)
		want := mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com", Password: password})
		mustCreate(t, d, s, accounts.NewAccount{Email: "nobody@example.com"}) // without a password

		got, err := s.SignIn(t.Context(), accounts.Client{Address: "192.0.2.1"}, " Person@example.com", password)
		if err != nil || got != want {
			t.Fatalf("SignIn: %v, %v", got, err)
		}
		var messages []string
		for email, try := range map[string]string{
			"person@example.com":  "wrong password",
			"unknown@example.com": password,
			"nobody@example.com":  "",
			"not an address":      password,
			"person@EXAMPLE.com":  password + strings.Repeat("x", 300),
		} {
			_, err := s.SignIn(t.Context(), accounts.Client{Address: "192.0.2.1"}, email, try)
			if code(err) != "unauthorized" {
				t.Errorf("SignIn(%q, %q): %v, want unauthorized", email, try, err)
			}
			messages = append(messages, fmt.Sprint(err))
		}
		for _, m := range messages {
			if m != messages[0] {
				t.Errorf("the answer tells accounts apart: %q and %q", m, messages[0])
			}
		}
		if _, err := s.SignIn(t.Context(), accounts.Client{Address: "192.0.2.1"}, "nobody@example.com",
			"no account has this password"); code(err) != "unauthorized" {
			t.Errorf("the stand-in for missing passwords signs in: %v", err)
		}
	})
}

// Ten failures a minute for one client address and email, known or unknown; successful sign-ins do
// not count.
func TestSignInIsThrottled(t *testing.T) {
	t.Parallel()
	clock := newClock()
	d := dbtest.Open(t, db.SQLite)
	s := accounts.NewStore(d, clock.now)
	mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com", Password: password})
	try := func(address, email, password string) string {
		_, err := s.SignIn(t.Context(), accounts.Client{Address: address}, email, password)
		return code(err)
	}
	for range 12 {
		if got := try("192.0.2.1", "person@example.com", password); got != "" {
			t.Fatalf("signing in was refused: %s", got)
		}
	}
	for _, email := range []string{"person@example.com", "unknown@example.com"} {
		answers := make([]string, 16)
		for wave := range slices.Chunk(answers, 8) { // as many as may wait on one core
			var wg sync.WaitGroup
			for i := range wave {
				wg.Go(func() {
					for wave[i] == "" || wave[i] == "unavailable" { // while others are hashed
						wave[i] = try("192.0.2.1", email, "wrong password")
					}
				})
			}
			wg.Wait()
		}
		refused := 0
		for _, a := range answers {
			if a == "rate_limited" {
				refused++
			}
		}
		if refused < 4 { // an attempt that was being hashed may pass
			t.Errorf("%s: %d of 16 wrong tries at once were throttled, want 5 or so", email, refused)
		}
	}
	if got := try("192.0.2.1", "person@example.com", password); got != "rate_limited" {
		t.Errorf("the right password after too many wrong ones: %q, want rate_limited", got)
	}
	if got := try("192.0.2.2", "person@example.com", password); got != "" {
		t.Errorf("from another address: %q", got)
	}
	clock.pass(time.Minute)
	if got := try("192.0.2.1", "person@example.com", password); got != "" {
		t.Errorf("a minute later: %q", got)
	}
}

// TestQueuedEventsAreKept: the queue has the events of all accounts. One that opens its own list, and leaves, does not
// end a flush; a flush that fails loses none; an account that is gone keeps none from being written.
func TestQueuedEventsAreKept(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		clock := newClock()
		s := accounts.NewStore(d, clock.now)
		victim := mustCreate(t, d, s, accounts.NewAccount{Email: "victim@example.com"})
		stranger := mustCreate(t, d, s, accounts.NewAccount{Email: "stranger@example.com"})
		from := accounts.Client{Address: "192.0.2.1"}
		s.QueueEvent("wac_gone", accounts.SignInFailed, from)
		s.QueueEvent(victim.ID, accounts.SignInFailed, from)
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.ListEvents(left, stranger.ID, 10); err == nil {
			t.Error("a list for somebody who has left")
		}
		written := func() (n int) {
			t.Helper()
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM security_events
				WHERE account_id = $1`, victim.ID).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if list, err := s.ListEvents(t.Context(), victim.ID, 10); err != nil || len(list) != 1 || written() != 0 {
			t.Fatalf("before the flush: %v, %v, %d written", list, err, written())
		}
		exec := func(text string) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		exec(`ALTER TABLE security_events RENAME TO elsewhere`)
		if err := s.FlushEvents(t.Context()); err == nil {
			t.Fatal("a flush without its table")
		}
		clock.pass(time.Second)
		s.QueueEvent(victim.ID, accounts.CodeFailed, from)
		exec(`ALTER TABLE elsewhere RENAME TO security_events`)
		for range 2 {
			if err := s.FlushEvents(left); err != nil { // of all, though this request has left
				t.Fatal(err)
			}
			if n := written(); n != 2 {
				t.Errorf("%d events are written, want 2", n)
			}
		}
		if list, err := s.ListEvents(t.Context(), victim.ID, 1); err != nil || len(list) != 1 ||
			list[0].Kind != accounts.CodeFailed {
			t.Errorf("after the flush: %v, %v", list, err)
		}
	})
}

// TestClosedAccountsGetNoEvents: events of an account that another node has queued are not written after its closing,
// also if they are being written while it closes.
func TestClosedAccountsGetNoEvents(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s, other := accounts.NewStore(d, newClock().now), accounts.NewStore(d, newClock().now)
		for _, meanwhile := range []bool{false, true} {
			a := mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com"})
			other.QueueEvent(a.ID, accounts.SignInFailed, accounts.Client{Address: "192.0.2.1"})
			flushed := make(chan error, 1)
			flush := func() { flushed <- other.FlushEvents(context.WithoutCancel(t.Context())) }
			meanwhile = meanwhile && d.Engine == db.Postgres // on SQLite nobody sees that a transaction waits
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := accounts.Lock(ctx, tx, a.ID); err != nil {
					return err
				}
				err := s.CloseAccount(ctx, tx, a.ID)
				if meanwhile {
					go flush()
					dbtest.AwaitLock(t, d)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if !meanwhile {
				flush()
			}
			if err := <-flushed; err != nil {
				t.Fatal(err)
			}
			list, err := s.ListEvents(t.Context(), a.ID, 10)
			if err != nil || len(list) != 1 || list[0].Kind != accounts.AccountClosed {
				t.Errorf("meanwhile %t: %+v, %v", meanwhile, list, err)
			}
		}
	})
}

// TestManyEventsOfAClosedAccount: the closing deletes some of them, and the purge the others; that of the closing
// itself and those of other accounts stay.
func TestManyEventsOfAClosedAccount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := accounts.NewStore(d, newClock().now)
		a := mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com"})
		other := mustCreate(t, d, s, accounts.NewAccount{Email: "other@example.com"})
		for _, accountID := range []string{a.ID, other.ID} {
			if _, err := d.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
				SELECT i + 1 FROM n WHERE i < 1000) INSERT INTO security_events (id, account_id, kind, address, agent,
				created_us) SELECT 'sev_' || $1 || i, $1, 'sign-in-failed', '', '', $2 FROM n`, accountID,
				newClock().now().UnixMicro()); err != nil {
				t.Fatal(err)
			}
		}
		left := func(accountID string) (n int) {
			t.Helper()
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM security_events WHERE account_id = $1`,
				accountID).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return s.CloseAccount(ctx, tx, a.ID)
		}); err != nil {
			t.Fatal(err)
		}
		if n := left(a.ID); n < 500 || n >= 1000 {
			t.Errorf("the closing has left %d events", n)
		}
		if _, err := s.Purge(t.Context(), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		list, err := s.ListEvents(t.Context(), a.ID, 10)
		if err != nil || len(list) != 1 || list[0].Kind != accounts.AccountClosed || left(other.ID) != 1000 {
			t.Errorf("%+v, %v; another account has %d", list, err, left(other.ID))
		}
		var waiting int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM erasures`).Scan(&waiting); err != nil ||
			waiting > 0 {
			t.Errorf("%d accounts still wait, %v", waiting, err)
		}
	})
}

// TestErasureBesideAnotherNode: a purge that finds its rows deleted by another node, which may yet end early, leaves
// the account to the next one.
func TestErasureBesideAnotherNode(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	s := accounts.NewStore(d, newClock().now)
	a := mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com"})
	for _, insert := range []string{
		`INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
			SELECT 'sev_' || i, $1, 'sign-in-failed', '', '', 1 FROM generate_series(1000, 2999) AS i`,
		`INSERT INTO erasures (account_id) VALUES ($1)`,
	} {
		if _, err := d.ExecContext(t.Context(), insert, a.ID); err != nil {
			t.Fatal(err)
		}
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := d.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	purged := make(chan error, 1)
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM security_events
			WHERE id < 'sev_2000' AND kind = 'sign-in-failed'`); err != nil {
			return err
		}
		go func() {
			_, err := s.Purge(t.Context(), 100*365*24*time.Hour)
			purged <- err
		}()
		for count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'DELETE FROM security_events%' AND wait_event_type = 'Lock'`) == 0 {
			select {
			case err := <-purged:
				t.Error("the purge did not wait: ", err)
				return nil
			default:
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-purged; err != nil {
		t.Fatal(err)
	}
	for {
		left := count(`SELECT COUNT(*) FROM security_events WHERE id LIKE 'sev_____'`)
		if left == 0 {
			break
		}
		if count(`SELECT COUNT(*) FROM erasures`) != 1 {
			t.Fatalf("%d events are left to no purge", left)
		}
		if _, err := s.Purge(t.Context(), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(`SELECT COUNT(*) FROM erasures`); n != 0 {
		t.Errorf("%d accounts still wait", n)
	}
}

// TestEventsAreWrittenInSlices: an event that cannot be written keeps those before it from nothing, and is written with
// the others later.
func TestEventsAreWrittenInSlices(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := accounts.NewStore(d, newClock().now)
		a := mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com"})
		exec := func(text string) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		exec(`CREATE UNIQUE INDEX one_agent ON security_events (agent)`)
		const events = 1234
		for i := range events {
			from := accounts.Client{Address: "192.0.2.1", Agent: fmt.Sprint("agent ", i)}
			if i == 700 {
				from.Agent = "agent 0"
			}
			s.QueueEvent(a.ID, accounts.SignInFailed, from)
		}
		written := func() (n int) {
			t.Helper()
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM security_events`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := s.FlushEvents(t.Context()); err == nil || written() != 500 {
			t.Errorf("%d events are written, %v", written(), err)
		}
		exec(`DROP INDEX one_agent`)
		for range 2 {
			if err := s.FlushEvents(t.Context()); err != nil || written() != events {
				t.Errorf("%d events are written, %v", written(), err)
			}
		}
	})
}
