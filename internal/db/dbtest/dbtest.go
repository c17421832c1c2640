package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"purser/internal/db"
)

func lockThread() { runtime.LockOSThread() }

var shared struct {
	once     sync.Once
	url      string
	template string
	err      error
}

// postgres returns the cluster's URL, starting one if nobody has.
func postgres() (string, error) {
	shared.once.Do(func() {
		shared.url = os.Getenv(Env)
		if shared.url == "" {
			var c *Cluster
			if c, shared.err = Start(false); shared.err != nil {
				return
			}
			shared.url = c.URL
		}
		shared.template, shared.err = fresh(shared.url, "")
		if shared.err != nil {
			return
		}
		var d *db.DB
		if d, shared.err = db.Open(context.Background(), named(shared.url, shared.template)); shared.err == nil {
			shared.err = d.Close()
		}
	})
	return shared.url, shared.err
}

// fresh creates a database, as a copy of template if it is not empty.
func fresh(cluster, template string) (string, error) {
	var b [8]byte
	rand.Read(b[:])
	name := "t" + hex.EncodeToString(b[:])
	d, err := sql.Open("pgx", cluster)
	if err != nil {
		return "", err
	}
	defer d.Close()
	text := "CREATE DATABASE " + name
	if template != "" {
		text += " TEMPLATE " + template
	}
	_, err = d.Exec(text)
	return name, err
}

func named(cluster, name string) string {
	u, err := url.Parse(cluster)
	if err != nil {
		panic(fmt.Sprintf("dbtest: bad URL: %v", err))
	}
	u.Path = "/" + name
	return u.String()
}

// URL returns the URL of a fresh, migrated (PostgreSQL) or empty (SQLite)
// database, for tests that start the binary.
func URL(t testing.TB, e db.Engine) string {
	t.Helper()
	if e == db.SQLite {
		return "sqlite:" + filepath.Join(t.TempDir(), "purser.db")
	}
	cluster, err := postgres()
	if err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	name, err := fresh(cluster, shared.template)
	if err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		d, err := sql.Open("pgx", cluster)
		if err == nil {
			_, err = d.Exec("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)")
			_ = d.Close()
		}
		if err != nil {
			t.Logf("drop %s: %v", name, err)
		}
	})
	return named(cluster, name)
}

// Open returns a fresh database of an engine, closed when the test ends.
func Open(t testing.TB, e db.Engine) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), URL(t, e))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Each runs f on a fresh database of each engine, both in parallel.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, Open(t, e))
		})
	}
}
