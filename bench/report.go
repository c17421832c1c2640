package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
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
	Pages    []pageSample     `json:"pages"`
	Streams  []streamSample   `json:"streams"`
	Overload []overloadSample `json:"overload"`
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
	faults := countFaults(r.Samples) + countFaults(r.Audits) + countFaults(r.Pages) + countFaults(r.Streams) +
		countFaults(r.Overload)
	if faults > 0 {
		return fmt.Errorf("INVALID RUN: %d faults", faults)
	}
	return nil
}

func (s sample) fault() string {
	if s.faults() == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s, %d clients: %d failed, %d truncated, %d wrong: %s", s.Gateway, s.Cell, s.Clients,
		s.Failed, s.Truncated, s.Wrong, s.FirstFault)
}

func (a ledgerCheck) fault() string {
	switch {
	case a.Error != "":
		return fmt.Sprintf("%s: the ledger cannot be read: %s", a.Gateway, a.Error)
	case a.SpendRows != a.Answered || a.OpenHolds != 0:
		return fmt.Sprintf("%s: %d calls answered, %d rows in the ledger, %d holds open", a.Gateway, a.Answered,
			a.SpendRows, a.OpenHolds)
	}
	return ""
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
	list, dropIn := []sample{}, map[string]float64{} // calls a second on the drop-in route, by gateway and round
	for _, s := range r.Samples {
		if s.Cell == cell && s.Clients == clients {
			list = append(list, s)
		}
		if s.Cell == "drop-in" && s.Clients == clients {
			dropIn[fmt.Sprint(s.Gateway, s.Round)] = s.PerSecond
		}
	}
	columns := []column[sample]{
		{"calls/s", "%.0f", func(s sample) float64 { return s.PerSecond }},
		{"× floor", "%.2f", func(s sample) float64 { return ifPositive(s.OfFloor) }},
		{"p50 ms", "%.2f", func(s sample) float64 { return ms(s.P50US) }},
		{"+ ms", "%.2f", func(s sample) float64 {
			if s.OfFloor == 0 {
				return none
			}
			return ms(s.AddedP50US)
		}},
		{"p99 ms", "%.2f", func(s sample) float64 { return ms(s.P99US) }},
		{"× floor", "%.2f", func(s sample) float64 { return ifPositive(s.P99OfFloor) }},
		{"1st byte", "%.2f", func(s sample) float64 { return ms(s.FirstP50US) }},
		{"cpu µs", "%.0f", func(s sample) float64 { return s.CPUUS }},
		{"RSS MB", "%.0f", func(s sample) float64 { return mb(s.RSSKiB) }},
		{"peak MB", "%.0f", func(s sample) float64 { return mb(s.PeakKiB) }},
	}
	if len(dropIn) > 0 && shapes[cell].path != "" && cell != "drop-in" {
		columns = append(columns, column[sample]{"× drop-in", "%.2f", func(s sample) float64 {
			if s.OfFloor == 0 { // the floor has no shapes
				return none
			}
			return s.PerSecond / dropIn[fmt.Sprint(s.Gateway, s.Round)]
		}})
	}
	printTable(w, fmt.Sprintf("%s, %d clients", titles[cell], clients), list,
		func(s sample) string { return s.Gateway }, columns)
	printFaults(w, list)
}

// printPages prints the pages of an engine, the slowest first.
func (r *report) printPages(w io.Writer, engine string) {
	list := slices.DeleteFunc(slices.Clone(r.Pages), func(p pageSample) bool { return p.Engine != engine })
	slices.SortFunc(list, func(a, b pageSample) int { return cmp.Compare(b.MedianUS, a.MedianUS) })
	title := fmt.Sprintf("pages, %s, %d tries each", engineTitle(engine, list[0].Rows), pageTries)
	printTable(w, title, list, func(p pageSample) string { return p.Path }, []column[pageSample]{
		{"median ms", "%.1f", func(p pageSample) float64 { return ms(p.MedianUS) }},
		{"first ms", "%.1f", func(p pageSample) float64 { return ms(p.FirstUS) }},
		{"most ms", "%.1f", func(p pageSample) float64 { return ms(p.MostUS) }},
		{"KB", "%.1f", func(p pageSample) float64 { return float64(p.Bytes) / 1000 }},
	})
	printFaults(w, list)
}

func (r *report) printAudits(w io.Writer) {
	fmt.Fprintln(w)
	for _, a := range r.Audits {
		if a.fault() == "" {
			fmt.Fprintf(w, "%s: %d calls answered, each with its row in the ledger; no hold open\n", a.Gateway,
				a.Answered)
		}
	}
	printFaults(w, r.Audits)
}

// printLedger prints the medians of the ledger alone.
func (r *report) printLedger(w io.Writer) {
	label := func(s ledgerSample) string { return fmt.Sprintf("%s | %d", engineTitle(s.Engine, s.Rows), s.Callers) }
	printTable(w, "the ledger alone: hold and settle | callers", r.Ledger, label, []column[ledgerSample]{
		{"calls/s", "%.0f", func(s ledgerSample) float64 { return s.PerSecond }},
		{"p50 ms", "%.2f", func(s ledgerSample) float64 { return ms(s.P50US) }},
		{"p99 ms", "%.2f", func(s ledgerSample) float64 { return ms(s.P99US) }},
		{"cpu µs", "%.0f", func(s ledgerSample) float64 { return s.CPUUS }},
		{"RSS MB", "%.0f", func(s ledgerSample) float64 { return mb(s.RSSKiB) }},
	})
}
