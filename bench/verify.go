package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/purserhq/purser/internal/ledger/audit"
)

// A verifySample is what two audits of a ledger took: the whole one, and after some more calls the one since its
// checkpoint.
type verifySample struct {
	Engine  string  `json:"engine"`
	Rows    float64 `json:"million_rows"`
	Whole   int64   `json:"whole_rows"` // that were read one by one
	WholeUS int64   `json:"whole_us"`
	Since   int64   `json:"since_rows"`
	SinceUS int64   `json:"since_us"`
	Fault   string  `json:"fault,omitempty"`
}

// measureVerify audits each engine's largest ledger.
func (b *bench) measureVerify(ctx context.Context) error {
	for _, e := range b.engines {
		if e != "sqlite" && e != "postgres" {
			continue
		}
		d, err := b.prepareDatabase(ctx, e, b.rows, b.connections)
		if err != nil {
			return err
		}
		s := verifySample{Engine: e, Rows: b.rows}
		first, took, err := d.audit(ctx, nil)
		if err != nil {
			return err
		}
		s.Whole, s.WholeUS, s.Fault = first.LedgerRows, took.Microseconds(), faultOf(first)
		if s.Fault == "" {
			_, err := askRole[ledgerSample](ctx, "ledger", ledgerSpec{
				URL: d.url, Grants: d.grants, Callers: 16, Duration: b.duration,
			})
			if err != nil {
				return err
			}
			second, took, err := d.audit(ctx, first.Checkpoint)
			if err != nil {
				return err
			}
			s.Since, s.SinceUS, s.Fault = second.LedgerRows, took.Microseconds(), faultOf(second)
		}
		b.report.Verify = append(b.report.Verify, s)
		s.print(os.Stdout)
	}
	return nil
}

// audit audits the database, as a whole or since a checkpoint.
func (d *database) audit(ctx context.Context, since *audit.Checkpoint) (audit.Result, time.Duration, error) {
	start := time.Now()
	r, err := audit.Run(ctx, d.url, audit.Options{Now: start, Since: since, Checkpoint: true})
	return r, time.Since(start), err
}

// faultOf returns the report of an audit that is not clean.
func faultOf(r audit.Result) string {
	if r.Findings == 0 {
		return ""
	}
	return r.Report
}

func (s verifySample) print(w io.Writer) {
	perSecond := func(rows, us int64) float64 { return float64(rows) / max(float64(us)/1e6, 1e-6) }
	fmt.Fprintf(w, "\naudits, %s\n%16s%12s%12s%12s\n", engineTitle(s.Engine, s.Rows), "", "rows", "s", "rows/s")
	fmt.Fprintf(w, "%16s%12d%12.1f%12.0f\n", "whole", s.Whole, float64(s.WholeUS)/1e6, perSecond(s.Whole, s.WholeUS))
	fmt.Fprintf(w, "%16s%12d%12.1f%12.0f\n", "since it", s.Since, float64(s.SinceUS)/1e6,
		perSecond(s.Since, s.SinceUS))
	if s.Fault != "" {
		fmt.Fprintf(w, "  INVALID:\n%s", s.Fault)
	}
}
