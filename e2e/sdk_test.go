package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// sdkFolder has the SDKs and what they share.
const sdkFolder = "../sdk"

// An sdkRunner is one SDK with its runner.
type sdkRunner struct {
	name    string
	command []string
	without []string // scenarios in which the runtime itself repeats a request that was cut off
}

// builtSDKs returns the SDKs whose runner is there, ready to run.
func builtSDKs(t *testing.T) (all []sdkRunner) {
	t.Helper()
	if runner := sdkFolder + "/typescript/conformance/run.mjs"; isFile(runner) {
		buildTypeScriptSDK(t)
		all = append(all, sdkRunner{name: "typescript", command: []string{"node", runner}})
		if testkit.IsLong() {
			installNode(t, "runtimes")
			all = append(all,
				sdkRunner{
					name:    "deno",
					command: []string{"runtimes/node_modules/.bin/deno", "run", "-A", runner},
					without: []string{"retry: what has no key"},
				},
				sdkRunner{
					name:    "bun",
					command: []string{"runtimes/node_modules/.bin/bun", "run", runner},
					without: []string{"stream: broken after the first chunk"},
				})
		}
	}
	if runner := sdkFolder + "/python/conformance/run.py"; isFile(runner) {
		// Debian's httpx belongs to this Python.
		all = append(all, sdkRunner{name: "python", command: []string{"/usr/bin/python3", runner}})
		if testkit.IsLong() { // the client with threads is generated from this one
			all = append(all, sdkRunner{name: "python-async", command: []string{"/usr/bin/python3", runner, "--async"}})
		}
	}
	if isFile(sdkFolder + "/go/conformance/main.go") {
		binary := filepath.Join(t.TempDir(), "conformance")
		if out, err := exec.Command("go", "-C", sdkFolder+"/go", "build", "-o", binary, "./conformance").
			CombinedOutput(); err != nil {
			t.Fatalf("go build: %v: %s", err, out)
		}
		all = append(all, sdkRunner{name: "go", command: []string{binary}})
	}
	return all
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// TestSDKConformance runs every scenario of sdk/conformance with every SDK, and prints the table. Each SDK has one
// engine in turn, and both in the long run.
func TestSDKConformance(t *testing.T) {
	t.Parallel()
	scenarios := append(loadScenarios(t), errorScenarios(t)...)
	sdks, engines := builtSDKs(t), []db.Engine{db.SQLite, db.Postgres}
	var mu sync.Mutex
	cells := map[string]string{} // scenario, SDK and engine
	t.Run("all", func(t *testing.T) {
		for i, s := range sdks {
			for j, e := range engines {
				if i%2 != j && !testkit.IsLong() {
					continue
				}
				t.Run(s.name+"/"+string(e), func(t *testing.T) {
					t.Parallel()
					p := servertest.Start(t, servertest.URL(t, e))
					d := newDriver(t, s, p)
					d.start()
					for _, sc := range scenarios {
						cell := "ok"
						if slices.Contains(s.without, sc.Name) {
							cell = "not run"
						} else if err := d.run(sc); errors.Is(err, errUnsupported) {
							cell = "-"
							t.Errorf("%s: %v", sc.Name, err)
						} else if err != nil {
							cell = "FAIL"
							t.Errorf("%s: %v", sc.Name, err)
						}
						mu.Lock()
						cells[sc.Name+"\n"+s.name+"\n"+string(e)] = cell
						mu.Unlock()
					}
					p.Verify()
				})
			}
		}
	})
	t.Log("\n" + sdkTable(scenarios, sdks, engines, cells))
}

// sdkTable is the table scenario × SDK; a cell has the outcome of each engine, or one for all.
func sdkTable(scenarios []scenario, sdks []sdkRunner, engines []db.Engine, cells map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s", "scenario")
	for _, s := range sdks {
		fmt.Fprintf(&b, "%-14s", s.name)
	}
	for _, sc := range scenarios {
		fmt.Fprintf(&b, "\n%-44s", sc.Name)
		for _, s := range sdks {
			var found []string
			for _, e := range engines {
				if cell := cells[sc.Name+"\n"+s.name+"\n"+string(e)]; cell != "" && !slices.Contains(found, cell) {
					found = append(found, cell)
				}
			}
			fmt.Fprintf(&b, "%-14s", strings.Join(found, "/"))
		}
	}
	return b.String()
}

func loadScenarios(t *testing.T) (all []scenario) {
	t.Helper()
	text, err := os.ReadFile(sdkFolder + "/conformance/scenarios.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range all {
		if names[s.Name] || s.What == "" || len(s.Steps) == 0 {
			t.Errorf("scenario %q: a second one, or without what or steps", s.Name)
		}
		names[s.Name] = true
	}
	return all
}

// errorTable is sdk/conformance/errors.json.
type errorTable struct {
	Codes    map[string]errorRule `json:"codes"`
	OAuth    map[string]errorRule `json:"oauth"`
	SDK      map[string]errorRule `json:"sdk"`
	ByStatus map[int]string       `json:"by_status"`
}

type errorRule struct {
	What              string            `json:"what"`
	Status            int               `json:"status"`
	Action            string            `json:"action"`
	Reasons           map[string]string `json:"reasons"`
	NotRetryable      string            `json:"not_retryable"`
	NoRetryAfter      string            `json:"no_retry_after"`
	ClientCredentials string            `json:"client_credentials"`
}

func loadErrorTable(t *testing.T) (table errorTable) {
	t.Helper()
	text, err := os.ReadFile(sdkFolder + "/conformance/errors.json")
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&table)
	}
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// errorScenarios makes a scenario of each code in errors.json: the proxy answers with it, and the SDK's error has the
// action of the table and every member of the envelope.
func errorScenarios(t *testing.T) (all []scenario) {
	t.Helper()
	table := loadErrorTable(t)
	for _, code := range slices.Sorted(maps.Keys(table.Codes)) {
		rule := table.Codes[code]
		steps := failStep("connection.get", "/v1/connection", code, rule.Status, nil, true, rule.Action)
		for _, reason := range slices.Sorted(maps.Keys(rule.Reasons)) {
			steps = append(steps, failStep("connection.get", "/v1/connection", code, rule.Status,
				map[string]any{"reason": reason}, true, rule.Reasons[reason])...)
		}
		if rule.NotRetryable != "" {
			steps = append(steps, failStep("connection.get", "/v1/connection", code, rule.Status,
				map[string]any{"retry": false}, true, rule.NotRetryable)...)
		}
		if rule.NoRetryAfter != "" {
			steps = append(steps, failStep("connection.get", "/v1/connection", code, rule.Status, nil, false,
				rule.NoRetryAfter)...)
		}
		if rule.ClientCredentials != "" {
			steps = append(steps, failStep("apps.get", "/v1/apps", code, rule.Status, nil, true,
				rule.ClientCredentials)...)
		}
		all = append(all, scenario{Name: "error: " + code, Steps: steps})
	}
	var unknown []step
	for _, status := range []int{400, 401, 402, 403, 404, 408, 409, 418, 422, 429, 500, 503, 599} {
		action, ok := table.ByStatus[status]
		if !ok && status >= 500 {
			action = "retry"
		} else if !ok {
			action = "fix_request"
		}
		unknown = append(unknown, failStep("connection.get", "/v1/connection", "code_of_the_future", status, nil, true,
			action)...)
	}
	all = append(all, scenario{Name: "error: unknown codes", Steps: unknown})
	var oauth []step
	for _, code := range slices.Sorted(maps.Keys(table.OAuth)) {
		body, err := json.Marshal(map[string]string{"error": code, "error_description": "Words."})
		if err != nil {
			t.Fatal(err)
		}
		oauth = append(oauth, step{Op: "driver.fault", Args: map[string]any{
			"path": "/oauth/device_authorization", "times": 1, "status": 400, "body": json.RawMessage(body),
		}}, step{Op: "device.start", Client: json.RawMessage(`{"max_retries": 0}`), Fails: map[string]any{
			"code":    code,
			"message": "Words.",
			"status":  400.0,
			"action":  table.OAuth[code].Action,
		}})
	}
	return append(all, scenario{Name: "error: codes of OAuth", Steps: oauth})
}

// failStep lets one request of an operation fail with a code, and wants the SDK's error.
func failStep(op, path, code string, status int, details any, retryAfter bool, action string) []step {
	envelope := map[string]any{
		"code":          code,
		"message":       "Words.",
		"type":          "category",
		"connection_id": "conn_1",
		"doc_url":       "https://a.example/d",
		"increase_url":  "https://a.example/i",
		"review_url":    "https://a.example/r",
	}
	want := map[string]any{
		"code": code, "status": float64(status), "message": "Words.", "type": "category", "connection_id": "conn_1",
		"doc_url": "https://a.example/d", "increase_url": "https://a.example/i", "review_url": "https://a.example/r",
		"request_id": "req_of_a_fault", "action": action, "retry_after": nil,
	}
	if details != nil {
		envelope["details"], want["details"] = details, details
	}
	f := map[string]any{"path": path, "times": 1, "status": status}
	if retryAfter {
		f["headers"], want["retry_after"] = map[string]any{"Retry-After": "7"}, 7.0
	}
	want["should_retry"] = status == http.StatusRequestTimeout || status >= 500 ||
		status == http.StatusTooManyRequests && retryAfter
	f["body"] = map[string]any{"error": envelope}
	args := map[string]any{"token": "${dev.connection.access_token}"}
	if op == "apps.get" {
		args = map[string]any{"app_id": "${dev.app.id}"}
	}
	return []step{
		{Op: "driver.fault", Args: f},
		{Op: op, Client: json.RawMessage(`{"max_retries": 0}`), Args: args, Fails: want},
	}
}

// TestSDKErrorTable holds errors.json against the codes of the API description.
func TestSDKErrorTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	table := loadErrorTable(t)
	check := func(list string, rules map[string]errorRule) {
		t.Helper()
		for code := range strings.SplitSeq(list, ",") {
			if code = strings.TrimSpace(code); rules[code].Action == "" {
				t.Errorf("errors.json lacks %s", code)
			}
		}
	}
	lists := regexp.MustCompile(`code: \{enum: \[([a-z_, ]+)\]`).FindAllStringSubmatch(string(text), -1)
	if len(lists) < 15 {
		t.Fatalf("only %d lists of codes were found: has their form changed?", len(lists))
	}
	for _, list := range lists {
		check(list[1], table.Codes)
	}
	device := regexp.MustCompile(`error: \{type: string, enum: \[([a-z_, ]+)\]\}`).FindStringSubmatch(string(text))
	if device == nil {
		t.Fatal("the codes of OAuthError were not found")
	}
	known := maps.Clone(table.OAuth)
	maps.Copy(known, table.Codes)
	check(device[1], known)
}

// TestSDKVersions holds the SDKs to one version, that of the API description.
func TestSDKVersions(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(sdkFolder + "/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(want))
	for name, pattern := range map[string]string{
		"../api/openapi.yaml":                    `(?m)^  version: (\S+)$`,
		sdkFolder + "/typescript/package.json":   `"version": "([^"]+)"`,
		sdkFolder + "/python/pyproject.toml":     `(?m)^version = "([^"]+)"`,
		sdkFolder + "/python/purser/_version.py": `"([0-9][^"]*)"`,
		sdkFolder + "/go/version.go":             `"([0-9][^"]*)"`,
	} {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not every SDK has each file
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(pattern).FindSubmatch(text); found == nil || string(found[1]) != version {
			t.Errorf("%s has the version %q, want %s", name, found, version)
		}
	}
}

// TestSDKSharedRefresh: five processes with an expired access token, in the long run fifty, exchange one refresh token
// once, and all get the same new access token, in each language.
func TestSDKSharedRefresh(t *testing.T) {
	t.Parallel()
	for _, s := range builtSDKs(t) {
		t.Run(s.name, func(t *testing.T) {
			p := sharedNode(t)
			d := newDriver(t, s, p)
			token, folder := grant(t, p, "5", ""), t.TempDir()
			id, _ := token.Extra("connection_id").(string)
			path := filepath.Join(folder, id+".json")
			tokens := map[string]string{
				"connection_id": id,
				"access_token":  token.AccessToken,
				"refresh_token": token.RefreshToken,
			}
			for round := 1; round <= 2; round++ {
				tokens["expires_at"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
				text, err := json.Marshal(tokens)
				if err == nil {
					err = os.WriteFile(path, text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				got := runManyTokens(t, d, folder, id)
				// On a slow machine a first try is given up and repeated with its key: that is no second refresh.
				if got == tokens["access_token"] || d.proxy.refreshes != round {
					t.Errorf("round %d: %d refreshes, %d replays", round, d.proxy.refreshes, d.proxy.replays)
				}
				if status := send(t, p, "GET", "/v1/connection", "", "Bearer "+got, nil); status != http.StatusOK {
					t.Errorf("round %d: the token gets %d", round, status)
				}
				stored, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if tokens = read[map[string]string](t, string(stored)); tokens["access_token"] != got {
					t.Errorf("round %d: the file has another token", round)
				}
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if drafts, err := filepath.Glob(folder + "/*.new"); err != nil || len(drafts) != 0 {
				t.Errorf("left behind: %v, %v", drafts, err)
			}
		})
	}
}

// TestSDKsShareAFolder: programs in the three languages refresh the tokens of one folder in turn, and none waits for
// what another one has left of its lock.
func TestSDKsShareAFolder(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	token, folder := grant(t, p, "5", ""), t.TempDir()
	id, _ := token.Extra("connection_id").(string)
	path := filepath.Join(folder, id+".json")
	tokens := map[string]any{
		"connection_id": id,
		"access_token":  token.AccessToken,
		"refresh_token": token.RefreshToken,
	}
	sdks := builtSDKs(t)
	refresh := func(s sdkRunner) time.Duration {
		tokens["expires_at"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
		text, err := json.Marshal(tokens)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := newDriver(t, s, p).command("token", folder, id).Output()
		took := time.Since(began)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		was := tokens["access_token"]
		if tokens = read[map[string]any](t, string(stored)); tokens["access_token"] == was ||
			tokens["access_token"] != strings.TrimSpace(string(got)) {
			t.Errorf("%s: printed %q, the file has %v", s.name, got, tokens["access_token"])
		}
		return took
	}
	const unlocked = 15 * time.Second // a lock that is left over ends after 20
	for i := range 2 * len(sdks) {
		s, before := sdks[i%len(sdks)], sdks[(i+len(sdks)-1)%len(sdks)]
		took := refresh(s)
		for range 3 { // a busy machine starts a process slowly, but not always
			if took > unlocked {
				refresh(before) // it leaves again what it may have left
				took = refresh(s)
			}
		}
		if took > unlocked {
			t.Errorf("%s: %s, four times", s.name, took)
		}
	}
}

// runManyTokens runs processes that print an access token, and returns the one that all of them print.
func runManyTokens(t *testing.T, d *driver, folder, connectionID string) string {
	t.Helper()
	printed := make([]string, 5)
	if testkit.IsLong() {
		printed = make([]string, 50)
	}
	var all sync.WaitGroup
	for i := range printed {
		all.Go(func() {
			cmd := d.command("token", folder, connectionID)
			var told strings.Builder
			cmd.Stderr = &told
			out, err := cmd.Output()
			if err != nil || told.Len() > 0 {
				t.Errorf("process %d: %v %s", i, err, told.String())
			}
			printed[i] = strings.TrimSuffix(string(out), "\n")
		})
	}
	all.Wait()
	for _, token := range printed {
		if token != printed[0] || len(token) != 43 {
			t.Fatalf("different tokens: %q, %q", token, printed[0])
		}
	}
	return printed[0]
}
