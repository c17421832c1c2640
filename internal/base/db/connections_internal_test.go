package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server counts its connections, and has room for some.
type server struct{ open, room int }

func (s *server) Connect(context.Context) (driver.Conn, error) {
	if s.open >= s.room {
		return nil, errors.New("too many connections")
	}
	s.open++
	return &serverConn{server: s}, nil
}

func (s *server) Driver() driver.Driver { return nil }

type serverConn struct {
	driver.Conn
	server *server
	dead   bool
}

func (c *serverConn) Close() error { c.server.open--; return nil }

func (c *serverConn) Ping(context.Context) error {
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}

// awaitSuccessor returns when an attempt to open a successor has ended.
func awaitSuccessor(t *testing.T, c *connector) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		ended := c.opening+c.slow == 0
		c.mu.Unlock()
		if ended {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no end of the attempt")
		}
	}
}

// TestSuccessorBeforeTheEnd: an old connection ends once its successor is open, one for each, and goes on while the
// server has no room for one.
func TestSuccessorBeforeTheEnd(t *testing.T) {
	t.Parallel()
	s := &server{room: 2}
	c := &connector{Connector: s}
	first, err := c.Connect(t.Context())
	second, err2 := c.Connect(t.Context())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if c.promise() {
			t.Fatal("an old connection may end although the server has no room for its successor")
		}
		awaitSuccessor(t, c)
	}
	s.room = 3
	if c.promise() {
		t.Fatal("an old connection may end before its successor is open")
	}
	awaitSuccessor(t, c)
	if !c.promise() || c.promise() {
		t.Fatal("a successor is for one old connection")
	}
	_ = first.Close()
	s.room = 0 // others took what was free
	next, err := c.Connect(t.Context())
	if err != nil || s.open != 2 {
		t.Errorf("%v; %d connections are open", err, s.open)
	}
	_ = next.Close()

	s.room = 3
	c.promise()
	awaitSuccessor(t, c)
	c.ready[0].(*serverConn).dead = true // while nobody needed it
	if third, err := c.Connect(t.Context()); err != nil || third.(*serverConn).dead {
		t.Errorf("a dead successor was used: %v", err)
	}
	c.promise()
	awaitSuccessor(t, c)
	if err := c.Close(); err != nil || s.open != 2 || c.promise() {
		t.Errorf("%v; %d connections are open after the pool has closed", err, s.open)
	}
	_ = second.Close()
}

// A slowServer opens a connection for each turn that it gets.
type slowServer struct {
	asked atomic.Int64
	turns chan error
}

func (s *slowServer) Connect(context.Context) (driver.Conn, error) {
	s.asked.Add(1)
	if err := <-s.turns; err != nil {
		return nil, err
	}
	return &serverConn{server: &server{}}, nil
}

func (s *slowServer) Driver() driver.Driver { return nil }

// TestConnectionsOpenForTheNext: a server that opens a connection after its caller has left opened it for the next
// one. Crowds that all leave ask it for no more than openingMost, and openingEver if it opens nothing for long.
func TestConnectionsOpenForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{turns: make(chan error)}
		c := &connector{Connector: s}
		connect := func() (driver.Conn, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.Connect(ctx)
		}
		leaves := func() {
			var crowd sync.WaitGroup
			for range 20 {
				crowd.Go(func() {
					if _, err := connect(); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a caller who leaves: %v", err)
					}
				})
			}
			crowd.Wait()
		}
		leaves()
		if n := s.asked.Load(); n != openingMost {
			t.Errorf("20 callers who left asked the server %d times", n)
		}
		s.turns <- nil
		synctest.Wait()
		if _, err := connect(); err != nil {
			t.Errorf("the next caller, with a connection open: %v", err)
		}
		if n := s.asked.Load(); n != openingMost {
			t.Errorf("one connection for one caller, but the server was asked %d times", n)
		}
		waits := make(chan error)
		go func() { _, err := connect(); waits <- err }()
		synctest.Wait()
		s.turns <- nil
		if err := <-waits; err != nil {
			t.Errorf("who waits while an attempt of others ends: %v", err)
		}
		time.Sleep(slowAttempt)
		for range 20 {
			leaves()
		}
		if n := s.asked.Load(); n != 2+openingEver {
			t.Errorf("who waited for a server that opens nothing asked it %d times", n)
		}
		for range openingEver {
			s.turns <- nil
		}
		synctest.Wait()
		if len(c.ready) != openingMost {
			t.Errorf("%d connections are kept for nobody", len(c.ready))
		}
		if err := c.Close(); err != nil || len(c.ready) != 0 {
			t.Errorf("%v; %d connections are open after the pool has closed", err, len(c.ready))
		}
	})
}

// TestAllLearnThatTheServerIsAway: a crowd gets the failure of the attempts that were made for it, each in the time of
// one.
func TestAllLearnThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{turns: make(chan error)}
		c := &connector{Connector: s}
		away := errors.New("no route to the server")
		var crowd sync.WaitGroup
		for range 21 {
			crowd.Go(func() {
				if _, err := c.Connect(t.Context()); !errors.Is(err, away) {
					t.Errorf("a caller learns %v", err)
				}
			})
		}
		synctest.Wait()
		for range openingMost {
			s.turns <- away
		}
		crowd.Wait()
		if n := s.asked.Load(); n > openingMost {
			t.Errorf("21 callers needed %d attempts to learn it", n)
		}
	})
}
