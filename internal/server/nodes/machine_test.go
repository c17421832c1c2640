package nodes

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// The machine of TestSmallMachine.
const (
	smallMemory      = 1 << 30
	smallDisk        = 500 // MB
	smallDescriptors = 256
)

// goodWithin is how soon after an attack an ordinary call is served.
const goodWithin = 5 * time.Second

// A smallMachine is a node with little of everything.
type smallMachine struct {
	*servertest.Process
	t       *testing.T
	address string
	client  *http.Client // a connection for each call
	conns   []net.Conn   // of the attack
	mu      sync.Mutex
}

// TestSmallMachine attacks a node that has 1 GB of memory, a disk of 500 MB, 256 descriptors, and a PostgreSQL that has
// no connection left: it is never killed, and serves an ordinary call within seconds after each attack.
func TestSmallMachine(t *testing.T) {
	testkit.Long(t, "takes the machine's memory; package inference proves each bound")
	t.Run("sqlite", func(t *testing.T) {
		disk := faulttest.NewDisk(t, smallDisk)
		if disk == nil {
			return
		}
		attackMachine(t, "sqlite:"+disk.Dir+"/purser.db", "a full disk", func(m *smallMachine) {
			disk.Fill(t)
			m.callMany(40)
			disk.Free(t)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		url, limit := dbtest.LimitedURL(t)
		attackMachine(t, url, "a full PostgreSQL", func(m *smallMachine) {
			for _, connections := range []int{3, 0} {
				limit(connections)
				m.callMany(100)
			}
			limit(-1)
		})
	})
}

// attackMachine starts a node and runs each attack.
func attackMachine(t *testing.T, url, name string, attackDatabase func(*smallMachine)) {
	t.Helper()
	group := faulttest.NewCgroup(t, smallMemory)
	m := &smallMachine{
		Process: servertest.StartBy(t, group.Command(smallDescriptors), url),
		t:       t,
		client:  &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	m.address = strings.TrimPrefix(m.BaseURL, "http://")
	if status := m.call("/v1/ai/gpt-6-luna", ordinaryCall); status != http.StatusOK {
		t.Fatalf("before: %d", status)
	}
	for _, attack := range []struct {
		name string
		run  func(*smallMachine)
	}{
		{"bodies that do not end", func(m *smallMachine) { m.sendBodies(40) }},
		{"bodies of many small values", func(m *smallMachine) {
			body := `{"messages":[` + strings.Repeat("{},", 11<<20) + `{}]}`
			m.inParallel(8, func() { m.call("/v1/ai/gpt-6-luna", body) })
		}},
		{"long texts", func(m *smallMachine) {
			body := fmt.Sprintf(ordinaryBody, strings.Repeat("word ", 2<<20))
			m.inParallel(24, func() { m.call("/v1/ai/gpt-6-luna", body) })
		}},
		{"embeddings of many inputs", func(m *smallMachine) {
			body := `{"model":"text-embedding-3-small","input":["a"` + strings.Repeat(`,"a"`, 1949) + `]}`
			for range 4 {
				m.inParallel(24, func() { m.call("/openai/v1/embeddings", body) })
			}
		}},
		{"streams that nobody reads", func(m *smallMachine) {
			body := `{"stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"!mock words=90000"}]}`
			m.inParallel(100, func() { m.send("/v1/ai/gpt-6-luna", len(body), body) })
		}},
		{"idle connections", func(m *smallMachine) { m.inParallel(300, func() { m.dial() }) }},
		{name, attackDatabase},
	} {
		attack.run(m)
		m.end(attack.name)
		t.Logf("%s: at most %d MB so far", attack.name, group.PeakMB(t))
		if n := group.Kills(t); n > 0 || t.Failed() {
			t.Fatalf("%s: %d processes were killed", attack.name, n)
		}
	}
	if code := m.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	servertest.Verify(t, url)
}

const ordinaryBody = `{"max_tokens":100,"messages":[{"role":"user","content":%q}]}`

var ordinaryCall = fmt.Sprintf(ordinaryBody, "!mock words=9")

// call makes a call and returns its status; 0 = it got no answer.
func (m *smallMachine) call(path, body string) int {
	r, err := http.NewRequest(http.MethodPost, m.BaseURL+path, strings.NewReader(body))
	if err != nil {
		m.t.Error(err)
		return 0
	}
	r.Header = http.Header{
		"Authorization":   {"Bearer " + m.Connection.AccessToken},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {servertest.UUID()},
	}
	resp, err := m.client.Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// inParallel runs f so many times at once.
func (m *smallMachine) inParallel(n int, f func()) {
	var running sync.WaitGroup
	for range n {
		running.Go(f)
	}
	running.Wait()
}

// callMany makes ordinary calls at once, which may be refused.
func (m *smallMachine) callMany(n int) {
	m.inParallel(n, func() { m.call("/v1/ai/gpt-6-luna", ordinaryCall) })
}

// dial opens a connection until the end of the attack; nil = there is none left.
func (m *smallMachine) dial() net.Conn {
	c, err := net.DialTimeout("tcp", m.address, 10*time.Second)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return c
}

// send sends a request whose body is announced with a length. The answer is not read.
func (m *smallMachine) send(path string, length int, body string) {
	c := m.dial()
	if c == nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second)) // it is refused before its end
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, m.Connection.AccessToken, servertest.UUID(), length, body)
}

// sendBodies sends all but the last byte of so many bodies.
func (m *smallMachine) sendBodies(n int) {
	const length = 32 << 20
	body := `{"messages":[{"role":"user","content":"` + string(bytes.Repeat([]byte("a"), length))
	m.inParallel(n, func() { m.send("/v1/ai/gpt-6-luna", length, body[:length-1]) })
}

// end ends an attack and waits until an ordinary call is served.
func (m *smallMachine) end(attack string) {
	m.t.Helper()
	m.mu.Lock()
	for _, c := range m.conns {
		_ = c.Close()
	}
	m.conns = nil
	m.mu.Unlock()
	began := time.Now()
	for status := 0; status != http.StatusOK; {
		if code, ended := m.AwaitExit(0); ended {
			m.t.Fatalf("%s: the node has ended: %d", attack, code)
		}
		if time.Since(began) > time.Minute {
			m.t.Fatalf("%s: a call is still %d", attack, status)
		}
		if status = m.call("/v1/ai/gpt-6-luna", ordinaryCall); status != http.StatusOK {
			<-time.After(50 * time.Millisecond)
		}
	}
	took := time.Since(began)
	m.t.Logf("%s: good after %d ms", attack, took.Milliseconds())
	if took > goodWithin+slack {
		m.t.Errorf("%s: good after %v", attack, took)
	}
}
