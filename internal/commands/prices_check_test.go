package commands

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
	off := write("off.yaml", "date: 2026-11-01\nmodels:\n  - {id: gpt-6-luna, off: true}\n...\n")
	wrong := write("wrong.yaml", strings.Replace(ownModel, `input: "1.00"`, `input: "one"`, 1))
	half := write("half.yaml", ownModel[:strings.LastIndex(ownModel, "...")])
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
		{args: half, code: 1, out: []string{"half.yaml: line 14: the last line must be ..."}},
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

// TestPricesAgainstAList compares prices with lists in both forms.
func TestPricesAgainstAList(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	book := write("book.yaml", ownModel) // input 1.00, cached 0.10, output 2.00
	for name, c := range map[string]struct {
		list string
		args string
		code int
		want string
	}{
		"the same": {
			list: "model,input,cached,output\nour-luna,1.00,0.1,$2.00\n",
			want: "1 models compared, 0 prices differ",
		},
		"as JSON": {list: `{"x/our-luna":{"input_cost_per_token":1e-06,"output_cost_per_token":2E-6,
			"cache_read_input_token_cost":1.0e-7,"mode":"chat"},"sample_spec":{"mode":"?"}}`, want: "0 prices differ"},
		"another output": {
			list: "Model, Output\nour-luna, 2.50\n",
			code: 1,
			want: "output  $2.00 here  $2.50 in the list",
		},
		"within half a per cent": {list: "model,output\nour-luna,2.01\n", want: "0 prices differ by more than 0.005"},
		"beyond": {
			list: "model,output\nour-luna,2.0101\n",
			args: "--tolerance 0.004",
			code: 1,
			want: "$2.0101",
		},
		"twice in JSON": {list: `{"our-luna":{"input_cost_per_token":0.000002}}`, code: 1, want: "input  $1.00 here"},
		"none of ours":  {list: "model,output\nanother,2.50\n", code: 1, want: "no model with a price is in the list"},
		"no head":       {list: "our-luna,2.50\n", code: 2, want: "no column \"model\""},
		"not a price":   {list: "model,output\nour-luna,cheap\n", code: 2, want: "line 2: output"},
		"not a list":    {list: `{"our-luna": 7}`, code: 2, want: "not a JSON object of models"},
		"below zero":    {list: `{"our-luna":{"input_cost_per_token":-1}}`, code: 2, want: "no cost of a token"},
		"no share":      {list: "model,output\nour-luna,2\n", args: "--tolerance much", code: 2, want: "--tolerance"},
	} {
		list := write("list", c.list)
		args := append([]string{"prices", "check", "--before", book, "--list", list}, strings.Fields(c.args)...)
		code, out, errors := command(nil, args...)
		if code != c.code || !strings.Contains(out+errors, c.want) {
			t.Errorf("%s: %d, want %d and %q\n%s%s", name, code, c.code, c.want, out, errors)
		}
	}
	if code, _, errors := command(nil, "prices", "check"); code != 2 || !strings.Contains(errors, "--list") {
		t.Errorf("without anything: %d, %s", code, errors)
	}
	list := write("list", "model,input\nour-luna,1\n")
	if code, out, _ := command(nil, "prices", "check", book, "--list", list); code != 0 ||
		!strings.Contains(out, "is right") || !strings.Contains(out, "1 models compared") {
		t.Errorf("a file and a list: %d, %s", code, out)
	}
}
