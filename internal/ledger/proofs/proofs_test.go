package proofs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// newKey returns a private key for a test's log.
func newKey(t testing.TB) string {
	t.Helper()
	private, _, err := note.GenerateKey(rand.Reader, "purser.test/ledger")
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// openTest returns a Publisher and the Log of the same key.
func openTest(t testing.TB, d *db.DB, private string) (*Publisher, *Log) {
	t.Helper()
	p, err := NewPublisher(d, private)
	if err != nil {
		t.Fatal(err)
	}
	return p, &Log{DB: d, Key: p.Key()}
}

// topUp adds n rows to an account's ledger.
func topUp(t testing.TB, d *db.DB, accountID string, n int) {
	t.Helper()
	w := store.NewWriter(d, d.Now)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for range n {
			if _, err := w.DoTx(ctx, tx, rules.TopUp{AccountID: accountID, AmountMC: 100}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, p *Publisher) {
	t.Helper()
	if err := p.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// entries returns the ledger's rows of an account.
func entries(t testing.TB, d *db.DB, accountID string) []rules.Entry {
	t.Helper()
	list, _, err := store.BrowseEntries(t.Context(), d, store.EntryFilter{AccountID: accountID}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEachRowIsProved publishes rows of several accounts in several rounds: each row has a receipt that verifies by the
// log's key alone, after a way through JSON, and each account its history.
func TestEachRowIsProved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p, l := openTest(t, d, newKey(t))
		publish(t, p)
		for round := range 3 {
			for i := range 3 {
				topUp(t, d, fmt.Sprintf("acc_%d", i), 100*i+7*round+1)
			}
			publish(t, p)
		}
		proved := 0
		for i := range 3 {
			account := fmt.Sprintf("acc_%d", i)
			rows := entries(t, d, account)
			for n, e := range rows {
				if n%20 != 0 && n != len(rows)-1 {
					continue // a proof reads few tiles, but there are many rows
				}
				r, err := l.Prove(t.Context(), account, e.Seq)
				if err != nil {
					t.Fatalf("row %d of %s: %v", e.Seq, account, err)
				}
				checkpoint, err := reread(t, r).Verify(l.Key)
				if err != nil || r.Row.Text("id") != e.ID || r.Row.Integer("amount_mc") != 100 {
					t.Errorf("receipt of %s: %v", e.ID, err)
				}
				if checkpoint.Origin != "purser.test/ledger" {
					t.Errorf("the log is called %q", checkpoint.Origin)
				}
				proved++
			}
			h, err := l.History(t.Context(), account)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := reread(t, h).Verify(l.Key); err != nil || len(h.Rows) != len(rows) {
				t.Errorf("history of %s: %d rows of %d, %v", account, len(h.Rows), len(rows), err)
			}
		}
		if proved < 30 {
			t.Errorf("%d rows were proved", proved)
		}
	})
}

// reread writes a value as JSON and reads it again.
func reread[T any](t testing.TB, v *T) *T {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	again := new(T)
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	return again
}

// TestRowIsNotYetInTheLog asks for a proof before and after the row is published.
func TestRowIsNotYetInTheLog(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, newKey(t))
	topUp(t, d, "acc_a", 1)
	row := entries(t, d, "acc_a")[0]
	if _, err := l.Prove(t.Context(), "acc_a", row.Seq); !errors.Is(err, ErrNotYet) {
		t.Errorf("before: %v", err)
	}
	if _, err := l.History(t.Context(), "acc_a"); !errors.Is(err, ErrNotYet) {
		t.Errorf("history before: %v", err)
	}
	publish(t, p)
	if _, err := l.Prove(t.Context(), "acc_a", row.Seq); err != nil {
		t.Errorf("after: %v", err)
	}
}

// TestChangedReceiptIsRefused changes each part of a receipt and of a history.
func TestChangedReceiptIsRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, newKey(t))
	topUp(t, d, "acc_a", 5)
	topUp(t, d, "acc_b", 300)
	publish(t, p)
	row := entries(t, d, "acc_a")[0]
	r, err := l.Prove(t.Context(), "acc_a", row.Seq)
	if err != nil {
		t.Fatal(err)
	}
	h, err := l.History(t.Context(), "acc_a")
	if err != nil {
		t.Fatal(err)
	}
	_, other := openTest(t, d, newKey(t))
	for name, change := range map[string]func(*Receipt) string{
		"another amount": func(r *Receipt) string {
			r.Row.Columns[24].Value = rules.Integer(int64(99))
			return l.Key
		},
		"a hash that fits the amount": func(r *Receipt) string {
			r.Row.Columns[24].Value = rules.Integer(int64(99))
			var values []rules.Column
			for _, c := range r.Row.Columns {
				values = append(values, c.Value)
			}
			r.Row.Hash = rules.ChainHash(r.PreviousHash, values)
			return l.Key
		},
		"columns that change their names": func(r *Receipt) string {
			r.Row.Columns[25].Name, r.Row.Columns[26].Name = r.Row.Columns[26].Name, r.Row.Columns[25].Name
			return l.Key
		},
		"another position":   func(r *Receipt) string { r.Proof.Position++; return l.Key },
		"a position beyond":  func(r *Receipt) string { r.Proof.Position = 1000; return l.Key },
		"another hash":       func(r *Receipt) string { r.Proof.Hashes[0][0] ^= 1; return l.Key },
		"a short hash":       func(r *Receipt) string { r.Proof.Hashes[0] = r.Proof.Hashes[0][1:]; return l.Key },
		"one hash less":      func(r *Receipt) string { r.Proof.Hashes = r.Proof.Hashes[1:]; return l.Key },
		"another entry":      func(r *Receipt) string { r.Proof.Entry[20] ^= 1; return l.Key },
		"another blind":      func(r *Receipt) string { r.Blind[0] ^= 1; return l.Key },
		"another size":       func(r *Receipt) string { return resize(r, l.Key) },
		"another log's key":  func(r *Receipt) string { return other.Key },
		"no key":             func(r *Receipt) string { return "" },
		"another format":     func(r *Receipt) string { r.Format = HistoryFormat; return l.Key },
		"a checkpoint's end": func(r *Receipt) string { r.Proof.Checkpoint = "x\n1\n"; return l.Key },
	} {
		changed := reread(t, r)
		if _, err := changed.Verify(change(changed)); err == nil {
			t.Errorf("receipt with %s is taken", name)
		}
	}
	for name, change := range map[string]func(*History){
		"no last row":      func(h *History) { h.Rows = h.Rows[:4] },
		"no first row":     func(h *History) { h.Rows = h.Rows[1:] },
		"two rows swapped": func(h *History) { h.Rows[1], h.Rows[2] = h.Rows[2], h.Rows[1] },
		"another account":  func(h *History) { h.AccountID = "acc_b" },
		"another secret":   func(h *History) { h.Secret[0] ^= 1 },
		"another reason":   func(h *History) { h.Rows[2].Columns[6].Value = rules.TextColumn("gift") },
	} {
		changed := reread(t, h)
		if change(changed); true {
			if _, err := changed.Verify(l.Key); err == nil {
				t.Errorf("history with %s is taken", name)
			}
		}
	}
}

// resize changes the size that the checkpoint tells.
func resize(r *Receipt, key string) string {
	r.Proof.Checkpoint = strings.Replace(r.Proof.Checkpoint, "\n305\n", "\n306\n", 1)
	return key
}

// TestTwoNodesPublish publishes from two nodes at once, while rows come: each row is in the log once, and the tree of
// the stored tiles is that of the entries.
func TestTwoNodesPublish(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		private := newKey(t)
		p, l := openTest(t, d, private)
		q, _ := openTest(t, d, private)
		for range 6 {
			topUp(t, d, "acc_a", 40)
			topUp(t, d, "acc_b", 70)
			var nodes sync.WaitGroup
			for _, node := range []*Publisher{p, q} {
				nodes.Go(func() {
					if err := node.Publish(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			nodes.Wait()
		}
		checkTree(t, d, l, 660)
	})
}

// checkTree computes the tree from the entries, and compares it with the checkpoint and each tile.
func checkTree(t *testing.T, d *db.DB, l *Log, size int64) {
	t.Helper()
	signed, err := selectState(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenCheckpoint(signed, l.Key)
	if err != nil {
		t.Fatal(err)
	}
	list, err := selectEntries(t.Context(), d, 0, size+1)
	if err != nil {
		t.Fatal(err)
	}
	if c.Tree.N != size || int64(len(list)) != size {
		t.Fatalf("the log has %d leaves and %d entries, not %d", c.Tree.N, len(list), size)
	}
	reader := treeOf(t, list)
	root, err := tlog.TreeHash(size, reader)
	if err != nil || root != c.Tree.Hash {
		t.Fatalf("the checkpoint signs %v, the entries make %v, %v", c.Tree.Hash, root, err)
	}
	for _, tile := range tlog.NewTiles(tileHeight, 0, size) {
		want, err := tlog.ReadTileData(tile, reader)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readTile(t.Context(), d, tile); err != nil || string(got) != string(want) {
			t.Errorf("tile %s differs: %v", tile.Path(), err)
		}
	}
}

// treeOf returns the hashes of the log with these entries, computed from all of them.
func treeOf(t testing.TB, list [][]byte) tlog.HashReader {
	t.Helper()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for i, entry := range list {
		hashes, err := tlog.StoredHashes(int64(i), entry, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
	}
	return reader
}
