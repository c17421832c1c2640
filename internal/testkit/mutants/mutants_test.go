package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFixture mutates a package of which one fault changes nothing, and one function is reached by the test of another
// package alone. What was found is not asked again.
func TestFixture(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const pkg = "internal/testkit/mutants/testdata/fixture"
	const survivor = pkg + "/fixture.go | Charge | > to >= | sum > bound"
	var log bytes.Buffer
	r := &run{root: root, cache: t.TempDir(), seed: 1, n: 100, jobs: 2, log: &log}
	runs := func(accepted string) error {
		log.Reset()
		r.accepted = parseAccepted(accepted)
		return r.all(t.Context(), []target{{pkg: pkg}}, time.Hour)
	}
	if err := runs(""); !errors.Is(err, errSurvivors) {
		t.Error(err)
	}
	first := log.String()
	for line := range strings.Lines(first) {
		if strings.Contains(line, " survived: ") != strings.HasSuffix(line, ": survived: "+survivor+"\n") ||
			strings.Contains(line, " unreached: ") != strings.Contains(line, " | Unused | ") {
			t.Error(line)
		}
	}
	if !regexp.MustCompile(`fixture +13 +0 +13 +11 +1 +1 +0\n$`).MatchString(first) {
		t.Error(first)
	}
	binaries, err := filepath.Glob(filepath.Join(r.cache, pkg, "*.test"))
	if err != nil || len(binaries) != 1 {
		t.Fatal(binaries, err)
	}
	if err := os.Remove(binaries[0]); err != nil {
		t.Fatal(err)
	}
	if err := runs(""); !errors.Is(err, errSurvivors) || log.String() != first {
		t.Errorf("again: %v, %s", err, log.String())
	}
	r.also = []string{"internal/testkit/mutants/testdata/further"}
	if err := runs(""); !errors.Is(err, errSurvivors) ||
		!regexp.MustCompile(`fixture +13 +0 +13 +12 +1 +0 +0\n$`).MatchString(log.String()) {
		t.Errorf("with another package: %v, %s", err, log.String())
	}
	r.also = nil
	if err := runs("# why\n" + survivor + " | it stays at the bound\n"); err != nil {
		t.Errorf("accepted: %v, %s", err, log.String())
	}
	if _, err := os.Stat(binaries[0]); err == nil {
		t.Error("tests were compiled although nothing was left to run")
	}
	gone := pkg + "/fixture.go | Charge | > to >= | sum > limit | was here"
	if err := runs(survivor + " | it stays\n" + gone); !errors.Is(err, errSurvivors) ||
		!strings.Contains(log.String(), "not in the code: "+strings.TrimSuffix(gone, " | was here")) {
		t.Errorf("accepted what is gone: %v, %s", err, log.String())
	}
}

// TestKeys: mutants of the same text in a function have keys of their own, so that none is accepted for another.
func TestKeys(t *testing.T) {
	t.Parallel()
	p := &mutated{}
	err := p.collect("f.go", []byte("package f\nfunc f(a, b int) bool { return a < b || (a < b) != (b > 1) }\n"+
		"func g(a, b int) bool { return a < b }\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range p.mutants {
		if m.operator == "< to <=" {
			got = append(got, m.key())
		}
	}
	want := []string{"f.go | f | < to <= | a < b", "f.go | f | < to <= | a < b #2", "f.go | g | < to <= | a < b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
