// Bench measures what durable billing costs: Purser against a bare reverse proxy
// in front of the same fake provider, in the same run. See docs/internals/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The model and the feature of every call.
const (
	model   = "gpt-5.4-mini"
	feature = "mail-digest"
)

// models are the models of the cells.
var models = map[string]string{
	"plain":     model,
	"stream":    model,
	"anthropic": "claude-haiku-5-5",
	"google":    "gemini-3.8-flash",
	"drop-in":   model,
	"responses": model,
	"messages":  model,
}

// allParts are the parts of a run.
var allParts = []string{"http", "ledger", "voice", "streams", "overload", "nodes", "log", "pages", "verify"}

// options are the flags of a run.
type options struct {
	duration    time.Duration
	warmup      time.Duration
	rounds      int
	clients     []int
	engines     []string
	cells       []string
	callers     []int
	connections int
	sessions    int
	streams     []int
	rows        float64 // millions
	parts       string
	dir         string
	jsonFile    string
	profiles    string
	pgo         string
	limits      bool
	before      string // a work tree of an older commit
}

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			exitWith(role(os.Args[2:]))
		}
	}
	o, err := parseOptions(os.Args[1:])
	if err != nil {
		exitWith(err)
	}
	runtime.LockOSThread() // children end with the thread that starts them (Pdeathsig)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitWith(runBench(ctx, o))
}

func exitWith(err error) {
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseOptions(args []string) (options, error) {
	var o options
	var clients, callers, streams, engines, cells string
	var quick bool
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(),
			"Measures Purser against a bare reverse proxy in front of the same fake provider.\nExample: go run "+
				"./bench --clients 64 --rounds 3 --json figures.json\n\n")
		f.PrintDefaults()
	}
	f.DurationVar(&o.duration, "duration", 3*time.Second, "measured time of one cell")
	f.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before it that does not count")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; the table shows medians")
	f.StringVar(&clients, "clients", "1,16,64", "clients at a time")
	f.StringVar(&engines, "engines", "sqlite,postgres",
		"what is compared with the floor: sqlite, postgres, null (a proxy without billing), floor (itself: the noise)")
	f.StringVar(&cells, "cells", "plain,stream,anthropic,google,drop-in,responses,messages",
		"whole answers; streamed ones; streamed ones of Anthropic and Google, which are translated; streamed ones "+
			"for OpenAI's clients on the drop-in route and by the Responses API, and for Anthropic's")
	f.StringVar(&callers, "callers", "64,256", "callers of the ledger alone")
	f.StringVar(&o.parts, "parts", "http,ledger,voice",
		"what is measured: http, ledger, voice, streams, overload (more clients than a node takes), nodes (1, 2 and "+
			"4 on one PostgreSQL); with as many rows as --rows says: log (the public one), pages, verify (audits)")
	f.StringVar(&streams, "streams", "500,2000,4000", "slow streams at a time, of the part streams")
	f.BoolVar(&quick, "quick", false, "one round of one second at 64 clients, to see that it works")
	f.IntVar(&o.connections, "connections", 64, "connections that the calls are spread over")
	f.IntVar(&o.sessions, "sessions", 200, "live voice sessions; they get as many connections as they need")
	f.Float64Var(&o.rows, "rows", 0, "also measure with a ledger of this many million rows")
	f.StringVar(&o.dir, "dir", "",
		"folder for SQLite files and logs, on the disk to be measured (default: a temporary one, removed "+
			"afterwards); PostgreSQL lies in /tmp")
	f.StringVar(&o.jsonFile, "json", "", "write every figure to this file")
	f.BoolVar(&o.limits, "limits", false, "check every limit at each call: tier, daily, rate, risk, free credit")
	f.StringVar(&o.before, "before", "",
		"folder with an older commit checked out: its product is measured in the same rounds")
	f.StringVar(&o.profiles, "profile", "", "write CPU profiles of Purser into this folder")
	f.StringVar(&o.pgo, "pgo", "", "write the merged CPU profiles into this file, for go build -pgo")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if quick {
		clients, callers, streams, o.rounds, o.duration, o.sessions = "64", "64", "50", 1, time.Second, 20
	}
	o.engines, o.cells = strings.Split(engines, ","), strings.Split(cells, ",")
	var err1, err2, err3 error
	o.clients, err1 = parseNumbers("--clients", clients)
	o.callers, err2 = parseNumbers("--callers", callers)
	o.streams, err3 = parseNumbers("--streams", streams)
	return o, errors.Join(err1, err2, err3, o.checkOptions())
}

func (o options) checkOptions() error {
	if o.rounds < 1 || o.duration <= 0 || o.connections < 1 || o.sessions < 1 || o.rows < 0 {
		return errors.New("--rounds, --duration, --connections and --sessions must be positive")
	}
	for _, e := range o.engines {
		if e != "sqlite" && e != "postgres" && e != "null" && e != "floor" {
			return fmt.Errorf("--engines: %q is none of sqlite, postgres, null, floor", e)
		}
	}
	for _, c := range o.cells {
		if titles[c] == "" {
			return fmt.Errorf("--cells: %q is none of plain, stream, anthropic, google, drop-in, responses, "+
				"messages", c)
		}
	}
	for p := range strings.SplitSeq(o.parts, ",") {
		if !slices.Contains(allParts, p) {
			return fmt.Errorf("--parts: %q is none of %s", p, strings.Join(allParts, ", "))
		}
	}
	return nil
}

func parseNumbers(name, list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is not a positive number", name, word)
		}
		out = append(out, n)
	}
	return out, nil
}
