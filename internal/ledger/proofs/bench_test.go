package proofs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// BenchmarkTenMillionLeaves appends a row to a log of ten million leaves and signs a checkpoint, and then proves that
// row. The leaves before are of accounts that have no rows in the ledger. Filling takes some minutes an engine: run it
// by its name, with -benchtime 200x.
func BenchmarkTenMillionLeaves(b *testing.B) {
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		b.Run(string(engine), func(b *testing.B) {
			d := dbtest.Open(b, engine)
			p, log := openTest(b, d, newKey(b))
			fillLog(b, p, 1000, 10_000)
			var sign, prove []time.Duration
			for b.Loop() {
				topUp(b, d, "acc_new", 1)
				start := time.Now()
				publish(b, p)
				sign = append(sign, time.Since(start))
				start = time.Now()
				if _, err := log.Prove(b.Context(), "acc_new", int64(len(sign))); err != nil {
					b.Fatal(err)
				}
				prove = append(prove, time.Since(start))
			}
			for name, list := range map[string][]time.Duration{"checkpoint": sign, "proof": prove} {
				slices.Sort(list)
				b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-p50-ms")
				b.ReportMetric(float64(list[len(list)-1].Microseconds())/1000, name+"-max-ms")
			}
		})
	}
}

// fillLog appends leaves of rows that no ledger has, each account's in a transaction.
func fillLog(b *testing.B, p *Publisher, accounts, rows int) {
	b.Helper()
	var tree tlog.Tree
	for i := range accounts {
		err := p.DB.InTx(db.ForJob(b.Context()), func(ctx context.Context, tx *db.Tx) error {
			g := grow(ctx, tx, tree)
			accountID, secret := fmt.Sprintf("acc_%04d", i), newSecret()
			for from := 0; from < rows; from += batchRows {
				var leaves []leaf
				for seq := int64(from + 1); seq <= int64(from+batchRows); seq++ {
					l := leaf{g.size, accountID, seq, newEntry(secret, seq, "a hash")}
					leaves = append(leaves, l)
					if err := g.add(l.entry); err != nil {
						return err
					}
				}
				if err := insertLeaves(ctx, tx, leaves); err != nil {
					return err
				}
			}
			if err := saveAccounts(ctx, tx, []any{accountID, secret, int64(rows)}); err != nil {
				return err
			}
			if err := p.saveTree(ctx, tx, g, tree.N); err != nil {
				return err
			}
			signed, err := lockState(ctx, tx)
			if err != nil {
				return err
			}
			c, err := OpenCheckpoint(signed, p.key)
			tree = c.Tree
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
