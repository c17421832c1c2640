package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
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
		ended := !c.opening
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
	c.successor.(*serverConn).dead = true // while nobody needed it
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
