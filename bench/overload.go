package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// callBounds are the settings max_calls and max_provider_calls of a gateway; zeros = its defaults.
type callBounds struct {
	calls, providerCalls int
}

// The bound of the part overload, and what decision 100 makes of it: an app alone gets 8/9 of the slots, two that want
// more than there is get 8/17 each.
const (
	overloadBound = 9 * 17
	aloneShare    = 8 * 17
	halfShare     = 8 * 9
)

// The shape of the part overload. Streams last two seconds. The measured time begins when the app that floods has all
// that it may have.
const (
	floodChunks   = 40
	floodLength   = floodChunks * slowEvery
	floodSettle   = 2*floodLength + floodLength/4
	floodDuration = 4 * floodLength
)

// An overloadCell is one measurement of a gateway that has just started.
type overloadCell struct {
	name   string
	bounds callBounds
	apps   []floodApp // without their tokens
}

// The apps of the cells. B begins when A has all that it may have.
var (
	appInside = floodApp{Name: "A", Clients: aloneShare - 8, Spread: floodLength}
	appFlood  = floodApp{Name: "A", Clients: 4 * aloneShare, Early: aloneShare, Spread: floodLength}
	appHasty  = floodApp{
		Name:    "A",
		Clients: 4 * aloneShare,
		Early:   aloneShare,
		Spread:  floodLength,
		Retry:   100 * time.Millisecond,
	}
	appModest = floodApp{
		Name:    "B",
		Clients: halfShare / 3,
		Begin:   floodSettle,
		Spread:  floodLength,
		Pause:   floodLength / 4,
	}
	appBurst = floodApp{Name: "B", Clients: 4 * halfShare, Begin: floodSettle}
)

// The cells that others are compared with.
const (
	cellInside = "inside the bound"
	cellAlone  = "B alone"
)

// overloadCells are the cells in the order of a round.
var overloadCells = func() []overloadCell {
	node := callBounds{overloadBound, overloadBound}
	provider := callBounds{10 * overloadBound, overloadBound}
	return []overloadCell{
		{cellInside, node, []floodApp{appInside}},
		{"4 × the bound", node, []floodApp{appFlood}},
		{"4 × the bound, retried after 0.1 s", node, []floodApp{appHasty}},
		{"4 × a provider's bound", provider, []floodApp{appFlood}},
		{cellAlone, node, []floodApp{appModest}},
		{"A floods, B is modest", node, []floodApp{appFlood, appModest}},
		{"A floods, B floods", node, []floodApp{appFlood, appBurst}},
	}
}()

// overloadSample is what one app of a cell got. The ratios compare A with the cell inside the bound, B with B alone, of
// the same engine and round; they are 0 where there is nothing to compare.
type overloadSample struct {
	Engine string `json:"engine"`
	Cell   string `json:"cell"`
	Round  int    `json:"round"`
	floodResult
	Cores       float64 `json:"cores"`    // processor time of the gateway for each second of the cell
	PeakKiB     int64   `json:"peak_kib"` // of the gateway
	FirstOfBase float64 `json:"first_chunk_p99_of_base"`
	LagOfBase   float64 `json:"lag_p99_of_base"`
	PeakOfBase  float64 `json:"peak_of_base"`
}

// measureOverload measures a node with small bounds that more clients call than it takes. Each cell has a new process,
// whose memory nothing else has grown.
func (b *bench) measureOverload(ctx context.Context) error {
	defer func() { b.bounds = callBounds{} }()
	var audits report
	for round := range b.rounds {
		for _, engine := range b.engines {
			if engine != "sqlite" && engine != "postgres" {
				continue
			}
			base := map[string]*overloadSample{} // by app
			for _, cell := range overloadCells {
				list, audit, err := b.measureOverloadCell(ctx, engine, cell)
				if err != nil {
					return fmt.Errorf("overload, %s, %s: %w", engine, cell.name, err)
				}
				for _, s := range list {
					s.Round = round + 1
					s.compare(base[s.App])
					if cell.name == cellInside || cell.name == cellAlone {
						base[s.App] = s
					}
					b.report.Overload = append(b.report.Overload, *s)
				}
				audits.Audits = append(audits.Audits, audit)
			}
		}
	}
	b.report.Audits = append(b.report.Audits, audits.Audits...)
	b.report.printOverload(os.Stdout)
	audits.printAudits(os.Stdout)
	return nil
}

// compare computes the ratios of a sample to one of the same app; nil = there is none.
func (s *overloadSample) compare(base *overloadSample) {
	if base == nil {
		return
	}
	s.FirstOfBase = float64(s.FirstP99US) / float64(max(base.FirstP99US, 1))
	s.LagOfBase = float64(s.LagP99US) / float64(max(base.LagP99US, 1))
	s.PeakOfBase = float64(s.PeakKiB) / float64(max(base.PeakKiB, 1))
}

// measureOverloadCell measures one cell: what each of its apps got, and whether each answer has its row.
func (b *bench) measureOverloadCell(ctx context.Context, engine string, cell overloadCell) (
	list []*overloadSample, audit ledgerCheck, err error,
) {
	first := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(first)) }()
	up, err := b.startBenchRole("slow", strconv.Itoa(floodChunks))
	if err != nil {
		return nil, audit, err
	}
	d, err := b.prepareDatabase(ctx, engine, 0, max(b.connections, 2*connectionsOfApp))
	if err != nil {
		return nil, audit, err
	}
	d.spends += d.checkLedger(ctx, "", 0).SpendRows // what other cells have left
	b.bounds = cell.bounds
	t, err := b.startPurser(ctx, "overload "+engine, d, up.url)
	if err != nil {
		return nil, audit, err
	}
	warm, err := warmUp(ctx, t, "stream", 64)
	if err != nil {
		return nil, audit, err
	}
	spec := floodSpec{
		slowSpec: slowSpec{URL: t.url, Cell: "stream", Billed: true, Chunks: floodChunks},
		Settle:   floodSettle,
		Duration: floodDuration,
		Share:    halfShare * 9 / 10,
	}
	for _, app := range cell.apps {
		app.Tokens = d.tokensOf(app.Name)
		spec.Apps = append(spec.Apps, app)
	}
	wait := t.recordProfile(ctx, b.profiles, fmt.Sprintf("overload-%s-%s.pprof", engine, cell.name), floodSettle,
		floodDuration)
	t.resetPeak()
	cpu, start := t.cpuTime(), time.Now()
	results, err := askRole[[]floodResult](ctx, "flood", spec)
	if err := errors.Join(err, wait()); err != nil {
		return nil, audit, err
	}
	cores := (t.cpuTime() - cpu).Seconds() / time.Since(start).Seconds()
	_, peak := t.memory()
	answered := warm
	for _, r := range results {
		answered += r.Answered
		list = append(list, &overloadSample{
			Engine:      engine,
			Cell:        cell.name,
			floodResult: r,
			Cores:       cores,
			PeakKiB:     peak,
		})
	}
	return list, d.checkLedger(ctx, t.name+", "+cell.name, answered), nil
}

// tokensOf returns the tokens of the connections of the first app, A, or of the second.
func (d *database) tokensOf(app string) (tokens []string) {
	from := 0
	if app != "A" {
		from = connectionsOfApp
	}
	for _, g := range d.grants[from : from+connectionsOfApp] {
		tokens = append(tokens, g.Token)
	}
	return tokens
}

// printOverload prints the medians as two tables in Markdown: of the cells with one app that floods, and of those with
// app B.
func (r *report) printOverload(w io.Writer) {
	type key struct{ engine, cell, app string }
	var keys []key
	of := map[key][]overloadSample{}
	shared := map[string]bool{} // cells with B
	for _, s := range r.Overload {
		k := key{s.Engine, s.Cell, s.App}
		if of[k] == nil {
			keys = append(keys, k)
		}
		of[k] = append(of[k], s)
		shared[s.Cell] = shared[s.Cell] || s.App == "B"
	}
	fmt.Fprintf(w, "\na node that takes %d calls at a time; %d chunks a stream, one each %s\n\n", overloadBound,
		floodChunks, slowEvery)
	fmt.Fprintln(w, "| engine | | clients | in flight | refused/s | 503 ms p50 | p99 | first chunk ms p50 | p99 | "+
		"× inside | lag ms p50 | p99 | × inside | cores | peak MB | × inside |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range keys {
		if shared[k.cell] {
			continue
		}
		f := overloadFigures(of[k])
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %s | %s | %.2f | %.0f | %s |\n",
			k.engine, k.cell, of[k][0].Clients, f.inFlight, f.refused/floodDuration.Seconds(), f.refusalP50,
			f.refusalP99, f.firstP50, f.firstP99, f.firstOfBase, f.lagP50, f.lagP99, f.lagOfBase, f.cores, f.peakMB,
			f.peakOfBase)
	}
	fmt.Fprintln(w, "\n| engine | | app | clients | in flight | calls | admitted | first calls admitted | "+
		"share after s | first chunk ms p99 | × | lag ms p99 | × |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range keys {
		if !shared[k.cell] {
			continue
		}
		f := overloadFigures(of[k])
		calls := f.admitted + f.refused
		fmt.Fprintf(w, "| %s | %s | %s | %d | %.0f | %.0f | %.1f %% | %.0f | %s | %s | %s | %s | %s |\n", k.engine,
			k.cell, k.app, of[k][0].Clients, f.inFlight, calls, 100*f.admitted/max(calls, 1), f.first, f.share,
			f.firstP99, f.firstOfBase, f.lagP99, f.lagOfBase)
	}
	for _, s := range r.Overload {
		if s.Failed > 0 {
			fmt.Fprintf(w, "\nINVALID: %s, %s, app %s: %d faults: %s\n", s.Engine, s.Cell, s.App, s.Failed,
				s.FirstFault)
		}
	}
}

// overloadRow is a row of the tables: medians, some as texts.
type overloadRow struct {
	inFlight, admitted, refused, first, cores, peakMB                 float64
	refusalP50, refusalP99, firstP50, firstP99, lagP50, lagP99, share string
	firstOfBase, lagOfBase, peakOfBase                                string
}

func overloadFigures(list []overloadSample) overloadRow {
	pick := func(f func(s *overloadSample) float64) float64 {
		return median(list, func(s overloadSample) float64 { return f(&s) })
	}
	text := func(format string, shown bool, f func(s *overloadSample) float64) string {
		if !shown {
			return ""
		}
		return fmt.Sprintf(format, pick(f))
	}
	refused := slices.ContainsFunc(list, func(s overloadSample) bool { return s.Refused > 0 })
	compared := list[0].LagOfBase > 0
	share := func(s *overloadSample) float64 { return float64(s.ShareUS) / 1e6 }
	return overloadRow{
		inFlight:    pick(func(s *overloadSample) float64 { return s.InFlight }),
		admitted:    pick(func(s *overloadSample) float64 { return float64(s.Admitted) }),
		refused:     pick(func(s *overloadSample) float64 { return float64(s.Refused) }),
		first:       pick(func(s *overloadSample) float64 { return float64(s.FirstAdmitted) }),
		cores:       pick(func(s *overloadSample) float64 { return s.Cores }),
		peakMB:      pick(func(s *overloadSample) float64 { return float64(s.PeakKiB) / 1024 }),
		refusalP50:  text("%.1f", refused, func(s *overloadSample) float64 { return float64(s.RefusalP50US) / 1000 }),
		refusalP99:  text("%.1f", refused, func(s *overloadSample) float64 { return float64(s.RefusalP99US) / 1000 }),
		firstP50:    text("%.1f", true, func(s *overloadSample) float64 { return float64(s.FirstP50US) / 1000 }),
		firstP99:    text("%.1f", true, func(s *overloadSample) float64 { return float64(s.FirstP99US) / 1000 }),
		lagP50:      text("%.1f", true, func(s *overloadSample) float64 { return float64(s.LagP50US) / 1000 }),
		lagP99:      text("%.1f", true, func(s *overloadSample) float64 { return float64(s.LagP99US) / 1000 }),
		share:       text("%.1f", list[0].App == "B" && pick(share) >= 0, share),
		firstOfBase: text("%.2f", compared, func(s *overloadSample) float64 { return s.FirstOfBase }),
		lagOfBase:   text("%.2f", compared, func(s *overloadSample) float64 { return s.LagOfBase }),
		peakOfBase:  text("%.2f", compared, func(s *overloadSample) float64 { return s.PeakOfBase }),
	}
}
