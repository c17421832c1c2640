package commands

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A loginWorld is a running node, a login at its public sample client, and a proxy before its token endpoint.
type loginWorld struct {
	t      *testing.T
	node   *servertest.Process
	binary string
	config string // XDG_CONFIG_HOME
	proxy  *tokenProxy
}

// tokenProxy counts the refreshes that the node accepts, and can withhold an answer.
type tokenProxy struct {
	*httptest.Server
	mu                 sync.Mutex
	refreshes, replays int
	withhold           chan struct{} // if set, the next answer waits until it is closed
	withheld           chan struct{} // closed when an answer waits
}

func newTokenProxy(t *testing.T, target string) *tokenProxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &tokenProxy{}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.ModifyResponse = func(r *http.Response) error {
		p.mu.Lock()
		wait, withheld := p.withhold, p.withheld
		p.withhold = nil
		if r.StatusCode == http.StatusOK && r.Header.Get("Idempotent-Replayed") == "true" {
			p.replays++
		} else if r.StatusCode == http.StatusOK {
			p.refreshes++
		}
		p.mu.Unlock()
		if wait != nil {
			close(withheld)
			<-wait
		}
		return nil
	}
	p.Server = httptest.NewServer(forward)
	t.Cleanup(p.Close)
	return p
}

// withholdNext withholds the next answer until release is closed. The channel that it returns is
// closed when that answer waits.
func (p *tokenProxy) withholdNext(release chan struct{}) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withhold, p.withheld = release, make(chan struct{})
	return p.withheld
}

// counts returns the accepted refreshes and the replays so far.
func (p *tokenProxy) counts() [2]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return [2]int{p.refreshes, p.replays}
}

func newLoginWorld(t *testing.T) *loginWorld {
	t.Helper()
	w := &loginWorld{t: t, node: servertest.Start(t, ""), binary: servertest.Binary(t), config: t.TempDir()}
	w.proxy = newTokenProxy(t, w.node.BaseURL)
	return w
}

func (w *loginWorld) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), w.binary, args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+w.config)
	return cmd
}

// run runs a command and returns its exit code and outputs.
func (w *loginWorld) run(args ...string) (code int, out, stderr string) {
	w.t.Helper()
	cmd := w.command(args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

var shownCode = regexp.MustCompile(`^ +([B-Z]{4}-[B-Z]{4})$`)

// signIn runs purser login, and approves as the test account.
func (w *loginWorld) signIn() {
	w.t.Helper()
	cmd := w.command("login", "--server", w.node.AuthURL, "--client", w.node.PublicApp.ClientID)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := shownCode.FindStringSubmatch(lines.Text()); m != nil {
			w.approve(m[1])
			break
		}
	}
	rest, err := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		w.t.Fatalf("login: %v: %s", err, rest)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *loginWorld) approve(userCode string) {
	w.t.Helper()
	b := apitest.NewBrowser(w.t, w.node.AuthURL)
	who := w.node.TestAccount
	b.Post("/sign-in", url.Values{"email": {who.Email}, "password": {who.Password}}).Want(w.t, http.StatusSeeOther)
	b.Post("/device", url.Values{"user_code": {userCode}}).Want(w.t, http.StatusOK, userCode, "On your own device.")
	b.Post("/device", url.Values{"user_code": {userCode}, "decision": {"approve"}, "spend_cap": {"5"}}).
		Want(w.t, http.StatusOK, "Approved")
}

// login reads the file of the only login.
func (w *loginWorld) login() (l login, path string) {
	w.t.Helper()
	files, err := filepath.Glob(w.config + "/purser/logins/*.json")
	if err != nil || len(files) != 1 {
		w.t.Fatalf("logins: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return l, files[0]
}

// expire lets the access token end, and sends the next refresh through the proxy.
func (w *loginWorld) expire() {
	w.t.Helper()
	l, path := w.login()
	l.ExpiresAt, l.TokenEndpoint = time.Now().Add(-time.Second), w.proxy.URL+"/oauth/token"
	text, err := json.Marshal(l)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// works reports whether the node accepts an access token.
func (w *loginWorld) works(token string) bool {
	w.t.Helper()
	resp := w.node.Call("GET", "/v1/connection", "", "Authorization: Bearer "+token)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// runMany runs purser token n times at once, and returns the token that all of them print.
func (w *loginWorld) runMany(n int) string {
	w.t.Helper()
	tokens := make([]string, n)
	var all sync.WaitGroup
	for i := range tokens {
		all.Go(func() {
			code, out, stderr := w.run("token")
			if code != exitOK || stderr != "" {
				w.t.Errorf("process %d: exit %d %s", i, code, stderr)
			}
			tokens[i] = strings.TrimSuffix(out, "\n")
		})
	}
	all.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token) != 43 {
			w.t.Fatalf("different tokens: %q, %q", token, tokens[0])
		}
	}
	return tokens[0]
}

// TestManyProcesses: fifty processes with an expired access token exchange one refresh token once,
// all print the same new access token, and the login lives on. Then it is ended.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	w := newLoginWorld(t)
	w.signIn()
	code, first, stderr := w.run("token")
	if first = strings.TrimSpace(first); code != exitOK || stderr != "" || !w.works(first) {
		t.Fatalf("the first token: %d %q %q", code, first, stderr)
	}
	for round := 1; round <= 2; round++ {
		w.expire()
		token := w.runMany(50)
		if got := w.proxy.counts(); got != [2]int{round, 0} || token == first || !w.works(token) {
			t.Errorf("round %d: %v refreshes and replays", round, got)
		}
		first = token
	}
	if l, path := w.login(); l.AccessToken != first {
		t.Errorf("%s has another token", path)
	} else if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if drafts, err := filepath.Glob(w.config + "/purser/logins/*.new"); err != nil || len(drafts) != 0 {
		t.Errorf("left behind: %v, %v", drafts, err)
	}
	if code, out, stderr := w.run("logout"); code != exitOK || stderr != "" || w.works(first) {
		t.Errorf("logout: %d %q %q; the token works: %t", code, out, stderr, w.works(first))
	}
	if code, _, stderr := w.run("token"); code != exitFailed || !strings.Contains(stderr, "not signed in") {
		t.Errorf("after logout: %d %q", code, stderr)
	}
	w.node.Verify()
}

// TestKilledRefresh kills the process that holds the lock, after the node has rotated the refresh token and before the
// answer arrives. The others get the same tokens again, and the login lives on.
func TestKilledRefresh(t *testing.T) {
	t.Parallel()
	w := newLoginWorld(t)
	w.signIn()
	w.expire()
	release := make(chan struct{})
	defer close(release)
	withheld := w.proxy.withholdNext(release)
	victim := w.command("token")
	var printed bytes.Buffer
	victim.Stdout = &printed
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-withheld:
	case <-time.After(30 * time.Second):
		t.Fatal("the refresh did not reach the node")
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if token := w.runMany(20); !w.works(token) {
			t.Error("the token after the kill does not work")
		}
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // killed
	waiting.Wait()
	if got := w.proxy.counts(); got != [2]int{1, 1} || printed.Len() != 0 {
		t.Errorf("%v refreshes and replays; the victim printed %q", got, printed.String())
	}
	w.expire()
	if code, out, stderr := w.run("token"); code != exitOK || !w.works(strings.TrimSpace(out)) {
		t.Errorf("the next refresh: %d %q %q", code, out, stderr)
	}
	if got := w.proxy.counts(); got != [2]int{2, 1} {
		t.Errorf("%v refreshes and replays", got)
	}
}
