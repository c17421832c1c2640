package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// streamSample is one measurement of many slow streams at once. A chunk's lag is from the time at which the provider
// was to send it to its arrival at the client; lags count while all streams run.
type streamSample struct {
	Gateway string `json:"gateway"`
	Cell    string `json:"cell"`
	Streams int    `json:"streams"`
	Round   int    `json:"round"`
	slowResult
	CPUUS      float64 `json:"cpu_us_per_stream"` // of the gateway's process
	KiB        float64 `json:"kib_per_stream"`    // its peak above what was resident before, divided by the streams
	CPUOfFloor float64 `json:"cpu_of_floor"`      // 0 for the floor itself
	P99OfFloor float64 `json:"p99_of_floor"`
}

// measureStreams measures many slow streams: OpenAI's at each size, the translated ones at the middle size; of those,
// the ones that --cells names. Each gateway is a new process, whose memory nothing else has grown, and is measured
// right after the floor.
func (b *bench) measureStreams(ctx context.Context) error {
	var audits report
	for round := range b.rounds {
		for _, cell := range []string{"stream", "anthropic", "google"} {
			for _, n := range b.streams {
				if !slices.Contains(b.cells, cell) || cell != "stream" && n != b.streams[len(b.streams)/2] {
					continue
				}
				for _, engine := range b.engines {
					list, a, err := b.measureSlow(ctx, engine, cell, n)
					if err != nil {
						return fmt.Errorf("streams, %s, %s, %d: %w", engine, cell, n, err)
					}
					for _, s := range list {
						s.Round = round + 1
						b.report.Streams = append(b.report.Streams, s)
					}
					audits.Audits = append(audits.Audits, a...)
				}
			}
		}
	}
	b.report.Audits = append(b.report.Audits, audits.Audits...)
	b.report.printStreams(os.Stdout)
	audits.printAudits(os.Stdout)
	return nil
}

// measureSlow measures n streams through the floor, and then through a gateway.
func (b *bench) measureSlow(ctx context.Context, engine, cell string, n int) (
	list []streamSample, audits []ledgerCheck, err error,
) {
	first := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(first)) }()
	up, err := b.startBenchRole("slow")
	if err != nil {
		return nil, nil, err
	}
	base, err := b.startFloor("floor", up.url)
	if err != nil {
		return nil, nil, err
	}
	floor, err := measureSlowTarget(ctx, base, cell, n)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, floor)
	t, err := b.startTarget(ctx, engine, "streams "+engine, 0, up.url)
	if err != nil {
		return nil, nil, err
	}
	wait := t.recordProfile(ctx, b.profiles, fmt.Sprintf("streams-%s-%s-%d.pprof", engine, cell, n), slowSpread,
		slowLength)
	s, err := measureSlowTarget(ctx, t, cell, n)
	if err := errors.Join(err, wait()); err != nil {
		return nil, nil, err
	}
	s.CPUOfFloor = s.CPUUS / max(floor.CPUUS, 1)
	s.P99OfFloor = float64(s.P99US) / float64(max(floor.P99US, 1))
	if t.database != nil {
		audits = append(audits, t.database.checkLedger(ctx, t.name, s.Answered+s.Warm))
	}
	return append(list, s), audits, nil
}

// warmUp makes short streams, and returns how many.
func warmUp(ctx context.Context, t *target, cell string, n int) (int64, error) {
	warm, err := askRole[slowResult](ctx, "slow-load", slowSpec{
		URL: t.url, Tokens: t.tokens, Cell: cell, Billed: t.billed, Clients: n, Warm: true, Chunks: warmChunks,
	})
	if err == nil && warm.faults() > 0 {
		err = fmt.Errorf("%d faults: %s", warm.faults(), warm.FirstFault)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.name, err)
	}
	return warm.Answered, nil
}

// measureSlowTarget measures one process.
func measureSlowTarget(ctx context.Context, t *target, cell string, n int) (streamSample, error) {
	warm, err := warmUp(ctx, t, cell, min(n, 64))
	if err != nil {
		return streamSample{}, err
	}
	t.resetPeak()
	rss, _ := t.memory()
	cpu := t.cpuTime()
	r, err := askRole[slowResult](ctx, "slow-load", slowSpec{
		URL: t.url, Tokens: t.tokens, Cell: cell, Billed: t.billed, Clients: n, Chunks: slowChunks, Spread: slowSpread,
	})
	if err != nil {
		return streamSample{}, fmt.Errorf("%s: %w", t.name, err)
	}
	_, peak := t.memory()
	r.Warm = warm
	return streamSample{
		Gateway:    t.name,
		Cell:       cell,
		Streams:    n,
		slowResult: r,
		CPUUS:      float64((t.cpuTime() - cpu).Microseconds()) / float64(n),
		KiB:        float64(peak-rss) / float64(n),
	}, nil
}

func (s streamSample) fault() string {
	if s.faults() == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s, %d streams: %d faults: %s", s.Gateway, s.Cell, s.Streams, s.faults(), s.FirstFault)
}

// printStreams prints the medians.
func (r *report) printStreams(w io.Writer) {
	fmt.Fprintf(w, "\n%d chunks a stream, one each %s; lag of a chunk, processor time and memory a stream\n",
		slowChunks, slowEvery)
	label := func(s streamSample) string {
		return fmt.Sprintf("%d | %s | %s", s.Streams, strings.Replace(s.Cell, "stream", "openai", 1), s.Gateway)
	}
	printTable(w, "streams | of | ", r.Streams, label, []column[streamSample]{
		{"lag p50 ms", "%.1f", func(s streamSample) float64 { return ms(s.P50US) }},
		{"p99 ms", "%.1f", func(s streamSample) float64 { return ms(s.P99US) }},
		{"× floor", "%.2f", func(s streamSample) float64 { return ifPositive(s.P99OfFloor) }},
		{"cpu ms", "%.2f", func(s streamSample) float64 { return s.CPUUS / 1000 }},
		{"× floor", "%.2f", func(s streamSample) float64 { return ifPositive(s.CPUOfFloor) }},
		{"KB", "%.0f", func(s streamSample) float64 { return s.KiB }},
		{"first chunk ms", "%.1f", func(s streamSample) float64 { return ms(s.FirstP50US) }},
	})
	printFaults(w, r.Streams)
}
