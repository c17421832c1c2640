package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// sharedNodes are the nodes that tests share, by their flags, and sharedURLs their addresses. They belong to all tests.
var (
	sharedNodes, sharedURLs sync.Map

	allTests = &everyTest{}
)

// sharedNode returns a node on SQLite for tests that leave the sample app and its accounts as they are, and spend by a
// connection of their own. It runs until the last test has ended.
func sharedNode(t *testing.T, flags ...string) *servertest.Process {
	t.Helper()
	start, _ := sharedNodes.LoadOrStore(strings.Join(flags, " "), sync.OnceValues(func() (*servertest.Process, error) {
		p, err := servertest.TryStart(allTests, servertest.URL(allTests, db.SQLite), flags...)
		if err == nil {
			sharedURLs.Store(p.BaseURL, true)
			allTests.Cleanup(p.Verify)
		}
		return p, err
	}))
	p, err := start.(func() (*servertest.Process, error))()
	if err != nil {
		t.Fatal(err)
	}
	node := *p.Node
	node.T = t
	own := *p
	own.Node = &node
	return &own
}

// sharedConnection returns a shared node with a connection of $25 for this test alone.
func sharedConnection(t *testing.T, flags ...string) *servertest.Process {
	t.Helper()
	p := sharedNode(t, flags...)
	token := grant(t, p, "25", "")
	p.Connection = sample.Connection{
		ID:           token.Extra("connection_id").(string),
		AccessToken:  token.AccessToken,
		RefreshToken: token.RefreshToken,
		ExpiresIn:    token.ExpiresIn,
	}
	return p
}

// endOnShared deletes the test account of a connection when the test has ended, if others share the node: a developer
// has at most 25.
func endOnShared(t *testing.T, p *servertest.Process, connectionID string) {
	if _, is := sharedURLs.Load(p.BaseURL); !is {
		return
	}
	t.Cleanup(func() {
		app, ctx := ownClient(p), context.WithoutCancel(t.Context())
		c, err := app.Connections.Get(ctx, connectionID)
		if err == nil {
			err = app.TestAccounts.Delete(ctx, p.App.ID, c.UserAccountID)
		}
		if err != nil {
			t.Errorf("delete the test account of %s: %v", connectionID, err)
		}
	})
}

// onNode runs f with a connection of its own on a shared node, and in the long run on a node of each engine.
func onNode(t *testing.T, f func(t *testing.T, p *servertest.Process), flags ...string) {
	t.Helper()
	if testkit.IsLong() {
		eachNode(t, f, flags...)
		return
	}
	f(t, sharedConnection(t, flags...))
}

// everyTest is a test that ends after all others.
type everyTest struct {
	testing.TB // nil: what a node needs is below

	mu     sync.Mutex
	ends   []func()
	failed bool
}

// end does what is left to do after the last test, and reports whether all of it went well.
func (e *everyTest) end(failed bool) bool {
	e.failed = failed // logs of nodes are shown then
	for _, f := range slices.Backward(e.ends) {
		f()
	}
	return !e.failed || failed
}

func (e *everyTest) Helper() {}

func (e *everyTest) Context() context.Context { return context.Background() }

func (e *everyTest) Cleanup(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, f)
}

func (e *everyTest) TempDir() string {
	dir, err := os.MkdirTemp("", "purser-e2e-")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			e.Error(err)
		}
	})
	return dir
}

func (e *everyTest) Failed() bool { return e.failed }

func (e *everyTest) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (e *everyTest) Errorf(format string, args ...any) { e.Logf(format, args...); e.failed = true }

func (e *everyTest) Error(args ...any) { e.Errorf("%s", fmt.Sprint(args...)) }

func (e *everyTest) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
