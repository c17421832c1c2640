// Package nodetest is what tests see of a running node with sample data: a process that package servertest has
// started, or a server inside the test that package apptest has.
package nodetest

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/ledger/audit"
)

// Node is a running node.
type Node struct {
	sample.Data
	T   testing.TB
	Log func() string // what it has logged so far

	Once bool // Call asks once, because what it asks is broken on purpose
}

// Verify audits the database of the node and fails the test on any finding.
func (n *Node) Verify() { n.T.Helper(); Verify(n.T, n.DB) }

// Verify audits a database and fails the test on any finding.
func Verify(t testing.TB, database string) {
	t.Helper()
	var out bytes.Buffer
	if findings, err := audit.VerifyAndPrint(context.Background(), database, &out, time.Now()); err != nil ||
		findings > 0 {
		t.Errorf("ledger verify: %d findings, %v\n%s", findings, err, out.String())
	}
}

// Call sends a request with the seeded access token and a fresh key unless
// headers, given as "Name: value", say otherwise. What a busy machine has no time
// for is asked again, as an app would. The caller closes the body.
func (n *Node) Call(method, path, body string, headers ...string) *http.Response {
	n.T.Helper()
	req, err := http.NewRequest(method, n.BaseURL+path, strings.NewReader(body))
	if err != nil {
		n.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.Connection.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id.NewUUID())
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	for try := 0; ; try++ {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			n.T.Fatal(err)
		}
		if n.Once || resp.StatusCode != http.StatusServiceUnavailable || try == maxTries ||
			resp.Header.Get("Retry-After") == "" || resp.Header.Get("Svc-Simulated") != "" {
			return resp
		}
		_ = resp.Body.Close()
		<-time.After(time.Second) // what Retry-After says
		if req.Body, err = req.GetBody(); err != nil {
			n.T.Fatal(err)
		}
	}
}

// maxTries is how often a call is repeated.
const maxTries = 120
