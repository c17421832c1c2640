package operatorpages

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

// Each line of a text is a model with its input price in dollars, and the members from, to, above and retires.
func parseLines(t *testing.T, text string) (list []priceLine) {
	t.Helper()
	for row := range strings.Lines(text) {
		words := strings.Fields(row)
		if len(words) == 0 {
			continue
		}
		mc, err := money.Parse(words[1])
		if err != nil {
			t.Fatal(err)
		}
		l := priceLine{Model: words[0], Provider: "openai", PricesMC: map[string]money.MC{"input": mc}}
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "from":
				l.From = value
			case "to":
				l.To = value
			case "retires":
				l.Retires = value
			case "above":
				if _, err := fmt.Sscan(value, &l.AboveInput); err != nil {
					t.Fatal(err)
				}
			}
		}
		list = append(list, l)
	}
	return list
}

func TestComparePrices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, want string }{
		"same":    {"m 2.00", "m 2.00", ""},
		"raised":  {"m 2.00", "m 2.50", "m 0  $2.00 $2.50 +25%"},
		"lowered": {"m 3.00", "m 2.00", "m 0  $3.00 $2.00 −33.3%"},
		"little":  {"m 90.001", "m 90.00", "m 0  $90.001 $90.00 −<0.1%"},
		"added":   {"a 1.00", "a 1.00\nm 2.00", "m 0  $0.00 $2.00 "},
		"removed": {"a 1.00\nm 2.00", "a 1.00", "m 0  $2.00 $0.00 "},
		"from a day on": {"m 2.00", "m 2.00 to=2026-12-01\nm 3.00 from=2026-12-01",
			"m 0 2026-12-01 $2.00 $3.00 +50%"},
		"a past period": {"m 1.00 to=2026-11-01\nm 2.00 from=2026-11-01", "m 2.00", ""},
		"put off": {"m 2.00 to=2026-12-01\nm 3.00 from=2026-12-01",
			"m 2.00 to=2027-01-01\nm 3.00 from=2027-01-01", "m 0 2026-12-01 $3.00 $2.00 −33.3%"},
		"retires":         {"m 2.00", "m 2.00 retires=2026-12-24", "m 0 2026-12-24 $2.00 $0.00 "},
		"a step is added": {"m 2.00", "m 2.00\nm 4.00 above=1000", "m 1000  $2.00 $4.00 +100%"},
	} {
		var got []string
		for _, x := range comparePrices(parseLines(t, c.before), parseLines(t, c.after), "2026-11-23") {
			got = append(got, fmt.Sprintf("%s %d %s %s %s %s", x.model, x.aboveInput, x.day, x.beforeMC.Display(),
				x.afterMC.Display(), formatChange(x.beforeMC, x.afterMC)))
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// The built-in list has a line for each step, and differs from itself in nothing.
func TestPriceLines(t *testing.T) {
	t.Parallel()
	c, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	lines := priceLines(c)
	if list := comparePrices(lines, lines, "2020-01-01"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	for _, l := range lines {
		_, output := l.PricesMC["output"]
		_, audio := l.PricesMC["audio_input"]
		if l.PricesMC["input"] <= 0 || output == strings.Contains(l.Model, "embedding") ||
			audio != (strings.Contains(l.Model, "realtime") || strings.Contains(l.Model, "transcribe")) {
			t.Errorf("%+v", l)
		}
	}
}
