// Command mutants puts faults into the code of money and access, one at a time, and prints those that no test notices:
//
//	go run ./internal/testkit/dbtest/pg -- go run ./internal/testkit/mutants -minutes 60
//
// It compiles the tests of a package once, with all faults in it (an overlay; the tree stays as it is). An environment
// variable chooses the one that is there. Each test runs alone first, which tells the faults that it reaches; then each
// fault of a sample runs the tests that reach it. What was found is kept in the user's cache folder, by the state of
// the tree, so that the same command goes on where the last one ended. accepted.txt lists the faults that no test has
// to notice, and why. The exit status is 1 if others survive.
//
// A fault is killed if one test fails with it, takes three times as long and a minute more, or takes too much memory.
// It survives if tests reach it, and all of them pass: those of its package, and of the few packages that targets names
// for it. Others may notice it, too; they are not asked, because a rule is proved where it is written. Ask them by
// -also, if a package further down is the right place, and accept what they kill with that test as its reason. A fault
// is unreached if no test that was asked gets to it. What was not asked, for want of time, is not run, and nothing is
// known of it. Tests that fail or are slow without a fault are left out, and named: what only they notice survives.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// A target is a package whose code gets faults.
type target struct {
	pkg    string   // its folder
	others []string // packages whose tests are asked about what the tests of pkg do not notice
}

var targets = []target{
	{"internal/models/pricing", []string{"internal/gateway/voice/session"}},
	{"internal/ledger/rules", nil},
	{"internal/gateway/voice/session", []string{"internal/gateway/voice"}},
	{"internal/apps/oauth/verdict", []string{"internal/apps/oauth"}},
	{"internal/gateway/inference/plan", []string{"internal/gateway/inference"}},
	{"internal/apps/payouts", nil},
	{"internal/ledger/store", nil},
	{"internal/apps/oauth", nil},
	{"internal/gateway/children", nil},
	{"internal/people/topups", nil},
	{"internal/gateway/inference", nil},
}

//go:embed accepted.txt
var accepted string

func main() {
	seed := flag.Uint64("seed", 1, "of the sample")
	n := flag.Int("n", 40, "faults of a package")
	minutes := flag.Int("minutes", 60, "no test begins later")
	jobs := flag.Int("j", 2, "processes of tests at a time")
	only := flag.String("pkg", "", "one package, such as internal/ledger/rules; \"\" = all of the list")
	also := flag.String("also", "", "packages whose tests are asked about what survives, such as internal/server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	list := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return *only != "" && t.pkg != *only })
	if len(list) == 0 {
		list = []target{{pkg: *only}}
	}
	r := &run{seed: *seed, n: *n, jobs: *jobs, accepted: parseAccepted(accepted), log: os.Stdout}
	r.also = strings.FieldsFunc(*also, func(c rune) bool { return c == ',' })
	err := r.findTree(ctx)
	if err == nil {
		err = r.all(ctx, list, time.Duration(*minutes)*time.Minute)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// A run is what one call of the command does.
type run struct {
	root, cache string // folders
	seed        uint64
	n, jobs     int
	also        []string          // packages whose tests are asked last
	accepted    map[string]string // the reasons, by mutant.key
	log         io.Writer
}

// findTree sets root, and cache by the commit and what was changed since. It removes what is old.
func (r *run) findTree(ctx context.Context) error {
	hash := sha256.New()
	for _, args := range [][]string{{"rev-parse", "HEAD"}, {"diff", "HEAD"}, {"rev-parse", "--show-toplevel"}} {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return fmt.Errorf("git %s: %w", args[0], err)
		}
		if r.root = strings.TrimSpace(string(out)); args[0] == "diff" || args[1] == "HEAD" {
			hash.Write(out)
		}
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	folder = filepath.Join(folder, "purser-mutants")
	r.cache = filepath.Join(folder, fmt.Sprintf("%x", hash.Sum(nil)[:8]))
	old, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, d := range old { // what other trees have left
		if info, e := d.Info(); e == nil && time.Since(info.ModTime()) > keepFor && d.Name() != filepath.Base(r.cache) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, d.Name())))
		}
	}
	return err
}

// keepFor is how long the results of a tree are kept.
const keepFor = 7 * 24 * time.Hour

// The states of a mutant.
const (
	killed    = "killed"
	survived  = "survived"
	unreached = "unreached" // by the tests that were asked
	notRun    = "not run"
)

var errSurvivors = errors.New("some faults are noticed by no test: add one, or say in accepted.txt why none is needed")

// all runs the targets. Each gets its share of the time that is left.
func (r *run) all(ctx context.Context, list []target, limit time.Duration) error {
	end := time.Now().Add(limit)
	table := tabwriter.NewWriter(r.log, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tpossible\taccepted\tsample\tkilled\tsurvived\tunreached\tnot run")
	var failed error
	for i, t := range list {
		share := time.Now().Add(time.Until(end) / time.Duration(len(list)-i))
		found, err := r.target(ctx, t, share)
		if err != nil {
			return fmt.Errorf("%s: %w", t.pkg, err)
		}
		count := map[string]int{}
		for _, m := range found.sample {
			if count[m.state]++; m.state == survived || m.state == unreached {
				fmt.Fprintf(r.log, "%s:%d: %s: %s\n", m.file, m.line, m.state, m.key())
			}
		}
		for _, key := range found.stale {
			fmt.Fprintf(r.log, "accepted.txt has what is not in the code: %s\n", key)
		}
		if count[survived] > 0 || len(found.stale) > 0 {
			failed = errSurvivors
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", t.pkg, found.possible, found.accepted, len(found.sample),
			count[killed], count[survived], count[unreached], count[notRun])
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(table.Flush(), failed, ctx.Err())
}

// found is what is known of a target's mutants.
type found struct {
	possible, accepted int
	sample             []*mutant
	stale              []string // what accepted.txt has of the package, and the package has not
}

// target runs the sample of a package until a time.
func (r *run) target(ctx context.Context, t target, end time.Time) (f found, err error) {
	p, err := mutate(ctx, r.root, t.pkg, filepath.Join(r.cache, t.pkg))
	if err != nil {
		return f, err
	}
	stale := map[string]bool{}
	for key := range r.accepted {
		if strings.HasPrefix(key, t.pkg+"/") && !strings.Contains(key[len(t.pkg)+1:strings.Index(key, " | ")], "/") {
			stale[key] = true
		}
	}
	for _, m := range p.mutants {
		if delete(stale, m.key()); r.accepted[m.key()] != "" {
			f.accepted++
		} else {
			f.sample = append(f.sample, m)
		}
	}
	f.possible, f.stale = len(p.mutants), slices.Sorted(maps.Keys(stale))
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.pkg)) // a hash takes everything
	random := rand.New(rand.NewPCG(r.seed, name.Sum64()))
	random.Shuffle(len(f.sample), func(i, j int) { f.sample[i], f.sample[j] = f.sample[j], f.sample[i] })
	f.sample = f.sample[:min(r.n, len(f.sample))]

	results, err := openResults(filepath.Join(r.cache, t.pkg, "results"))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, results.close()) }()
	always := 1 + len(t.others) // suites that each is asked about
	for _, m := range f.sample {
		if m.state = results.known[m.number]; m.state == "" {
			m.state = notRun
		} else {
			m.asked = always
		}
	}
	for i, tests := range slices.Concat([]string{t.pkg}, t.others, r.also) {
		left := slices.DeleteFunc(slices.Clone(f.sample), func(m *mutant) bool {
			return m.state == killed || m.asked != i
		})
		if len(left) == 0 || ctx.Err() != nil || time.Now().After(end) {
			continue
		}
		s, err := r.openSuite(ctx, p, tests, end)
		if err != nil {
			return f, err
		}
		s.judge(ctx, left, results, end)
	}
	for _, m := range f.sample { // of one that lives, and has not met all tests, nothing is known
		if m.state != killed && m.asked < always {
			m.state = notRun
		} else if results.known[m.number] != m.state {
			results.add(m)
		}
	}
	return f, nil
}

// parseAccepted reads lines of the form "file | function | operator | text | reason".
func parseAccepted(text string) map[string]string {
	list := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndex(line, " | "); i > 0 && line[0] != '#' {
			list[line[:i]] = line[i+3:]
		}
	}
	return list
}
