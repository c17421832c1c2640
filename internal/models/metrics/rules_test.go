package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
)

// deploy has the alerts and the dashboard that operators install.
const deploy = "../../../deploy/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// registered returns the names of all metrics of a node.
func registered(t *testing.T) (names []string) {
	t.Helper()
	m := fresh(t)
	m.WatchNode(nil, nil)
	m.WatchMemory(nil, 0)
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		m.registry.Describe(descriptions)
	}()
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descriptions {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}

// TestShippedFilesNameRealMetrics compares the alerts and the dashboard with what a node reports.
func TestShippedFilesNameRealMetrics(t *testing.T) {
	t.Parallel()
	known := registered(t)
	used := regexp.MustCompile(`purser_[a-z_]+`)
	for _, file := range []string{"prometheus/purser.rules.yml", "grafana/purser.json"} {
		names := used.FindAllString(read(t, deploy+file), -1)
		if len(names) < 10 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !slices.Contains(known, strings.TrimSuffix(name, "_bucket")) {
				t.Errorf("%s names %s, which no node reports", file, name)
			}
		}
	}
}

// TestEveryMetricIsDocumented holds the documents for operators against what a node reports: each metric is in one of
// them, and each that they name is reported. "…_total" after the full name of another stands for the rest of a name.
func TestEveryMetricIsDocumented(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/operate/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	texts := ""
	for _, file := range files {
		texts += read(t, file)
	}
	known := slices.DeleteFunc(registered(t), func(name string) bool { return !strings.HasPrefix(name, "purser_") })
	rests := regexp.MustCompile(`…(_[a-z_]+)`).FindAllStringSubmatch(texts, -1)
	for _, name := range known {
		short := func(rest []string) bool { return strings.HasSuffix(name, rest[1]) }
		if !regexp.MustCompile(name+`\b`).MatchString(texts) && !slices.ContainsFunc(rests, short) {
			t.Errorf("no document of docs/operate names %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`(purser_[a-z_]+)[`{}]").FindAllStringSubmatch(texts, -1) {
		if !slices.Contains(known, m[1]) && !strings.HasPrefix(m[1], "purser_postgres") {
			t.Errorf("docs/operate names %s, which no node reports", m[1])
		}
	}
}

// TestDashboard checks that the dashboard is JSON with panels, each with a query.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, deploy+"grafana/purser.json")), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Targets[0].Expr == "") {
			t.Errorf("%s has no query", p.Title)
		}
	}
	if len(board.Panels) < 15 {
		t.Errorf("%d panels", len(board.Panels))
	}
}

// TestAlerts has Prometheus' own tool fire each alert. Each has a case in which it fires, and a place in the runbook.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, deploy+"prometheus/purser.rules.yml")), &rules); err != nil {
		t.Fatal(err)
	}
	cases := read(t, deploy+"prometheus/purser.rules.test.yml")
	runbook := read(t, "../../../docs/operate/runbook.md")
	for _, r := range rules.Groups[0].Rules {
		fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n +exp_alerts:\n +- exp_labels`)
		if !fires.MatchString(cases) {
			t.Errorf("no case fires %s", r.Alert)
		}
		if !strings.Contains(cases, "alertname: "+r.Alert+", exp_alerts: []}") {
			t.Errorf("no case shows that %s is quiet on a fresh node", r.Alert)
		}
		if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
			t.Errorf("the runbook does not have %s", r.Alert)
		}
	}
	command := exec.Command("promtool", "test", "rules", "purser.rules.test.yml")
	command.Dir = deploy + "prometheus"
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v (make setup installs promtool)\n%s", err, out)
	}
}
