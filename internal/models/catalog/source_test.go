package catalog

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/money"
)

const override = `date: 2026-12-01
models:
  - id: gpt-6-luna
    provider: openai
    family: gpt-6
    context_tokens: 1000
    max_output_tokens: 100
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: fixed
    reasoning: true
    source: our contract, 2026-12-01
    prices:
      - {input: "0.08", cached: "0.01", output: "0.40"}
  - id: gpt-4o-mini
    off: true
  - id: house-model
    provider: openai
    family: gpt-mini
    context_tokens: 1000
    max_output_tokens: 100
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: free
    reasoning: false
    replacement: gpt-6-luna
    source: our contract, 2026-12-01
    prices:
      - {input: "1.00", cached: "1.00", output: "2.00"}
...
`

// The operator's models replace, join and remove those of the built-in price list, and
// each price says which file it stands in.
func TestOverride(t *testing.T) {
	t.Parallel()
	base, now := load(t), at(t, "2026-12-02T00:00:00Z")
	c, err := base.With([]byte(override))
	if err != nil {
		t.Fatal(err)
	}
	file := version("2026-12-01", []byte(override))
	if want := base.Version() + "+" + file; c.Version() != want {
		t.Errorf("version %s, want %s", c.Version(), want)
	}
	m, r, ok := c.Find("gpt-6-luna", now)
	if !ok || m.Vision || m.ContextTokens != 1000 || r.At(1).Input != 8*money.Dollar/100 || r.PriceList != file {
		t.Errorf("replaced: %v %+v %+v", ok, m, r)
	}
	if m, r, ok = c.Find("house-model", now); !ok || m.Replacement != "gpt-6-luna" || r.PriceList != file {
		t.Errorf("added: %v %+v %+v", ok, m, r)
	}
	if _, _, ok = c.Find("gpt-4o-mini", now); ok {
		t.Error("gpt-4o-mini is off, and found")
	}
	_, was, _ := base.Find("gpt-6-sol", now)
	if _, r, _ = c.Find("gpt-6-sol", now); r.Snapshot() != was.Snapshot() {
		t.Errorf("a price that nobody changed is now %s", r.Snapshot())
	}
	var ids []string
	for _, l := range base.Offered(now) {
		if l.ID != "gpt-4o-mini" {
			ids = append(ids, l.ID)
		}
	}
	var got []string
	for _, l := range c.Offered(now) {
		got = append(got, l.ID)
	}
	if d := cmp.Diff(append(ids, "house-model"), got); d != "" {
		t.Errorf("listed:\n%s", d)
	}
}

// A model that was switched off is nobody's replacement.
func TestOffIsNoReplacement(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-12-02T00:00:00Z")
	c, err := load(t).With([]byte("date: 2026-12-01\nmodels: [{id: gpt-6-luna, off: true}]"))
	if err != nil {
		t.Fatal(err)
	}
	if m, _, ok := c.Find("gpt-4.1-mini", now); !ok || m.Replacement != "" {
		t.Errorf("%v, replacement %q", ok, m.Replacement)
	}
	if m, _, _ := load(t).Find("gpt-4.1-mini", now); m.Replacement != "gpt-6-luna" {
		t.Errorf("the built-in price list has changed: replacement %q", m.Replacement)
	}
}

// shelf is a Source on a file that a test rewrites.
type shelf struct {
	*Source
	t    *testing.T
	path string
	log  bytes.Buffer
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{t: t, path: filepath.Join(t.TempDir(), "prices.yaml")}
	s.write(override)
	source, err := Open(s.path, slog.New(slog.NewTextHandler(&s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.Source = source
	return s
}

// write replaces the file as editors do, so that it is another one each time.
func (s *shelf) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		s.t.Fatal(err)
	}
}

// want compares the price of the house's model, the failures and the lines of error.
func (s *shelf) want(what string, input money.MC, failures int64, broken bool) {
	s.t.Helper()
	_, r, _ := s.Current().Find("house-model", at(s.t, "2026-12-02T00:00:00Z"))
	if r.At(1).Input != input || s.Failures() != failures || s.Broken() != broken ||
		strings.Count(s.log.String(), "level=ERROR") != int(failures) {
		s.t.Errorf("%s: input at %s, %d failures, broken %v; want %s, %d, %v; log:\n%s", what, r.At(1).Input.Display(),
			s.Failures(), s.Broken(), input.Display(), failures, broken, s.log.String())
	}
}

const dollar = money.Dollar

// The file is read again when it has changed, and a wrong one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	planned := s.Current()
	dearer := strings.Replace(override, `input: "1.00"`, `input: "3.00"`, 1)
	s.Poll()
	s.want("nothing changed", dollar, 0, false)
	s.write(dearer)
	s.Poll()
	s.want("it may still be being written", dollar, 0, false)
	s.Poll()
	s.want("it has stood for a poll", 3*dollar, 0, false)
	if _, r, _ := planned.Find("house-model", at(t, "2026-12-02T00:00:00Z")); r.At(1).Input != dollar {
		t.Error("a call that was planned before has other prices now")
	}
	s.write("models: [")
	for range 4 {
		s.Poll()
	}
	s.want("broken, told once", 3*dollar, 1, true)
	s.write("models: [[")
	for range 4 {
		s.Poll()
	}
	s.want("broken otherwise, told once more", 3*dollar, 2, true)
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		s.Poll()
	}
	s.want("gone", 3*dollar, 3, true)
	s.write(dearer)
	s.Poll()
	s.Poll()
	s.want("back", 3*dollar, 3, false)
	s.write(strings.Replace(override, `input: "1.00"`, `input: "5.00"`, 1))
	s.Reload()
	s.want("asked for", 5*dollar, 3, false)
	s.write("")
	s.Reload()
	s.want("an empty file", 5*dollar, 4, true)
}

// A write that keeps time and size is seen by the file's identity, one in place
// by its time.
func TestReloadSees(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	info, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.write(strings.Replace(override, `input: "1.00"`, `input: "7.00"`, 1))
	if err := os.Chtimes(s.path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	s.Poll()
	s.Poll()
	s.want("another file of the same time", 7*dollar, 0, false)
	if err := os.WriteFile(s.path, []byte(strings.Replace(override, `input: "1.00"`, `input: "9.00"`, 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(s.path, info.ModTime(), info.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	s.Poll()
	s.Poll()
	s.want("written in place", 9*dollar, 0, false)
}

// At the start an invalid file is an error.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "none.yaml"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no file is fine")
	}
	s := newShelf(t)
	s.write(strings.Replace(override, "family: gpt-mini", "family: other", 1))
	if _, err := Open(s.path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), s.path) ||
		!strings.Contains(err.Error(), "line 20: models[2].family") {
		t.Errorf("error %v", err)
	}
}

// TestCutFile cuts a right file at each of its bytes: no part passes for the whole.
func TestCutFile(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	want := s.Current()
	whole := strings.LastIndex(override, "...") + len("...")
	for n := range whole {
		s.write(override[:n])
		if s.Reload(); s.Current() != want {
			t.Fatalf("the first %d of %d bytes are in force: %q", n, len(override), override[max(n-40, 0):n])
		}
	}
	for _, text := range []string{
		override + "---\n" + override,
		strings.Replace(override, "  - id: gpt-4o-mini", "...\n  - id: gpt-4o-mini", 1),
		strings.Replace(override, "  - id: gpt-4o-mini", "---\nmodels:\n  - id: gpt-4o-mini", 1),
		override + "# prices end here\n",
	} {
		s.write(text)
		if s.Reload(); !s.Broken() {
			t.Errorf("in force: %q", text)
		}
	}
	for _, text := range []string{override[:whole], override + "\n\n", strings.ReplaceAll(override, "\n", "\r\n")} {
		s.write(text)
		if s.Reload(); s.Broken() {
			t.Errorf("refused: %q: %s", text[whole-3:], s.log.String())
		}
	}
}

// TestMarkOfTheBuiltinPrices reads the built-in list as an operator's file, of which it is the example.
func TestMarkOfTheBuiltinPrices(t *testing.T) {
	t.Parallel()
	if err := CheckEnd(builtin); err != nil {
		t.Error(err)
	}
}

// Calls read while the file is read again; the race detector looks on.
func TestReloadWhileUsed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	now, stop, done := at(t, "2026-12-02T00:00:00Z"), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c := s.Current()
			if _, r, ok := c.Find("house-model", now); !ok || !strings.HasSuffix(c.Version(), r.PriceList) {
				t.Errorf("%v: %s of %s", ok, r.PriceList, c.Version())
				return
			}
		}
	}()
	for i := range 20 {
		s.write(override + strings.Repeat("\n", i))
		s.Reload()
	}
	close(stop)
	<-done
}

// TestLastGoodPrices starts with a wrong file, and with none: the last good text is in force, and the file is read as
// soon as it is right.
func TestLastGoodPrices(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-12-02T00:00:00Z")
	files := map[string]string{"wrong": "models: [", "missing": "", "half": override[:len(override)/2]}
	for name, broken := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "prices.yaml")
			if broken != "" {
				if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Open(path, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrFile) {
				t.Errorf("without a good text: %v", err)
			}
			if _, err := OpenOr(path, []byte("models: ["), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrFile) {
				t.Errorf("with another wrong text: %v", err)
			}
			s, err := OpenOr(path, []byte(override), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, rates, ok := s.Current().Find("house-model", now); !ok || rates.At(1).Input != money.Dollar {
				t.Errorf("house-model costs %+v, %t", rates, ok)
			}
			if !s.Broken() || s.Failures() != 1 || string(s.Text()) != override {
				t.Errorf("broken %t, %d failures, %d bytes", s.Broken(), s.Failures(), len(s.Text()))
			}
			right := strings.Replace(override, `"1.00"`, `"3.00"`, 1)
			if err := os.WriteFile(path, []byte(right), 0o600); err != nil {
				t.Fatal(err)
			}
			s.Reload()
			if _, rates, _ := s.Current().Find("house-model", now); rates.At(1).Input != 3*money.Dollar || s.Broken() {
				t.Errorf("after it was mended: %+v, broken %t", rates, s.Broken())
			}
		})
	}
}
