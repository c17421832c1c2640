package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// ledgerSpec is one measurement of the ledger without HTTP.
type ledgerSpec struct {
	URL      string            `json:"url"`
	Grants   []benchConnection `json:"grants"`
	Callers  int               `json:"callers"`
	Warmup   time.Duration     `json:"warmup"`
	Duration time.Duration     `json:"duration"`
}

// measureLedgers measures the ledger alone on each engine, in turn.
func (b *bench) measureLedgers(ctx context.Context) error {
	type store struct {
		*database
		engine string
		rows   float64
	}
	var stores []store
	for _, engine := range b.engines {
		if engine != "sqlite" && engine != "postgres" {
			continue
		}
		for _, rows := range b.sizes() {
			d, err := b.prepareDatabase(ctx, engine, rows, b.connections)
			if err != nil {
				return err
			}
			stores = append(stores, store{d, engine, rows})
		}
	}
	for round := range b.rounds {
		for _, callers := range b.callers {
			for _, s := range stores {
				r, err := askRole[ledgerSample](ctx, "ledger", ledgerSpec{
					URL:      s.url,
					Grants:   s.grants,
					Callers:  callers,
					Warmup:   b.warmup,
					Duration: b.duration,
				})
				if err != nil {
					return err
				}
				r.Engine, r.Rows, r.Callers, r.Round = s.engine, s.rows, callers, round+1
				b.report.Ledger = append(b.report.Ledger, r)
			}
		}
	}
	b.report.printLedger(os.Stdout)
	return nil
}

// measureLedger drives a ledger.Writer.
func (s ledgerSpec) measureLedger() (r ledgerSample, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d, err := db.Open(ctx, s.URL)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	node := id.New(id.Node, time.Now())
	if _, err := store.JoinNode(ctx, d, node, 5*time.Minute, d.Now); err != nil {
		return r, err
	}
	w := store.NewWriter(d, d.Now)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	r, err = s.driveCallers(ctx, w, node)
	cancel()
	return r, errors.Join(err, <-stopped)
}

// driveCallers lets every caller hold and settle, call after call.
func (s ledgerSpec) driveCallers(ctx context.Context, w *store.Writer, node string) (ledgerSample, error) {
	from := time.Now().Add(s.Warmup)
	until := from.Add(s.Duration)
	latencies, errs, all := make([][]int64, s.Callers), make([]error, s.Callers), make([]int64, s.Callers)
	var wg sync.WaitGroup
	for i := range s.Callers {
		rng := rand.New(rand.NewPCG(uint64(i), uint64(from.UnixNano())))
		wg.Go(func() {
			for errs[i] == nil {
				start := time.Now()
				if start.After(until) {
					return
				}
				errs[i] = holdAndSettle(ctx, w, node, s.Grants[rng.IntN(len(s.Grants))], newUUID(rng))
				all[i]++
				if end := time.Now(); end.After(from) && end.Before(until) {
					latencies[i] = append(latencies[i], end.Sub(start).Microseconds())
				}
			}
		})
	}
	wg.Wait()
	var list []int64
	var calls int64
	for i := range latencies {
		list = append(list, latencies[i]...)
		calls += all[i]
	}
	self := child{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	rss, _ := self.memory()
	return ledgerSample{
		PerSecond: float64(len(list)) / s.Duration.Seconds(), P50US: percentile(list, 50), P99US: percentile(list, 99),
		CPUUS: float64(ownCPU().Microseconds()) / float64(max(calls, 1)), RSSKiB: rss,
	}, errors.Join(errs...)
}

// storedAnswer is about what a compressed answer takes.
var storedAnswer = []byte(strings.Repeat("compressed", 45))

// holdAndSettle is the money of one call.
func holdAndSettle(ctx context.Context, w *store.Writer, node string, g benchConnection, key string) error {
	request := id.New(id.Request, time.Now())
	call := rules.Call{
		ConnectionID: g.Connection,
		AccountID:    g.Account,
		AppID:        g.App,
		Key:          key,
		RequestID:    request,
		Fingerprint:  "5f" + key + "12345",
		Feature:      feature,
		FeatureLabel: feature,
		Model:        model,
		Terms:        pastTerms,
		HoldMC:       pastHoldMC,
	}
	held, err := w.Do(ctx, rules.Hold{Call: call, NodeID: node, Claim: request})
	if err != nil {
		return err
	}
	_, err = w.Do(ctx, rules.Settle{
		Call: call, Attempt: held.Attempt, Settlement: rules.Settled,
		Charge: rules.Amounts{
			ProviderCostMC: pastCostMC,
			SvcFeeMC:       pastFeeMC,
			DevMarginMC:    pastMarginMC,
			UserChargeMC:   pastChargeMC,
		},
		Usage:    rules.Usage{JSON: pastUsage, InputTokens: promptTokens, OutputTokens: completionTokens},
		Response: &rules.StoredResponse{Encoding: "s2", Body: storedAnswer},
	})
	return err
}
