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

// A part is what a run measures, if --parts names it.
type part struct {
	name    string
	measure func(*bench, context.Context) error
}

// parts are all of them, in the order of a run.
var parts = []part{
	{"http", (*bench).measureGateways},
	{"ledger", (*bench).measureLedgers},
	{"streams", (*bench).measureStreams},
	{"overload", (*bench).measureOverload},
	{"pages", (*bench).measurePages},
}

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
	streams     []int
	rows        float64 // millions
	parts       []string
	dir         string
	jsonFile    string
	profiles    string
	pgo         string
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
	var clients, callers, streams, engines, cells, named string
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
		"what is compared with the floor: sqlite, postgres, floor (itself: the noise)")
	f.StringVar(&cells, "cells", "plain,stream,anthropic,google,drop-in,responses,messages",
		"whole answers; streamed ones; streamed ones of Anthropic and Google, which are translated; streamed ones "+
			"for OpenAI's clients on the drop-in route and by the Responses API, and for Anthropic's")
	f.StringVar(&callers, "callers", "64,256", "callers of the ledger alone")
	f.StringVar(&named, "parts", "http,ledger",
		"what is measured: http, ledger, streams, overload (more clients than a node takes), pages (with as many rows "+
			"as --rows says)")
	f.StringVar(&streams, "streams", "500,2000,4000", "slow streams at a time, of the part streams")
	f.BoolVar(&quick, "quick", false, "one round of one second at 64 clients, to see that it works")
	f.IntVar(&o.connections, "connections", 64, "connections that the calls are spread over")
	f.Float64Var(&o.rows, "rows", 0, "also measure with a ledger of this many million rows")
	f.StringVar(&o.dir, "dir", "",
		"folder for SQLite files and logs, on the disk to be measured (default: a temporary one, removed "+
			"afterwards); PostgreSQL lies in /tmp")
	f.StringVar(&o.jsonFile, "json", "", "write every figure to this file")
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
		clients, callers, streams, o.rounds, o.duration = "64", "64", "50", 1, time.Second
	}
	o.engines, o.cells, o.parts = strings.Split(engines, ","), strings.Split(cells, ","), strings.Split(named, ",")
	var err1, err2, err3 error
	o.clients, err1 = parseNumbers("--clients", clients)
	o.callers, err2 = parseNumbers("--callers", callers)
	o.streams, err3 = parseNumbers("--streams", streams)
	return o, errors.Join(err1, err2, err3, o.checkOptions())
}

func (o options) checkOptions() error {
	if o.rounds < 1 || o.duration <= 0 || o.connections < 1 || o.rows < 0 {
		return errors.New("--rounds, --duration and --connections must be positive")
	}
	for _, e := range o.engines {
		if e != "sqlite" && e != "postgres" && e != "floor" {
			return fmt.Errorf("--engines: %q is none of sqlite, postgres, floor", e)
		}
	}
	for _, c := range o.cells {
		if titles[c] == "" {
			return fmt.Errorf("--cells: %q is none of plain, stream, anthropic, google, drop-in, responses, "+
				"messages", c)
		}
	}
	for _, name := range o.parts {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("--parts: %q is none of http, ledger, streams, overload, pages", name)
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
