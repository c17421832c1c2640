package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit"
)

const (
	typeScriptFolder = sdkFolder + "/typescript"
	servedComponents = "../internal/base/ui/assets/components.js"
)

// buildTypeScript builds sdk/typescript/dist once a process, and only if its sources have changed.
var buildTypeScript = sync.OnceValue(func() error {
	if err := installPackages(typeScriptFolder); err != nil {
		return err
	}
	sum, err := hashFiles(typeScriptFolder+"/src", typeScriptFolder+"/generate.mjs",
		typeScriptFolder+"/package-lock.json", typeScriptFolder+"/tsconfig.json", sdkFolder+"/VERSION",
		sdkFolder+"/conformance/errors.json", "../api/openapi.yaml", servedComponents)
	if err != nil {
		return err
	}
	stamp := typeScriptFolder + "/node_modules/.built" // the sources that were built
	if done, err := os.ReadFile(stamp); err == nil && string(done) == sum &&
		isFile(typeScriptFolder+"/dist/index.js") {
		return nil
	}
	committed, err := readGenerated()
	if err != nil {
		return err
	}
	npm := exec.Command("npm", "run", "build", "--silent")
	npm.Dir = typeScriptFolder
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm run build: %w: %s", err, out)
	}
	if built, err := readGenerated(); err != nil {
		return err
	} else if built != committed {
		return fmt.Errorf("%s/src/generated was not up to date: commit what was written now", typeScriptFolder)
	}
	return os.WriteFile(stamp, []byte(sum), 0o600)
})

// readGenerated reads the generated files that are committed, because apps are bundled from the sources.
func readGenerated() (text string, err error) {
	for _, name := range []string{"api.ts", "errors.ts", "version.ts"} {
		part, err := os.ReadFile(filepath.Join(typeScriptFolder, "src", "generated", name))
		if err != nil {
			return "", err
		}
		text += string(part)
	}
	return text, nil
}

// hashFiles hashes files and folders.
func hashFiles(names ...string) (string, error) {
	hash := sha256.New()
	for _, name := range names {
		if err := filepath.WalkDir(name, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
			return err
		}); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// buildTypeScriptSDK makes sdk/typescript/dist, for tests that import it.
func buildTypeScriptSDK(t *testing.T) {
	t.Helper()
	if err := buildTypeScript(); err != nil {
		t.Fatal(err)
	}
}

// bundleTypeScriptSDK returns the whole public surface as one minified script for browsers.
func bundleTypeScriptSDK(t *testing.T) []byte {
	t.Helper()
	buildTypeScriptSDK(t)
	bundle := exec.Command("node_modules/.bin/esbuild", "dist/index.js", "--bundle", "--minify", "--format=esm",
		"--platform=browser", "--target=es2022")
	bundle.Dir = typeScriptFolder
	var told strings.Builder
	bundle.Stderr = &told
	out, err := bundle.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, told.String())
	}
	return out
}

// runNodeProgram runs a program with its input as JSON, and returns the number that it prints.
func runNodeProgram(t *testing.T, folder string, input map[string]any, args ...string) int {
	t.Helper()
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(soon(t), "node", append(args, string(text))...)
	var told strings.Builder
	node.Dir, node.Stderr = folder, &told
	out, err := node.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, told.String())
	}
	return read[int](t, string(out))
}

// maxBundle is the largest size of the whole SDK for TypeScript, minified and compressed.
const maxBundle = 12 << 10

// TestTypeScriptSDK measures the SDK, checks the types that programs see, runs the hooks of other SDKs with tokens that
// have ended, and has a voice session on a server.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	buildTypeScriptSDK(t)
	t.Run("bundle", func(t *testing.T) {
		t.Parallel()
		out := bundleTypeScriptSDK(t)
		var compressed bytes.Buffer
		w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
		if err == nil {
			_, err = w.Write(out)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the bundle has %d bytes, compressed %d", len(out), compressed.Len())
		if compressed.Len() > maxBundle {
			t.Errorf("the compressed bundle has %d bytes, more than %d", compressed.Len(), maxBundle)
		}
	})
	t.Run("components", func(t *testing.T) {
		t.Parallel()
		served, err := os.ReadFile(servedComponents)
		packed, err2 := os.ReadFile(typeScriptFolder + "/components/purser.js")
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(packed, served) {
			t.Errorf("the package has other web components than Purser serves (%v)", err)
		}
	})
	t.Run("types", func(t *testing.T) {
		if !testkit.IsLong() {
			t.Skip("only in make test-long: the compiler has seen the types of the SDK when it was built")
		}
		t.Parallel()
		if out, err := exec.Command(typeScriptFolder+"/node_modules/.bin/tsc", "-p",
			"sdk").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		if cancelled := runNodeProgram(t, "sdk", nil, "cancel.mjs"); cancelled == 0 {
			t.Error("nothing was cancelled")
		}
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		if tried := runNodeProgram(t, "sdk", nil, "lost.mjs"); tried == 0 {
			t.Error("nothing was tried")
		}
	})
	t.Run("hooks", func(t *testing.T) {
		t.Parallel()
		installNode(t, "clients")
		p := sharedNode(t)
		token := grant(t, p, "5", "")
		id, _ := token.Extra("connection_id").(string)
		billed := runNodeProgram(t, "clients", map[string]any{
			"baseURL":      p.BaseURL,
			"clientID":     p.App.ClientID,
			"clientSecret": p.App.ClientSecret,
			"tokens": map[string]string{
				"connection_id": id,
				"access_token":  token.AccessToken,
				"refresh_token": token.RefreshToken,
				"expires_at":    "2020-01-01T00:00:00Z",
			},
		}, "hooks.mjs")
		if rows := spends(t, p, id); len(rows) != billed || billed == 0 {
			t.Errorf("the program counts %d calls, the ledger %d", billed, len(rows))
		}
	})
	t.Run("voice", func(t *testing.T) {
		t.Parallel()
		p := sharedConnection(t)
		receipts := runNodeProgram(t, "sdk", map[string]any{
			"baseURL": p.BaseURL, "accessToken": p.Connection.AccessToken,
		}, "--experimental-websocket", "--no-warnings", "voice.mjs")
		if rows := spends(t, p, p.Connection.ID); receipts == 0 || len(rows) < receipts {
			t.Errorf("%d receipts, and %d rows", receipts, len(rows))
		}
	})
}

// talkBySDK joins a session by the SDK, and notes what it hears.
const talkBySDK = `window.talk = async client => {
	const {joinVoice} = await import('/sdk.js'), events = []
	let ring = () => {}, over
	const closed = new Promise(resolve => { over = resolve })
	window.call = await joinVoice(client, {onEvent: e => { events.push(e.type); ring() }, onEnd: () => over('over')})
	window.hungUp = () => closed
	window.until = async type => {
		for (const late = Date.now() + 60000; Date.now() < late;) {
			while (events.length) if (events.shift() === type) return type
			await new Promise(resolve => { ring = resolve; setTimeout(resolve, 1000) })
		}
		throw new Error('no ' + type)
	}
	return 'joined'
}; null`

// TestTypeScriptVoice speaks by joinVoice in a browser, with the mock voice and by WebRTC with the emulated model.
func TestTypeScriptVoice(t *testing.T) {
	t.Parallel()
	bundle := bundleTypeScriptSDK(t)
	for mode, done := range map[string]string{"mock": "response.done", "emulator": "output_audio_buffer.stopped"} {
		if mode == "mock" && !testkit.IsLong() {
			continue // TestVoicePage talks with the mock voice
		}
		t.Run(mode, func(t *testing.T) {
			p := sharedNode(t, "--providers="+mode)
			app := http.NewServeMux()
			app.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write([]byte("<!doctype html><title>An app</title>")) // the tab says if it did not come
			})
			app.HandleFunc("GET /sdk.js", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = w.Write(bundle)
			})
			page := httptest.NewServer(app)
			t.Cleanup(page.Close)
			b := newTab(t, page.URL, p.BaseURL)
			b.open(page.URL)
			inPage[bool](b, microphone)
			inPage[any](b, talkBySDK)
			token := grant(t, p, "5", "").AccessToken
			var made struct {
				ID     string
				Client json.RawMessage
			}
			if status := send(t, p, "POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini"}`,
				"Bearer "+token, &made); status != http.StatusCreated {
				t.Fatalf("a session: %d", status)
			}
			inPage[string](b, "talk("+string(made.Client)+")")
			inPage[string](b, "until('session.created')")
			inPage[any](b, "speak(true)")
			inPage[any](b, "new Promise(resolve => setTimeout(resolve, 600)).then(() => speak(false))")
			inPage[string](b, "until('"+done+"')")
			inPage[any](b, "call.say('Hello'), null")
			inPage[string](b, "until('"+done+"')")
			inPage[any](b, "call.end(), null")
			if came := inPage[string](b, "hungUp()"); came != "over" {
				t.Errorf("the end: %s", came)
			}
			if status := send(t, p, "POST", "/v1/realtime/sessions/"+made.ID+"/end", `{"when":"immediate"}`,
				"Bearer "+token, nil); status != http.StatusAccepted {
				t.Errorf("ending it: %d", status)
			}
			var s struct {
				Status   string
				Receipts []any
			}
			for ctx := soon(t); s.Status != "ended" && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
				send(t, p, "GET", "/v1/realtime/sessions/"+made.ID, "", "Bearer "+token, &s)
			}
			if s.Status != "ended" || len(s.Receipts) != 2 {
				t.Errorf("the session is %s with %d receipts", s.Status, len(s.Receipts))
			}
		})
	}
}
