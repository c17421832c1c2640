package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// logSample is what the public log of a large ledger takes. Times are microseconds.
type logSample struct {
	Engine     string `json:"engine"`
	Leaves     int64  `json:"leaves"`
	AppendUS   int64  `json:"append_us"` // all leaves, from none
	SignP50US  int64  `json:"sign_p50_us"`
	SignMaxUS  int64  `json:"sign_max_us"`
	ProofP50US int64  `json:"proof_p50_us"`
	ProofP99US int64  `json:"proof_p99_us"`
}

// logTries is how many checkpoints are signed, each for one new row, whose proof is then made.
const logTries = 200

// measureLog publishes each engine's largest ledger, and then a row at a time.
func (b *bench) measureLog(ctx context.Context) error {
	for _, engine := range b.engines {
		d, err := b.prepareDatabase(ctx, engine, b.rows, b.connections)
		if err != nil {
			return err
		}
		s, err := d.measureLog(ctx)
		if err != nil {
			return fmt.Errorf("log, %s: %w", engine, err)
		}
		s.Engine = engine
		b.report.Log = append(b.report.Log, s)
	}
	b.report.printLog(os.Stdout)
	return nil
}

func (d *database) measureLog(ctx context.Context) (s logSample, err error) {
	database, err := db.Open(ctx, d.url)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	private, _, err := note.GenerateKey(rand.Reader, "bench.example.com/ledger")
	if err != nil {
		return s, err
	}
	publisher, err := proofs.NewPublisher(database, private)
	if err != nil {
		return s, err
	}
	start := time.Now()
	if err := publisher.Publish(ctx); err != nil {
		return s, err
	}
	s.AppendUS = time.Since(start).Microseconds()
	w := store.NewWriter(database, database.Now)
	log := &proofs.Log{DB: database, Key: publisher.Key()}
	var signed, proved []int64
	for i := range logTries {
		r, err := w.Do(ctx, rules.TopUp{AccountID: d.grants[i%len(d.grants)].Account, AmountMC: money.Dollar})
		if err != nil {
			return s, err
		}
		start = time.Now()
		if err := publisher.Publish(ctx); err != nil {
			return s, err
		}
		signed = append(signed, time.Since(start).Microseconds())
		start = time.Now()
		receipt, err := log.Prove(ctx, r.Entry.AccountID, r.Entry.Seq)
		if err != nil {
			return s, err
		}
		proved = append(proved, time.Since(start).Microseconds())
		s.Leaves = receipt.Proof.Position + 1
	}
	s.SignP50US, s.SignMaxUS = percentile(signed, 50), slices.Max(signed)
	s.ProofP50US, s.ProofP99US = percentile(proved, 50), percentile(proved, 99)
	return s, nil
}

// printLog prints a table in Markdown.
func (r *report) printLog(w io.Writer) {
	fmt.Fprintln(w, "\n| engine | leaves | all appended s | leaves/s | append and sign ms | longest | proof ms | p99 |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	for _, s := range r.Log {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.0f | %.2f | %.2f | %.2f | %.2f |\n", s.Engine, s.Leaves,
			float64(s.AppendUS)/1e6, float64(s.Leaves)/max(float64(s.AppendUS)/1e6, 0.001), float64(s.SignP50US)/1000,
			float64(s.SignMaxUS)/1000, float64(s.ProofP50US)/1000, float64(s.ProofP99US)/1000)
	}
}
