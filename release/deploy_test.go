package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/purserhq/purser/internal/config"
)

// TestDeployedSettingsExist checks that each variable in deploy and in docs/operate/install.md is a setting.
func TestDeployedSettingsExist(t *testing.T) {
	t.Parallel()
	var variables []string
	for _, k := range config.Keys() {
		variables = append(variables, k.Variable())
	}
	files := []string{"../docs/operate/install.md", "../deploy/compose.yaml"}
	templates, err := filepath.Glob("../deploy/helm/purser/templates/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range append(files, templates...) {
		for _, variable := range regexp.MustCompile(`\bPURSER_[A-Z_]+`).FindAllString(readText(t, name), -1) {
			found++
			if !slices.Contains(variables, variable) {
				t.Errorf("%s: %s is not a setting", name, variable)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d variables were found", found)
	}
}

// TestNodesMayFinish checks that systemd, Compose and Kubernetes give a stopping node drain, grace and 15 s before
// they kill it, and that the service, like the image, has files for as many calls as a node takes.
func TestNodesMayFinish(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", nil, []string{
		"PURSER_DATABASE=sqlite:purser.db",
		"PURSER_BASE_URL=https://api.example.com",
		"PURSER_ENVELOPE_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	least := c.Drain + c.Grace + 15*time.Second
	unit, compose := readText(t, "../deploy/systemd/purser.service"), readText(t, "../deploy/compose.yaml")
	if got := seconds(t, unit, `(?m)^TimeoutStopSec=(\d+)$`); got < least {
		t.Errorf("systemd kills a node after %s, and not %s", got, least)
	}
	if got := seconds(t, compose, `stop_grace_period: (\d+)s\n    read_only`); got < least {
		t.Errorf("Compose kills a node after %s, and not %s", got, least)
	}
	var values struct {
		Settings                      map[string]string
		TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	}
	if err := yaml.Unmarshal([]byte(readText(t, "../deploy/helm/purser/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	drain, err := time.ParseDuration(values.Settings["drain"])
	if err != nil {
		t.Fatal(err)
	}
	got := time.Duration(values.TerminationGracePeriodSeconds) * time.Second
	if least += drain - c.Drain; got < least {
		t.Errorf("Kubernetes kills a node after %s, and not %s", got, least)
	}
	for name, files := range map[string]time.Duration{
		"systemd": seconds(t, unit, `(?m)^LimitNOFILE=(\d+)$`),
		"Compose": seconds(t, compose, `nofile: (\d+)`),
	} {
		if int(files/time.Second) < 3*c.MaxCalls {
			t.Errorf("%s allows %d files, and a node takes %d calls", name, files/time.Second, c.MaxCalls)
		}
	}
}

// seconds returns the number that the group of a pattern matches.
func seconds(t *testing.T, text, pattern string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("nothing matches %s", pattern)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Second
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
