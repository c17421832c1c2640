package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A sample is one gateway in one cell and round. The ratios compare it with the
// floor as it was measured immediately before; they are 0 for the floor itself.
type sample struct {
	Gateway string `json:"gateway"`
	Cell    string `json:"cell"` // a key of titles
	Clients int    `json:"clients"`
	Round   int    `json:"round"`
	loadResult
	CPUUS      float64 `json:"cpu_us_per_call"` // of the gateway's process
	RSSKiB     int64   `json:"rss_kib"`         // right after the load
	PeakKiB    int64   `json:"peak_kib"`        // during it
	OfFloor    float64 `json:"of_floor"`        // calls/s ÷ the floor's
	P99OfFloor float64 `json:"p99_of_floor"`
	AddedP50US int64   `json:"added_p50_us"`
}

// A ledgerCheck compares the calls that clients saw answered with the ledger's rows.
type ledgerCheck struct {
	Gateway   string `json:"gateway"`
	Answered  int64  `json:"answered"`   // calls that the clients saw through
	SpendRows int64  `json:"spend_rows"` // new spend rows in the ledger
	OpenHolds int64  `json:"open_holds"`
	Error     string `json:"error,omitempty"`
}

// ledgerSample is the ledger alone, without HTTP.
type ledgerSample struct {
	Engine    string  `json:"engine"`
	Rows      float64 `json:"million_rows"`
	Callers   int     `json:"callers"`
	Round     int     `json:"round"`
	PerSecond float64 `json:"calls_per_s"` // each a hold and its settlement
	P50US     int64   `json:"p50_us"`
	P99US     int64   `json:"p99_us"`
	CPUUS     float64 `json:"cpu_us_per_call"`
	RSSKiB    int64   `json:"rss_kib"`
}

// report has all figures of a run.
type report struct {
	Run      runInfo          `json:"run"`
	Samples  []sample         `json:"samples"`
	Audits   []ledgerCheck    `json:"audits"`
	Ledger   []ledgerSample   `json:"ledger"`
	Voice    []voiceSample    `json:"voice"`
	Pages    []pageSample     `json:"pages"`
	Verify   []verifySample   `json:"verify"`
	Streams  []streamSample   `json:"streams"`
	Overload []overloadSample `json:"overload"`
	Nodes    []nodesSample    `json:"nodes"`
	Log      []logSample      `json:"log"`
}

func (r *report) writeJSON(file string) error {
	out, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}

// countAnswered returns the number of answered calls of a gateway. An exact ledger has a
// row for each.
func (r *report) countAnswered(gateway string) (n int64) {
	for _, s := range r.Samples {
		if s.Gateway == gateway {
			n += s.Answered
		}
	}
	return n
}

// checkValid returns an error if any figure is invalid.
func (r *report) checkValid() error {
	var faults int64
	for _, s := range r.Samples {
		faults += s.faults()
	}
	for _, s := range r.Voice {
		faults += s.faults()
	}
	for _, s := range r.Streams {
		faults += s.faults()
	}
	for _, s := range r.Overload {
		faults += s.Failed
	}
	for _, s := range r.Nodes {
		faults += s.Faults
	}
	for _, a := range r.Audits {
		if a.Error != "" || a.SpendRows != a.Answered || a.OpenHolds != 0 {
			faults++
		}
	}
	for _, p := range r.Pages {
		if p.Fault != "" {
			faults++
		}
	}
	for _, v := range r.Verify {
		if v.Fault != "" {
			faults++
		}
	}
	if faults > 0 {
		return fmt.Errorf("INVALID RUN: %d faults", faults)
	}
	return nil
}

// titles name the cells.
var titles = map[string]string{
	"plain":     "whole answers",
	"stream":    "streamed answers",
	"anthropic": "streamed answers of Anthropic, translated",
	"google":    "streamed answers of Google, translated",
	"drop-in":   "streamed answers on the OpenAI-compatible route",
	"responses": "streamed answers by the Responses API",
	"messages":  "streamed answers by Anthropic's Messages API",
}

// printCell prints the medians of one cell.
func (r *report) printCell(w io.Writer, cell string, clients int) {
	fmt.Fprintf(w, "\n%s, %d clients\n", titles[cell], clients)
	fmt.Fprintf(w, "%-26s%9s%9s%9s%9s%9s%9s%10s%9s%9s%9s\n", "", "calls/s", "× floor", "p50 ms", "+ ms", "p99 ms",
		"× floor", "1st byte", "cpu µs", "RSS MB", "peak MB")
	var names []string
	of := map[string][]sample{}
	for _, s := range r.Samples {
		if s.Cell == cell && s.Clients == clients {
			if of[s.Gateway] == nil {
				names = append(names, s.Gateway)
			}
			of[s.Gateway] = append(of[s.Gateway], s)
		}
	}
	for _, name := range names {
		printRow(w, name, of[name])
		base := r.samplesOf(name, "drop-in", clients)
		if len(base) > 0 && shapes[cell].path != "" && cell != "drop-in" {
			perSecond := func(s sample) float64 { return s.PerSecond }
			ratio := median(of[name], perSecond) / median(base, perSecond)
			fmt.Fprintf(w, "%-26s%9.2f of the drop-in route's calls/s\n", "", ratio)
		}
	}
}

// samplesOf returns the samples of a gateway in a cell, except those of the floor, which has no shapes.
func (r *report) samplesOf(gateway, cell string, clients int) (list []sample) {
	for _, s := range r.Samples {
		if s.Gateway == gateway && s.Cell == cell && s.Clients == clients && s.OfFloor > 0 {
			list = append(list, s)
		}
	}
	return list
}

func printRow(w io.Writer, name string, list []sample) {
	pick := func(f func(s sample) float64) float64 { return median(list, f) }
	ofFloor, p99, added := strings.Repeat(" ", 9), strings.Repeat(" ", 9), strings.Repeat(" ", 9)
	if list[0].OfFloor > 0 {
		ofFloor = fmt.Sprintf("%9.2f", pick(func(s sample) float64 { return s.OfFloor }))
		p99 = fmt.Sprintf("%9.2f", pick(func(s sample) float64 { return s.P99OfFloor }))
		added = fmt.Sprintf("%9.2f", pick(func(s sample) float64 { return float64(s.AddedP50US) / 1000 }))
	}
	fmt.Fprintf(w, "%-26s%9.0f%s%9.2f%s%9.2f%s%10.2f%9.0f%9.0f%9.0f", name,
		pick(func(s sample) float64 { return s.PerSecond }), ofFloor,
		pick(func(s sample) float64 { return float64(s.P50US) / 1000 }), added,
		pick(func(s sample) float64 { return float64(s.P99US) / 1000 }), p99,
		pick(func(s sample) float64 { return float64(s.FirstP50US) / 1000 }),
		pick(func(s sample) float64 { return s.CPUUS }),
		pick(func(s sample) float64 { return float64(s.RSSKiB) / 1024 }),
		pick(func(s sample) float64 { return float64(s.PeakKiB) / 1024 }))
	var failed, truncated, wrong int64
	fault := ""
	for _, s := range list {
		failed, truncated, wrong = failed+s.Failed, truncated+s.Truncated, wrong+s.Wrong
		if fault == "" {
			fault = s.FirstFault
		}
	}
	if failed+truncated+wrong > 0 {
		fmt.Fprintf(w, "  INVALID: %d failed, %d truncated, %d wrong\n%16s%s", failed, truncated, wrong, "", fault)
	}
	fmt.Fprintln(w)
}

// printPages prints the pages of an engine, the slowest first.
func (r *report) printPages(w io.Writer, engine string) {
	list := slices.DeleteFunc(slices.Clone(r.Pages), func(p pageSample) bool { return p.Engine != engine })
	slices.SortFunc(list, func(a, b pageSample) int { return cmp.Compare(b.MedianUS, a.MedianUS) })
	fmt.Fprintf(w, "\npages, %s, %d tries each\n%10s%10s%10s%9s\n", engineTitle(engine, list[0].Rows), pageTries,
		"median ms",
		"first ms", "most ms", "KB")
	for _, p := range list {
		fmt.Fprintf(w, "%10.1f%10.1f%10.1f%9.1f  %s", float64(p.MedianUS)/1000, float64(p.FirstUS)/1000,
			float64(p.MostUS)/1000, float64(p.Bytes)/1000, p.Path)
		if p.Fault != "" {
			fmt.Fprintf(w, "  INVALID: %s", p.Fault)
		}
		fmt.Fprintln(w)
	}
}

// median returns the median of f over list; of an even number, the upper one.
func median[T any](list []T, f func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = f(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func (r *report) printAudits(w io.Writer) {
	if len(r.Audits) > 0 {
		fmt.Fprintln(w)
	}
	for _, a := range r.Audits {
		switch {
		case a.Error != "":
			fmt.Fprintf(w, "%s: INVALID: the ledger cannot be read: %s\n", a.Gateway, a.Error)
		case a.SpendRows != a.Answered || a.OpenHolds != 0:
			fmt.Fprintf(w, "%s: INVALID: %d calls answered, %d rows in the ledger, %d holds open\n", a.Gateway,
				a.Answered, a.SpendRows, a.OpenHolds)
		default:
			fmt.Fprintf(w, "%s: %d calls answered, each with its row in the ledger; no hold open\n", a.Gateway,
				a.Answered)
		}
	}
}

// printLedger prints the medians of the ledger alone.
func (r *report) printLedger(w io.Writer) {
	fmt.Fprintf(w, "\nthe ledger alone: hold and settle, each answered when it is committed\n"+
		"%-26s%9s%10s%9s%9s%9s%9s\n", "", "callers", "calls/s", "p50 ms", "p99 ms", "cpu µs", "RSS MB")
	type key struct {
		name    string
		callers int
	}
	var keys []key
	of := map[key][]ledgerSample{}
	for _, s := range r.Ledger {
		k := key{engineTitle(s.Engine, s.Rows), s.Callers}
		if of[k] == nil {
			keys = append(keys, k)
		}
		of[k] = append(of[k], s)
	}
	for _, k := range keys {
		pick := func(f func(s ledgerSample) float64) float64 { return median(of[k], f) }
		fmt.Fprintf(w, "%-26s%9d%10.0f%9.2f%9.2f%9.0f%9.0f\n", k.name, k.callers,
			pick(func(s ledgerSample) float64 { return s.PerSecond }),
			pick(func(s ledgerSample) float64 { return float64(s.P50US) / 1000 }),
			pick(func(s ledgerSample) float64 { return float64(s.P99US) / 1000 }),
			pick(func(s ledgerSample) float64 { return s.CPUUS }),
			pick(func(s ledgerSample) float64 { return float64(s.RSSKiB) / 1024 }))
	}
}
