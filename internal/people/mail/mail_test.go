package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// world is an outbox with a user's account and a test account, and a clock that tests advance.
type world struct {
	*Store
	t   *testing.T
	mu  sync.Mutex
	at  time.Time
	log bytes.Buffer
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{t: t, at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	w.Store = &Store{DB: d, Now: w.now}
	w.exec(`INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_ada', 'ada@example.com', 'x', 1, 1)`)
	w.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
		VALUES ('wac_test', 'test@example.com', 'x', 1, 'wac_ada', 1)`)
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.DB.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) sender(to Server) *Sender {
	return &Sender{Store: w.Store, Server: to, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
}

func (w *world) queue(m Message) error {
	return w.DB.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error { return w.QueueMessage(ctx, tx, m) })
}

func (w *world) mustQueue(m Message) {
	w.t.Helper()
	if err := w.queue(m); err != nil {
		w.t.Fatal(err)
	}
}

// all returns the outbox, newest first.
func (w *world) all() []Mail {
	w.t.Helper()
	list, err := w.ListNewest(w.t.Context(), 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func hello() Message {
	return Message{
		AccountID: "wac_ada",
		To:        "ada@example.com",
		Subject:   "“Émile’s app” has used half",
		Text: "Hello,\n\nit is “half”.\n.\nA line that began with a dot, and one that is long: " +
			strings.Repeat("long ", 300) + "\n",
		HTML:        "<p>Hello</p>",
		Unsubscribe: "https://example.com/unsubscribe/" + strings.Repeat("t", 100),
	}
}

func TestAMailArrivesWhole(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		to := k.start(t, nil, false)
		w.mustQueue(hello())
		if err := w.sender(to).SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := k.letters()
		if len(got) != 1 || got[0].from != "no-reply@example.com" || got[0].to != "ada@example.com" {
			t.Fatalf("%+v", got)
		}
		m, err := netmail.ReadMessage(strings.NewReader(got[0].raw))
		if err != nil {
			t.Fatal(err)
		}
		mailed := w.all()[0]
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		if err != nil || subject != hello().Subject {
			t.Errorf("subject %q (%v)", subject, err)
		}
		for header, want := range map[string]string{
			"From":                  `"Purser" <no-reply@example.com>`,
			"To":                    "<ada@example.com>",
			"Message-Id":            "<" + mailed.ID + "@example.com>",
			"Date":                  "Sat, 21 Nov 2026 10:00:00 +0000",
			"List-Unsubscribe":      "<" + hello().Unsubscribe + ">",
			"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
			"Auto-Submitted":        "auto-generated",
		} {
			if got := m.Header.Get(header); got != want {
				t.Errorf("%s: %q, want %q", header, got, want)
			}
		}
		kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		if err != nil || kind != "multipart/alternative" {
			t.Fatalf("content %q %v (%v)", kind, params, err)
		}
		if text := part(t, m.Body, params["boundary"], 0); text != hello().Text {
			t.Errorf("the text became %q", text)
		}
		if mailed.Status != Sent || mailed.Attempts != 1 || mailed.DoneUS == nil || mailed.lease != "" {
			t.Errorf("recorded as %+v", mailed)
		}
	})
}

func TestTestAccountsGetNoMail(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		m := hello()
		m.AccountID = "wac_test" // whatever the address
		w.mustQueue(m)
		if n := len(w.all()); n != 0 {
			t.Errorf("%d mails", n)
		}
		m.AccountID = "wac_nobody"
		if err := w.queue(m); err == nil {
			t.Error("mail to nobody was queued")
		}
	})
}

// No value of an app or a user becomes a header, a recipient or a command.
func TestHeadersCannotBeAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, c := range []struct {
		name string
		bad  func(*Message)
	}{
		{"subject with a line feed", func(m *Message) { m.Subject = "a\nBcc: eve@example.com" }},
		{"subject with a carriage return", func(m *Message) { m.Subject = "a\rBcc: eve@example.com" }},
		{"subject with a line separator", func(m *Message) { m.Subject = "a\u2028b" }},
		{"subject with a zero", func(m *Message) { m.Subject = "a\x00" }},
		{"subject that is no text", func(m *Message) { m.Subject = "\xff" }},
		{"subject without end", func(m *Message) { m.Subject = strings.Repeat("a", 201) }},
		{"no subject", func(m *Message) { m.Subject = "" }},
		{"two recipients", func(m *Message) { m.To = "ada@example.com, eve@example.com" }},
		{"named recipient", func(m *Message) { m.To = "Ada <ada@example.com>" }},
		{"recipient with a command", func(m *Message) { m.To = "ada@example.com>\r\nDATA" }},
		{"recipient with a space", func(m *Message) { m.To = `"a b"@example.com` }},
		{"recipient that is no address", func(m *Message) { m.To = "ada" }},
		{"unsubscribe with a header", func(m *Message) {
			m.Unsubscribe = "https://example.com/\r\nBcc: eve@example.com"
		}},
		{"unsubscribe with a second address", func(m *Message) {
			m.Unsubscribe = "https://example.com/>,<mailto:eve@example.com"
		}},
		{"unsubscribe by a script", func(m *Message) { m.Unsubscribe = "javascript:alert(1)" }},
		{"no text", func(m *Message) { m.Text = "" }},
	} {
		m := hello()
		c.bad(&m)
		if err := w.queue(m); err == nil {
			t.Errorf("%s was queued", c.name)
		}
	}
	// An invalid row that is in the table cannot inject either.
	k := &sink{}
	to := k.start(t, nil, false)
	w.mustQueue(hello())
	w.exec(`UPDATE mails SET subject = $1, unsubscribe = $2`, "a\r\nBcc: eve@example.com\r\n\r\nbody",
		"https://x/\r\nCc: eve@example.com")
	if err := w.sender(to).SendDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := netmail.ReadMessage(strings.NewReader(k.letters()[0].raw))
	if err != nil || m.Header.Get("Bcc")+m.Header.Get("Cc") != "" {
		t.Errorf("headers %v (%v)", m.Header, err)
	}
}

// After ten temporary rejections in a day the mail has failed.
func TestAttemptsAreSpreadOverADay(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{data: func(int) error {
			return &smtp.SMTPError{
				Code:         451,
				EnhancedCode: smtp.EnhancedCode{4, 3, 0},
				Message:      "later, ada@example.com",
			}
		}}
		s := w.sender(k.start(t, nil, false))
		w.mustQueue(hello())
		began := w.now()
		for n := int64(1); ; n++ {
			if err := s.SendDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := w.all()[0]
			if m.Attempts != n || m.LastError != "closing SMTP DATA writer: the server answered 451 4.3.0" {
				t.Fatalf("after attempt %d: %+v", n, m)
			}
			if m.Status == Failed {
				break
			}
			wait := time.UnixMicro(m.NextUS).Sub(w.now())
			w.pass(wait - time.Microsecond)
			if err := s.SendDue(t.Context()); err != nil || w.all()[0].Attempts != n {
				t.Fatalf("it was tried before its time (%v)", err)
			}
			w.pass(time.Microsecond)
		}
		took := w.now().Sub(began)
		if m := w.all()[0]; m.Attempts != 10 || took < 23*time.Hour || took > 25*time.Hour {
			t.Errorf("given up after %d attempts in %s", m.Attempts, took)
		}
		if err := s.SendDue(t.Context()); err != nil || k.sent != 10 {
			t.Errorf("%d were sent (%v)", k.sent, err)
		}
		if log := w.log.String(); strings.Contains(log, "ada@") || strings.Contains(log, "Émile") {
			t.Errorf("the log tells who and what:\n%s", log)
		}
	})
}

// A mailbox that does not exist fails immediately; a policy rejection is retried.
func TestWhatIsFinal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		more smtp.EnhancedCode
		want string
	}{
		{550, smtp.EnhancedCode{5, 1, 1}, Failed},
		{553, smtp.EnhancedCode{5, 1, 3}, Failed},
		{550, smtp.EnhancedCode{5, 7, 1}, Pending}, // relaying denied
		{530, smtp.EnhancedCode{5, 7, 0}, Pending}, // authentication required
		{552, smtp.EnhancedCode{5, 2, 2}, Pending}, // mailbox full
		{450, smtp.EnhancedCode{4, 2, 1}, Pending}, // greylisted
	} {
		w, k := newWorld(t, dbtest.Open(t, db.SQLite)),
			&sink{rcpt: func(string) error {
				return &smtp.SMTPError{Code: c.code, EnhancedCode: c.more, Message: "no"}
			}}
		w.mustQueue(hello())
		if err := w.sender(k.start(t, nil, false)).SendDue(t.Context()); err != nil {
			t.Error(err)
		}
		if m := w.all()[0]; m.Status != c.want || m.Attempts != 1 ||
			!strings.Contains(m.LastError, fmt.Sprint(c.code)) {
			t.Errorf("%d %v: %+v", c.code, c.more, m)
		}
	}
}

// After a node that died between delivery and record, the next one sends the same bytes under the
// same Message-ID.
func TestAMailWhoseNodeDiedIsSentAgainTheSame(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		to := k.start(t, nil, false)
		w.mustQueue(hello())
		dead, err := w.claimDue(t.Context()) // a node leases it, sends it and dies
		if err != nil {
			t.Fatal(err)
		}
		if err := to.send(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		s := w.sender(to)
		if err := s.SendDue(t.Context()); err != nil || len(k.letters()) != 1 {
			t.Fatalf("sent %d times while it is the other's (%v)", len(k.letters()), err)
		}
		w.pass(leaseTTL)
		if err := s.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := k.letters()
		if len(got) != 2 || got[0] != got[1] {
			t.Fatalf("%d letters, the same: %v", len(got), len(got) == 2 && got[0] == got[1])
		}
		// The first node resumes: its lease is over, so it changes nothing.
		dead.Status, dead.LastError = Failed, "late"
		if err := updateDone(t.Context(), d, dead, nil, 1); err != nil {
			t.Fatal(err)
		}
		if m := w.all()[0]; m.Status != Sent || m.LastError != "" || m.Attempts != 2 {
			t.Errorf("recorded as %+v", m)
		}
	})
}

// A connection that breaks before the server's response is a failure, and the next mail is still
// sent.
func TestTheServerGoesAway(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		to := k.start(t, nil, false)
		gone := to
		gone.Port = 1 // closed port
		w.mustQueue(hello())
		w.pass(time.Second)
		w.mustQueue(hello())
		if err := w.sender(gone).SendDue(t.Context()); err == nil {
			t.Error("no error")
		}
		first, second := w.all()[1], w.all()[0]
		if first.Attempts != 1 || second.Attempts != 0 || !strings.Contains(first.LastError, "refused") {
			t.Errorf("one attempt is enough: %+v, %+v", first, second)
		}
		w.pass(time.Minute)
		if err := w.sender(to).SendDue(t.Context()); err != nil || len(k.letters()) != 2 {
			t.Errorf("%d arrived (%v)", len(k.letters()), err)
		}
	})
}

// A cancelled context aborts an attempt, and another node sends the mail at once: the server has nothing of it.
func TestStoppingLeavesTheMailToOthers(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		ctx, stop := context.WithCancel(t.Context())
		release := make(chan struct{})
		k.rcpt = func(string) error { stop(); <-release; return nil }
		to := k.start(t, nil, false)
		w.mustQueue(hello())
		err := w.sender(to).SendDue(ctx)
		close(release)
		if m := w.all()[0]; !errors.Is(err, context.Canceled) || m.Status != Pending || m.LastError != "" ||
			m.Attempts != 0 {
			t.Errorf("%v, %+v", err, m)
		}
		if err := w.sender(to).SendDue(t.Context()); err != nil || w.all()[0].Status != Sent {
			t.Errorf("another node: %v, %+v", err, w.all()[0])
		}
	})
}

// Concurrent senders send each mail once.
func TestSendersShareTheWork(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, k := newWorld(t, d), &sink{}
		to := k.start(t, nil, false)
		for range 20 {
			w.mustQueue(hello())
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				s := &Sender{Store: w.Store, Server: to, Log: slog.New(slog.DiscardHandler)}
				if err := s.SendDue(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		seen := map[string]bool{}
		for _, l := range k.letters() {
			seen[l.raw] = true
		}
		if len(seen) != 20 || len(k.letters()) != 20 {
			t.Errorf("%d letters, %d different", len(k.letters()), len(seen))
		}
	})
}

// Without a server mail stays pending, which is logged once.
func TestNoServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	s := w.sender(Server{})
	for range 3 {
		if err := s.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(w.all()); n == 0 && w.log.Len() > 0 {
			t.Errorf("without mail nothing is amiss: %s", &w.log)
		} else if n == 0 {
			w.mustQueue(hello())
		}
	}
	if m := w.all()[0]; m.Status != Pending || m.Attempts != 0 || strings.Count(w.log.String(), "smtp.url") != 1 {
		t.Errorf("%+v\n%s", m, &w.log)
	}
	w.pass(maxAge + time.Second)
	k := &sink{}
	if err := w.sender(k.start(t, nil, false)).SendDue(t.Context()); err != nil || len(k.letters()) != 0 ||
		w.all()[0].Status != Failed {
		t.Errorf("last week's mail: %d sent, %+v (%v)", len(k.letters()), w.all()[0], err)
	}
	if err := w.Purge(t.Context(), DefaultRetention); err != nil || len(w.all()) == 0 {
		t.Errorf("purged before its time: %v", err)
	}
	w.pass(DefaultRetention + time.Second)
	if err := w.Purge(t.Context(), DefaultRetention); err != nil || len(w.all()) != 0 {
		t.Errorf("%d are kept (%v)", len(w.all()), err)
	}
}

// The password is sent over TLS only, and appears in no error, log or row.
func TestEncryptionAndLogin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		tls, implicit bool
		change        func(*Server)
		want          string // in the error; "" = sent
	}{
		{name: "STARTTLS", tls: true},
		{name: "implicit TLS", tls: true, implicit: true},
		{
			name:   "wrong password",
			tls:    true,
			change: func(s *Server) { s.Password = "a-wrong-password" },
			want:   "the server answered 535",
		},
		{
			name:   "no login",
			tls:    true,
			change: func(s *Server) { s.User, s.Password = "", "" },
			want:   "the server answered 502",
		},
		{name: "foreign certificate", tls: true, change: func(s *Server) { s.roots = nil }, want: "certificate"},
		{
			name:     "foreign certificate, implicit",
			tls:      true,
			implicit: true,
			change:   func(s *Server) { s.roots = nil },
			want:     "certificate",
		},
		{name: "another name", tls: true, change: func(s *Server) { s.Host = "localhost" }, want: "certificate"},
		{name: "TLS taken away", change: func(s *Server) { s.Unencrypted = false }, want: "does not support STARTTLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, k := newWorld(t, dbtest.Open(t, db.SQLite)), &sink{auth: true}
			cert := certify(t)
			if !c.tls {
				cert = nil
			}
			to := k.start(t, cert, c.implicit)
			to.User, to.Password = sinkUser, sinkPassword
			if c.change != nil {
				c.change(&to)
			}
			w.mustQueue(hello())
			err := w.sender(to).SendDue(t.Context())
			m := w.all()[0]
			if c.want == "" && (err != nil || len(k.letters()) != 1) || !strings.Contains(m.LastError, c.want) ||
				(m.Status == Sent) != (c.want == "") {
				t.Errorf("%d letters, %+v (%v)", len(k.letters()), m, err)
			}
			checked, sent := to.Check(t.Context()), len(k.letters())
			works := c.want == "" || c.name == "no login" // which the server asks for when a mail comes
			if (checked == nil) != works || !works && !strings.Contains(checked.Error(), c.want) ||
				sent != len(k.letters()) {
				t.Errorf("Check: %v", checked)
			}
			for _, text := range []string{fmt.Sprint(err), fmt.Sprint(checked), m.LastError, w.log.String(),
				fmt.Sprintf("%v %+v", to, struct{ S Server }{to})} {
				if strings.Contains(text, sinkPassword) || strings.Contains(text, "a-wrong-password") {
					t.Errorf("the password stands in %q", text)
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	var s Server
	for text, want := range map[string]string{
		"smtp://u%40x:p%3A%2F@mail.example.com": "mail.example.com:587",
		"smtps://mail.example.com/":             "mail.example.com:465",
		"smtp://127.0.0.1:25":                   "127.0.0.1:25",
		"smtp://[::1]:2525":                     "[::1]:2525",
	} {
		if err := s.SetURL(text); err != nil || s.String() != want {
			t.Errorf("%s: %s (%v)", text, s, err)
		}
	}
	for _, text := range []string{"", "mail.example.com", "mail.example.com:25", "http://x", "smtp://", "smtp://user@x",
		"smtp://:sesame@x", "smtp://u:sesame@x/path", "smtp://x:0", "smtp://x:65536", "smtp://x:y", "smtp://x?tls=no",
		"smtp://u:sesame%0a@x", "smtp://u:ses ame@x y"} {
		if err := s.SetURL(text); err == nil || strings.Contains(err.Error(), "ses") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "Purser", "a@example.com, b@example.com", "a@exämple.com",
		"\"a\nb\" <a@example.com>"} {
		if err := s.SetFrom(text); err == nil {
			t.Errorf("from %q", text)
		}
	}
	if err := s.SetFrom("Pürser <no-reply@example.com>"); err != nil || s.From.Address != "no-reply@example.com" {
		t.Error(err)
	}
}

// part returns the decoded n-th part of a multipart body.
func part(t *testing.T, body io.Reader, boundary string, n int) string {
	t.Helper()
	parts := multipart.NewReader(body, boundary)
	for i := 0; ; i++ {
		p, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(p) // decodes quoted-printable
		if err != nil {
			t.Fatal(err)
		}
		if i == n {
			return strings.ReplaceAll(string(text), "\r\n", "\n")
		}
	}
}
