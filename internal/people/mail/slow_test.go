package mail

import (
	"bufio"
	"context"
	"fmt"
	"net"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A scanner is a mail server that has received a mail, and says so when accept returns.
type scanner struct {
	accept func()

	mu  sync.Mutex
	got []string // subjects
}

func (k *scanner) start(t *testing.T) Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.serve(c)
		}
	}()
	return Server{
		Host:        "127.0.0.1",
		Port:        l.Addr().(*net.TCPAddr).Port,
		Unencrypted: true,
		From:        netmail.Address{Address: "no-reply@example.com"},
	}
}

func (k *scanner) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	say := func(s string) { _, _ = c.Write([]byte(s + "\r\n")) }
	say("220 slow")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch strings.ToUpper(strings.Fields(line + " x")[0]) {
		case "DATA":
			say("354 go")
			for line != ".\r\n" {
				if line, err = r.ReadString('\n'); err != nil {
					return
				}
				if subject, ok := strings.CutPrefix(line, "Subject: "); ok {
					k.mu.Lock()
					k.got = append(k.got, strings.TrimSpace(subject))
					k.mu.Unlock()
				}
			}
			k.accept()
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (k *scanner) received() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.got, " ")
}

func plain(subject string) Message {
	return Message{AccountID: "wac_ada", To: "ada@example.com", Subject: subject, Text: "x"}
}

// TestSlowScan: a server that scans a mail for longer than a step of the dialogue may take gets it once. A run that
// lasts as long as one attempt would cut it.
func TestSlowScan(t *testing.T) {
	t.Parallel()
	if RunTimeout <= claimTime+attemptTimeout || attemptTimeout <= acceptTimeout || leaseTTL <= attemptTimeout {
		t.Error("a mail that a server takes ten minutes to accept is cut, or is sent twice")
	}
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		k := &scanner{accept: func() { <-time.After(2 * time.Second) }}
		to := k.start(t)
		to.step = 500 * time.Millisecond
		w.mustQueue(plain("once"))
		if err := w.sender(to).SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m := w.all()[0]; m.Status != Sent || k.received() != "once" {
			t.Errorf("%s %q, received %q", m.Status, m.LastError, k.received())
		}
	})
}

// TestLostOutcomesAreAttempts: a mail of which no outcome is ever recorded, because each run ends before, is sent ten
// times in a day like any other, and then is given up.
func TestLostOutcomesAreAttempts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var stop context.CancelFunc
		waiting := make(chan struct{})
		k := &scanner{accept: func() { stop(); <-waiting }}
		defer close(waiting)
		s := w.sender(k.start(t))
		w.mustQueue(plain("again"))
		began := w.now()
		for {
			ctx, cancel := context.WithCancel(t.Context())
			stop = cancel
			err := s.SendDue(ctx)
			cut := ctx.Err() != nil
			cancel()
			if err != nil && !cut {
				t.Fatal(err)
			}
			m := w.all()[0]
			if m.Status != Pending {
				break
			}
			if n := len(strings.Fields(k.received())); n > 10 {
				t.Fatalf("%d copies", n)
			}
			w.pass(time.UnixMicro(m.NextUS).Sub(w.now()))
		}
		m, took := w.all()[0], w.now().Sub(began)
		if n := len(strings.Fields(k.received())); n != 10 || m.Status != Failed || m.LastError == "" ||
			took < 23*time.Hour {
			t.Errorf("%d copies in %s, then %s %q", n, took, m.Status, m.LastError)
		}
	})
}

// TestWhatIsAcceptedWhileTheNodeStops is recorded.
func TestWhatIsAcceptedWhileTheNodeStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	ctx, stop := context.WithCancel(t.Context())
	k := &sink{}
	to := k.start(t, nil, false)
	w.mustQueue(hello())
	m, err := w.claimDue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := w.sender(to)
	if err := s.Server.send(ctx, m); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := s.record(ctx, m, nil); err != nil || w.all()[0].Status != Sent {
		t.Errorf("%v: %s", err, w.all()[0].Status)
	}
}

// TestUrgentMailGoesFirst: a link that a person waits for is sent before digests that were due before it.
func TestUrgentMailGoesFirst(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		for i := range 3 {
			w.mustQueue(plain(fmt.Sprint("digest", i)))
			w.pass(time.Second)
		}
		m := plain("link")
		m.Urgent = true
		w.mustQueue(m)
		k := &scanner{accept: func() {}}
		err := w.sender(k.start(t)).SendDue(t.Context())
		if got := k.received(); err != nil || got != "link digest0 digest1 digest2" {
			t.Errorf("%v: %s", err, got)
		}
	})
}
