// Package apptest runs the whole server inside the test, as `purser dev` runs it: with its sample data, its emulators
// and a listener. A start takes a third of the time of a process. What is killed, signalled or restarted, and the
// command line, need a process: package servertest.
package apptest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/dev"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// Options are those of `purser dev`, and how much is logged.
type Options struct {
	dev.Options
	Level slog.Level
}

// Server is a running server.
type Server struct {
	*nodetest.Node
	stop  context.CancelFunc
	ended chan error
}

// Start starts a server on a database URL that is like those of URL, and returns when it is ready. It stops when the
// test ends, and its log is shown if the test failed.
func Start(t testing.TB, database string, changes ...func(*Options)) *Server {
	t.Helper()
	s, err := start(t, database, changes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns the URL of a fresh database with the sample data, which is made once for all tests.
func URL(t testing.TB, e db.Engine) string {
	t.Helper()
	program, err := hashProgram()
	if err != nil {
		t.Fatal(err)
	}
	return dbtest.Filled(t, e, program, func(url string) error {
		s, err := start(t, url, nil)
		if err != nil {
			return err
		}
		return s.Stop()
	})
}

// hashProgram returns the hash of the test's own code, which makes the sample data.
var hashProgram = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return "apptest " + hex.EncodeToString(h.Sum(nil)), err
})

// Emulated reaches emulators of the providers, as `purser dev --providers=emulator` does.
func Emulated(o *Options) { o.Providers = "emulator" }

// envelopeKey is the envelope key of every data folder, so that a copy of a database is readable.
var envelopeKey = bytes.Repeat([]byte("test"), seal.KeySize/4)

// grace is how long the calls in flight may take when a test ends.
const grace = time.Second

func init() { accounts.HashLightly() }

func start(t testing.TB, database string, changes []func(*Options)) (*Server, error) {
	data := t.TempDir()
	err := os.WriteFile(filepath.Join(data, "envelope.key"), envelopeKey, 0o600)
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	o := Options{Options: dev.Options{
		Data:      data,
		Listen:    "127.0.0.1:0",
		Database:  database,
		Providers: "mock",
		Empty:     true,
		JSON:      true,
		Lease:     time.Minute, // a busy machine renews it late
		Grace:     grace,
		Out:       write,
	}}
	for _, change := range changes {
		change(&o)
	}
	log := &log{}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{Node: &nodetest.Node{T: t, Log: log.String}, stop: stop, ended: make(chan error, 1)}
	go func() {
		err := dev.Run(ctx, o.Options, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: o.Level})))
		s.ended <- errors.Join(err, write.CloseWithError(io.ErrUnexpectedEOF))
	}()
	if err := json.NewDecoder(read).Decode(&s.Data); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", log)
		}
	})
	return s, nil
}

// Stop stops the server, if it runs. Calls in flight have a second.
func (s *Server) Stop() error {
	s.stop()
	err := <-s.ended
	s.ended <- nil // for the next caller
	return err
}

// log is the text of a log.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
