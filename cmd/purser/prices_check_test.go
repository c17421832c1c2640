package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPricesCheck checks right and wrong files, and reads what differs.
func TestPricesCheck(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before := write("before.yaml", ownModel)
	dearer := write("dearer.yaml", strings.Replace(ownModel, `output: "2.00"`, `output: "2.50"`, 1))
	tiers := func(above string) string {
		return strings.Replace(ownModel, `output: "2.00"}`, `output: "2.00"}, {above: `+above+
			`, input: "3.00", cached: "0.30", output: "4.00"}`, 1)
	}
	tiered, moved := write("tiered.yaml", tiers("500")), write("moved.yaml", tiers("900"))
	later := write("later.yaml", strings.Replace(ownModel, `{input: "1.00", cached: "0.10", output: "2.00"}`,
		`{to: 2900-01-01, input: "1.00", cached: "0.10", output: "2.00"}, `+
			`{from: 2900-01-01, input: "9.00", cached: "0.10", output: "2.00"}`, 1))
	speech := func(audio string) string {
		return strings.NewReplacer("reasoning: false", "reasoning: false\n    realtime: true", `output: "2.00"`,
			`output: "2.00", audio_input: "`+audio+`", audio_cached: "0.40", audio_output: "64.00", `+
				`image_input: "5.00", image_cached: "0.50"`).Replace(ownModel)
	}
	voice, louder := write("voice.yaml", speech("32.00")), write("louder.yaml", speech("64.00"))
	off := write("off.yaml", "date: 2026-11-01\nmodels:\n  - {id: gpt-6-luna, off: true}\n")
	wrong := write("wrong.yaml", strings.Replace(ownModel, `input: "1.00"`, `input: "one"`, 1))
	for _, c := range []struct {
		args string
		code int
		out  []string // on either stream
	}{
		{args: before, out: []string{"is right", "our-luna  comes", "input $1.00, output $2.00"}},
		{args: before + " --before " + before, out: []string{"No price changes."}},
		{args: dearer + " --before " + before, out: []string{"our-luna  output  $2.00 -> $2.50  +25.0 %"}},
		{args: moved + " --before " + tiered,
			out: []string{"$3.00/$4.00 above 500 -> $1.00/$2.00, $3.00/$4.00 above 900"}},
		{args: later + " --before " + before, out: []string{"input        $1.00 -> $9.00  +800.0 %  from 2900-01-01"}},
		{args: before + " --before " + later, out: []string{"input        $9.00 -> $1.00  -88.9 %  from 2900-01-01"}},
		{args: louder + " --before " + voice, out: []string{"audio_input  $32.00 -> $64.00  +100.0 %"}},
		{args: off + " --before " + before, out: []string{"our-luna    goes", "gpt-6-luna  goes"}},
		{args: wrong, code: 1, out: []string{"wrong.yaml", "line", "input"}},
		{args: before + " --before " + wrong, code: 2, out: []string{"prices", "wrong.yaml"}},
		{args: filepath.Join(folder, "absent.yaml"), code: 2, out: []string{"absent.yaml"}},
	} {
		code, out, errors := command(nil, append([]string{"prices", "check"}, strings.Fields(c.args)...)...)
		for _, want := range c.out {
			if code != c.code || !strings.Contains(out+errors, want) {
				t.Errorf("%s: %d, want %q\n%s%s", c.args, code, want, out, errors)
			}
		}
	}
}
