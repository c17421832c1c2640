package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A Copied is the outcome of Copy.
type Copied struct {
	Manifest Manifest
	From, To audit.Result
}

// Copy copies the database at from into the one at to, which must be empty, and audits both. It refuses while a node
// runs on from: what that node writes meanwhile would be missing.
func Copy(ctx context.Context, from, to string) (c Copied, err error) {
	if err := refuseLiveNodes(ctx, from); err != nil {
		return c, fmt.Errorf("copy: %w", err)
	}
	c.From, err = audit.Run(ctx, from, audit.Options{})
	if err != nil {
		return c, err
	}
	fill := func(url string) (m Manifest, r audit.Result, err error) {
		if m, err = pipe(ctx, from, url); err != nil {
			return m, r, fmt.Errorf("copy: %w", err)
		}
		return auditCopy(ctx, m, url)
	}
	if file, ok := strings.CutPrefix(to, "sqlite:"); ok {
		c.Manifest, c.To, err = restoreSQLite(file, fill)
		return c, err
	}
	if err := refuseLiveNodes(ctx, to); err != nil {
		return c, fmt.Errorf("copy: %w", err)
	}
	c.Manifest, c.To, err = fill(to)
	return c, err
}

// refuseLiveNodes returns an error if nodes run on a database: one that is read would change meanwhile, and one that is
// filled has settings that its nodes know already.
func refuseLiveNodes(ctx context.Context, url string) (err error) {
	state, err := db.Inspect(ctx, url)
	if err != nil || state.Schema == 0 {
		return err
	}
	tables, err := db.Tables(state.Schema)
	if err != nil || !slices.Contains(tables, "nodes") { // of a restore that was killed
		return err
	}
	d, err := db.OpenReadOnly(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.StartClock(ctx); err != nil {
		return err
	}
	n, err := store.CountLiveNodes(ctx, d, d.Now().UnixMicro())
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d nodes run on the database, or were killed some seconds ago: stop them first", n)
	}
	return nil
}

// pipe writes a backup of from, and loads it into to at the same time.
func pipe(ctx context.Context, from, to string) (Manifest, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := write(ctx, from, w, nil)
		written <- err
		w.CloseWithError(err) // nil is io.EOF
	}()
	m, err := load(ctx, r, to, func(context.Context, *db.Tx) error { return nil })
	r.CloseWithError(errors.New("the copy has ended"))
	if failed := <-written; failed != nil && err != nil {
		return m, failed
	}
	return m, err
}
