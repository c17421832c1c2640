package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// results are the states of mutants that runs have found, kept in a file.
type results struct {
	*os.File
	mu    sync.Mutex
	known map[int]string
	err   error // of the writes
}

func openResults(file string) (*results, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	r, number, state := &results{File: f, known: map[int]string{}}, 0, ""
	for err == nil {
		if _, err = fmt.Fscanln(f, &number, &state); err == nil {
			r.known[number] = state
		}
	}
	if err != io.EOF {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	return r, nil
}

func (r *results) add(m *mutant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[m.number] = m.state
	_, err := fmt.Fprintln(r, m.number, m.state)
	r.err = errors.Join(r.err, err)
}

func (r *results) close() error { return errors.Join(r.err, r.Close()) }

// A suite is the tests of a package, compiled with all mutants of a package.
type suite struct {
	run          *run
	folder       string // where the tests run
	binary, hits string // files
	tests        map[string]*test
}

// A test is what is known of a test function.
type test struct {
	Took    time.Duration // alone
	Reaches []int         // mutants; below zero: those of an edge that it comes to beside it
	Fails   bool          // without a mutant, or takes longer than slowTest: it tells nothing
}

const (
	slowTest  = 3 * time.Minute
	maxMemory = 3 << 30 // of a process of tests: a loop that does not end may take all of the machine
)

// testName is one line of a list of tests; what TestMain prints is none.
var testName = regexp.MustCompile(`(?m)^(Test|Fuzz|Example)\w*$`)

// openSuite compiles the tests of a package, and runs each test alone until a time, unless an earlier run has.
func (r *run) openSuite(ctx context.Context, p *mutated, tests string, end time.Time) (*suite, error) {
	name := filepath.Join(r.cache, p.pkg, strings.ReplaceAll(tests, "/", "_"))
	s := &suite{run: r, folder: filepath.Join(r.root, tests), binary: name + ".test", hits: name + ".hits"}
	if out, err := p.compile(ctx, "test", "-c", "-vet=off", "-o", s.binary, "./"+tests); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &s.tests)
	} else {
		s.tests = map[string]*test{}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	list, err := s.start(ctx, time.Minute, nil, "-test.list", "^(Test|Fuzz|Example)")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, list)
	}
	var mu sync.Mutex
	each(r.jobs, testName.FindAllString(list, -1), func(name string) {
		mu.Lock()
		known := s.tests[name] != nil
		mu.Unlock()
		if known || ctx.Err() != nil || time.Now().After(end) {
			return
		}
		t := s.alone(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		if s.tests[name] = t; t.Fails {
			fmt.Fprintf(r.log, "%s: %s fails, or is slow, without a fault: it is left out\n", tests, name)
		}
	})
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if text, err = json.Marshal(s.tests); err == nil {
		err = os.WriteFile(name+".json", text, 0o666)
	}
	return s, err
}

// alone runs a test without a mutant.
func (s *suite) alone(ctx context.Context, name string) *test {
	hits, began := s.hits+"-"+name, time.Now()
	defer func() { _ = os.Remove(hits) }()
	out, err := s.start(ctx, slowTest, []string{"MUTANT_HITS=" + hits}, "-test.run", "^"+name+"$")
	t := &test{Took: time.Since(began), Fails: err != nil}
	if strings.Contains(out, "no tests to run") {
		t.Fails = true
	}
	text, _ := os.ReadFile(hits) // none: it reaches no mutant
	for _, f := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			t.Reaches = append(t.Reaches, n)
		}
	}
	return t
}

// judge runs the tests that reach each mutant, the quick ones first: four, or as many as take a tenth of the time.
func (s *suite) judge(ctx context.Context, list []*mutant, found *results, end time.Time) {
	each(s.run.jobs, list, func(m *mutant) {
		var names []string
		var limit time.Duration
		for name, t := range s.tests {
			switch {
			case t.Fails:
			case slices.Contains(t.Reaches, m.number):
				names = append(names, name)
				limit += t.Took
			case slices.Contains(t.Reaches, -m.number):
				m.state = survived // at another value than the edge
			}
		}
		slices.SortFunc(names, func(a, b string) int { return int(s.tests[a].Took - s.tests[b].Took) })
		quick, took := 0, time.Duration(0)
		for ; quick < len(names) && (quick < 4 || took < limit/10); quick++ {
			took += s.tests[names[quick]].Took
		}
		for _, group := range [][]string{names[:quick], names[quick:]} {
			if ctx.Err() != nil || time.Now().After(end) {
				return
			}
			if len(group) == 0 {
				continue
			}
			_, failed := s.start(ctx, 3*limit+time.Minute, []string{"MUTANT=" + strconv.Itoa(m.number)},
				"-test.failfast", "-test.run", "^("+strings.Join(group, "|")+")$")
			if m.state = survived; failed != nil && ctx.Err() == nil {
				m.state = killed
				found.add(m)
				return
			}
		}
		if m.asked++; m.state == notRun {
			m.state = unreached
		}
	})
}

// start runs the binary in the folder of its package, until a time limit or until it takes too much memory.
func (s *suite) start(ctx context.Context, limit time.Duration, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append(args, "-test.short")...) // random tests draw less
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.folder, append(os.Environ(), env...), 5*time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if memoryOf(cmd.Process.Pid) > maxMemory {
					cancel()
				}
			}
		}
	}()
	err := cmd.Wait()
	return out.String(), err
}

var residentPages = regexp.MustCompile(`^\d+ (\d+)`)

// memoryOf returns the resident memory of a process, where the system says it as Linux does; else 0.
func memoryOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	m := residentPages.FindSubmatch(text)
	if err != nil || m == nil {
		return 0
	}
	pages, _ := strconv.Atoi(string(m[1])) // the pattern has checked it
	return pages * os.Getpagesize()
}

// each calls f for each of a list, so many at a time.
func each[T any](jobs int, list []T, f func(T)) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, jobs)
	for _, v := range list {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			f(v)
		})
	}
	wg.Wait()
}
