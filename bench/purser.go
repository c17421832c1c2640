package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startPurser builds Purser, gives it a database, and starts it in front of the
// upstream.
func (b *bench) startPurser(ctx context.Context, title string, d *database, upstream string) (*target, error) {
	if err := b.buildPurser(ctx); err != nil {
		return nil, err
	}
	return b.startGateway(ctx, b.purser, title, d, upstream)
}

// startGateway starts a binary of Purser on a database, in front of the upstream.
func (b *bench) startGateway(ctx context.Context, binary, title string, d *database, upstream string) (*target, error) {
	t := &target{billed: true, database: d}
	for _, g := range d.grants {
		t.tokens = append(t.tokens, g.Token)
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	name := "purser " + title
	file := strings.ReplaceAll(name, " ", "-")
	config, err := b.writeConfig(file, listen, d.url, upstream)
	if err != nil {
		return nil, err
	}
	if t.child, err = newChild(b.dir, file, binary, "serve", "--config", config); err != nil {
		return nil, err
	}
	t.name, t.url, t.stop = name, "http://"+listen, t.interrupt
	if b.profiles != "" {
		if t.profile, err = freeAddress(); err != nil {
			return nil, err
		}
		t.cmd.Env = append(os.Environ(), profileEnv+"="+t.profile)
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, t.closeProcess)
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := waitForHTTP(ready, t.url+"/v1/models"); err != nil {
		return nil, fmt.Errorf("purser did not start, see %s: %w", t.log, err)
	}
	return t, nil
}

// writeConfig writes the file that purser serve is started with. JSON is YAML too.
func (b *bench) writeConfig(name, listen, database, upstream string) (string, error) {
	origin := "http://" + listen
	settings := map[string]any{
		"database":     database,
		"listen":       listen,
		"envelope_key": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"free_credit":  map[string]any{"pool": "0"},
		"risk":         map[string]any{"floor": "1"}, // a load for minutes is no unusual spend
		"base_url":     origin, "auth_url": origin, "dashboard_url": origin,
		"providers": map[string]any{
			"openai":    map[string]any{"base_url": upstream + "/v1", "key": "sk-bench-1"},
			"anthropic": map[string]any{"base_url": upstream, "key": "sk-bench-1"},
			"google":    map[string]any{"base_url": upstream, "key": "sk-bench-1"},
		},
	}
	if b.bounds != (callBounds{}) {
		settings["max_calls"], settings["max_provider_calls"] = b.bounds.calls, b.bounds.providerCalls
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, name+".yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// buildPurser compiles Purser once, as make build does. For profiles it adds a file that
// serves them, because the product has no such endpoint.
func (b *bench) buildPurser(ctx context.Context) error {
	if b.purser != "" {
		return nil
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}",
		"github.com/purserhq/purser/cmd/purser").Output()
	if err != nil {
		return err
	}
	folder := strings.TrimSpace(string(source))
	args := []string{"build", "-trimpath", "-pgo", filepath.Join(folder, "hot.pgo"), "-o",
		filepath.Join(b.dir, "purser")}
	if b.profiles != "" {
		overlay, err := b.writeOverlay(folder)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/purserhq/purser/cmd/purser")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	b.purser = filepath.Join(b.dir, "purser")
	return nil
}

const profileEnv = "BENCH_PROFILE_ADDRESS"

const profileSource = `package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

func init() { go http.ListenAndServe(os.Getenv("` + profileEnv + `"), nil) }
`

// writeOverlay writes the additional file and the overlay that adds it to cmd/purser.
func (b *bench) writeOverlay(folder string) (string, error) {
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return "", err
	}
	source, list := filepath.Join(b.dir, "profile.go"), filepath.Join(b.dir, "overlay.json")
	text, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(folder, "bench_profile.go"): source},
	})
	if err != nil {
		return "", err
	}
	return list, errors.Join(os.WriteFile(source, []byte(profileSource), 0o644), os.WriteFile(list, text, 0o644))
}

// recordProfile takes a CPU profile of the measured time if profiles are enabled. The
// returned function waits for it.
func (t *target) recordProfile(ctx context.Context, folder, file string, warmup, duration time.Duration) func() error {
	if t.profile == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(warmup)
		done <- downloadFile(ctx,
			fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", t.profile, max(1, int(duration.Seconds()))),
			filepath.Join(folder, file))
	}()
	return func() error { return <-done }
}

func downloadFile(ctx context.Context, from, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	return errors.Join(err, out.Close())
}

// freeAddress returns an address with an unused port. Purser cannot choose the port itself,
// because its configuration has its URL.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
