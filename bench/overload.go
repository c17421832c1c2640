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

func (s overloadSample) fault() string {
	if s.Failed == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s, app %s: %d faults: %s", s.Engine, s.Cell, s.App, s.Failed, s.FirstFault)
}

// printOverload prints the medians as two tables: of the cells with one app that floods, and of those with app B.
func (r *report) printOverload(w io.Writer) {
	var alone, both []overloadSample
	for _, s := range r.Overload {
		isShared := func(other overloadSample) bool { return other.Cell == s.Cell && other.App == "B" }
		if slices.ContainsFunc(r.Overload, isShared) {
			both = append(both, s)
		} else {
			alone = append(alone, s)
		}
	}
	fmt.Fprintf(w, "\na node that takes %d calls at a time; %d chunks a stream, one each %s\n", overloadBound,
		floodChunks, slowEvery)
	type of = column[overloadSample]
	inFlight := of{"in flight", "%.0f", func(s overloadSample) float64 { return s.InFlight }}
	firstP99 := of{"first chunk ms p99", "%.1f", func(s overloadSample) float64 { return ms(s.FirstP99US) }}
	lagP99 := of{"lag ms p99", "%.1f", func(s overloadSample) float64 { return ms(s.LagP99US) }}
	firstOfBase := of{"×", "%.2f", func(s overloadSample) float64 { return ifPositive(s.FirstOfBase) }}
	lagOfBase := of{"×", "%.2f", func(s overloadSample) float64 { return ifPositive(s.LagOfBase) }}
	label := func(s overloadSample) string { return fmt.Sprintf("%s | %s | %d", s.Engine, s.Cell, s.Clients) }
	printTable(w, "engine | | clients", alone, label, []of{
		inFlight,
		{"refused/s", "%.0f", func(s overloadSample) float64 { return float64(s.Refused) / floodDuration.Seconds() }},
		{"503 ms p50", "%.1f", func(s overloadSample) float64 { return ifPositive(ms(s.RefusalP50US)) }},
		{"503 ms p99", "%.1f", func(s overloadSample) float64 { return ifPositive(ms(s.RefusalP99US)) }},
		{"first chunk ms p50", "%.1f", func(s overloadSample) float64 { return ms(s.FirstP50US) }},
		firstP99, firstOfBase,
		{"lag ms p50", "%.1f", func(s overloadSample) float64 { return ms(s.LagP50US) }},
		lagP99, lagOfBase,
		{"cores", "%.2f", func(s overloadSample) float64 { return s.Cores }},
		{"peak MB", "%.0f", func(s overloadSample) float64 { return mb(s.PeakKiB) }},
		{"×", "%.2f", func(s overloadSample) float64 { return ifPositive(s.PeakOfBase) }},
	})
	label = func(s overloadSample) string {
		return fmt.Sprintf("%s | %s | %s | %d", s.Engine, s.Cell, s.App, s.Clients)
	}
	calls := func(s overloadSample) float64 { return float64(s.Admitted + s.Refused) }
	printTable(w, "engine | | app | clients", both, label, []of{
		inFlight,
		{"calls", "%.0f", calls},
		{"admitted", "%.1f %%", func(s overloadSample) float64 { return 100 * float64(s.Admitted) / max(calls(s), 1) }},
		{"first calls admitted", "%.0f", func(s overloadSample) float64 { return float64(s.FirstAdmitted) }},
		{"share after s", "%.1f", func(s overloadSample) float64 {
			if s.App != "B" || s.ShareUS < 0 {
				return none
			}
			return float64(s.ShareUS) / 1e6
		}},
		firstP99, firstOfBase, lagP99, lagOfBase,
	})
	printFaults(w, r.Overload)
}
