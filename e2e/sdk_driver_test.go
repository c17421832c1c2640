package e2e

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A scenario of sdk/conformance/scenarios.json. The README there says what its members mean.
type scenario struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Steps []step `json:"steps"`
}

type step struct {
	Op     string          `json:"op"`
	Args   map[string]any  `json:"args"`
	Client json.RawMessage `json:"client"`
	As     string          `json:"as"`
	Expect any             `json:"expect"`
	Fails  any             `json:"fails"`
	Within float64         `json:"within_s"`
}

// A runnerAnswer is one line of a runner.
type runnerAnswer struct {
	ID          int    `json:"id"`
	Result      any    `json:"result"`
	Error       any    `json:"error"`
	Unsupported bool   `json:"unsupported"`
	Crash       string `json:"crash"`
}

// errUnsupported means that a runner does not know an operation.
var errUnsupported = errors.New("unsupported operation")

// A driver runs scenarios with the runner of one SDK, at a node of its own.
type driver struct {
	t     *testing.T
	node  *servertest.Process
	proxy *sdkProxy
	sdk   sdkRunner
	dev   string // path of PURSER_DEV_JSON
	// of the runner
	in   io.Writer
	out  *bufio.Reader
	last int // id of the last request
}

// newDriver starts the runner of an SDK.
func newDriver(t *testing.T, s sdkRunner, p *servertest.Process) *driver {
	t.Helper()
	d := &driver{t: t, node: p, sdk: s, proxy: newSDKProxy(t, p.BaseURL), dev: filepath.Join(t.TempDir(), "dev.json")}
	data := p.Data
	data.BaseURL = d.proxy.URL
	text, err := json.Marshal(data)
	if err == nil {
		err = os.WriteFile(d.dev, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// command is the runner with arguments.
func (d *driver) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), d.sdk.command[0], append(d.sdk.command[1:], args...)...)
	cmd.Env = append(os.Environ(), "PURSER_DEV_JSON="+d.dev)
	return cmd
}

// start starts the runner. It ends with the test.
func (d *driver) start() {
	d.t.Helper()
	cmd := exec.Command(d.sdk.command[0], d.sdk.command[1:]...) // outlives the context of the test, for its cleanup
	cmd.Env = append(os.Environ(), "PURSER_DEV_JSON="+d.dev)
	in, err := cmd.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	var told strings.Builder
	cmd.Stderr = &told
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = in.Close() // the runner ends
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil || told.Len() > 0 {
			d.t.Errorf("runner of %s: %v %s", d.sdk.name, err, told.String())
		}
	})
	d.in, d.out = in, bufio.NewReader(out)
}

// ask sends an operation to the runner.
func (d *driver) ask(op string, client json.RawMessage, args map[string]any) (runnerAnswer, error) {
	d.last++
	request := map[string]any{"id": d.last, "op": op, "args": args}
	if client != nil {
		request["client"] = client
	}
	line, err := json.Marshal(request)
	if err != nil {
		return runnerAnswer{}, err
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		if _, err := d.in.Write(append(line, '\n')); err != nil {
			done <- result{nil, err}
			return
		}
		text, err := d.out.ReadBytes('\n')
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		var a runnerAnswer
		if r.err == nil {
			r.err = json.Unmarshal(r.text, &a)
		}
		if r.err == nil && a.ID != d.last {
			r.err = fmt.Errorf("answer %d to request %d", a.ID, d.last)
		}
		return a, r.err
	case <-time.After(5 * time.Minute):
		return runnerAnswer{}, fmt.Errorf("%s: no answer within five minutes", op)
	}
}

// run runs a scenario. The error is errUnsupported if the runner lacks one of its operations.
func (d *driver) run(s scenario) error {
	defer d.proxy.heal()
	d.proxy.takeRequests("")
	text, err := os.ReadFile(d.dev)
	if err != nil {
		return err
	}
	uuid := servertest.UUID()
	vars := map[string]any{"dev": read[any](d.t, string(text)), "uuid": uuid, "run": uuid[:8]}
	for i, st := range s.Steps {
		result, err := d.runStep(st, vars)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, st.Op, err)
		}
		if st.As != "" {
			vars[st.As] = result
		}
	}
	return nil
}

// runStep runs a step, if it says so again until it succeeds or its time is over.
func (d *driver) runStep(st step, vars map[string]any) (any, error) {
	deadline := time.Now().Add(time.Duration(st.Within * float64(time.Second)))
	for {
		result, err := d.tryStep(st, vars)
		if err == nil || time.Now().After(deadline) {
			return result, err
		}
	}
}

func (d *driver) tryStep(st step, vars map[string]any) (any, error) {
	expanded, err := expand(map[string]any{"args": st.Args, "expect": st.Expect, "fails": st.Fails}, vars)
	if err != nil {
		return nil, err
	}
	all := expanded.(map[string]any)
	args, _ := all["args"].(map[string]any)
	var a runnerAnswer
	if name, mine := strings.CutPrefix(st.Op, "driver."); mine {
		a.Result, err = d.act(name, args)
	} else {
		client, expandErr := expandClient(st.Client, vars)
		if expandErr != nil {
			return nil, expandErr
		}
		a, err = d.ask(st.Op, client, args)
	}
	switch {
	case err != nil:
		return nil, err
	case a.Unsupported:
		return nil, errUnsupported
	case a.Crash != "":
		return nil, errors.New(a.Crash)
	case st.Fails != nil && a.Error == nil:
		return nil, fmt.Errorf("got %s, want an error", compact(a.Result))
	case st.Fails != nil:
		return a.Error, asError(match(all["fails"], a.Error, "error"))
	case a.Error != nil:
		return nil, fmt.Errorf("failed: %s", compact(a.Error))
	case st.Expect == nil:
		return a.Result, nil
	}
	return a.Result, asError(match(all["expect"], a.Result, "result"))
}

func expandClient(client json.RawMessage, vars map[string]any) (json.RawMessage, error) {
	if client == nil {
		return nil, nil
	}
	var v any
	if err := json.Unmarshal(client, &v); err != nil {
		return nil, err
	}
	expanded, err := expand(v, vars)
	if err != nil {
		return nil, err
	}
	return json.Marshal(expanded)
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// decode reads the arguments of an operation.
func decode[T any](args map[string]any) (v T, err error) {
	text, err := json.Marshal(args)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

// act carries out an operation of the driver itself.
func (d *driver) act(name string, args map[string]any) (any, error) {
	text := func(name string) string {
		s, _ := args[name].(string)
		return s
	}
	switch name {
	case "consent":
		return d.consent(text("url"), args)
	case "device":
		return nil, d.decideDevice(text("verification_uri"), text("user_code"), args)
	case "approve":
		return nil, d.decideRequest(text("url"), args)
	case "freeze":
		return nil, d.freeze(text("connection_id"))
	case "fault":
		f, err := decode[fault](args)
		d.proxy.addFault(f)
		return nil, err
	case "heal":
		d.proxy.heal()
		return nil, nil
	case "requests":
		return d.proxy.takeRequests(text("path")), nil
	case "sign":
		age, _ := args["age_s"].(float64)
		return sign(text("body"), text("secret"), text("scheme"), time.Now().Add(-time.Duration(age)*time.Second))
	}
	return nil, fmt.Errorf("the driver has no operation %s", name)
}

// person is the browser of a person: the developer, who connects new test accounts, or the sample test account.
func (d *driver) person(isDeveloper bool) (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	login := d.node.TestAccount
	if isDeveloper {
		login = d.node.Developer
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return browser, post(browser, d.node.AuthURL+"/sign-in", http.StatusSeeOther,
		url.Values{"email": {login.Email}, "password": {login.Password}}, nil)
}

// post sends a form and wants a status. location, if not nil, gets the address of a redirect.
func post(browser *http.Client, address string, want int, form url.Values, location *string) error {
	resp, err := browser.PostForm(address, form)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s: %d, want %d: %.2000s", address, resp.StatusCode, want, text)
	}
	if location != nil {
		*location = resp.Header.Get("Location")
	}
	return nil
}

// answer is the form of a consent screen.
func answer(args map[string]any) url.Values {
	form := url.Values{"decision": {"approve"}, "spend_cap": {"5"}, "daily_limit": {""}}
	for _, name := range []string{"decision", "spend_cap", "daily_limit", "own_work"} {
		if s, ok := args[name].(string); ok {
			form.Set(name, s)
		}
	}
	if args["account"] == "new" {
		form.Set("test_account", "new")
	}
	return form
}

func (d *driver) consent(address string, args map[string]any) (any, error) {
	browser, err := d.person(args["account"] == "new")
	if err != nil {
		return nil, err
	}
	var callback string
	err = post(browser, address, http.StatusFound, answer(args), &callback)
	return map[string]any{"callback_url": callback}, err
}

func (d *driver) decideDevice(page, code string, args map[string]any) error {
	browser, err := d.person(args["account"] == "new")
	if err != nil {
		return err
	}
	form := answer(args)
	form.Set("user_code", code)
	return post(browser, page, http.StatusOK, form, nil)
}

func (d *driver) decideRequest(address string, args map[string]any) error {
	browser, err := d.person(false)
	if err != nil {
		return err
	}
	return post(browser, address, http.StatusSeeOther, url.Values{"decision": answer(args)["decision"]}, nil)
}

// freeze pauses a connection as the operator does.
func (d *driver) freeze(connectionID string) error {
	token, err := os.ReadFile(d.node.OperatorFile)
	if err != nil {
		return err
	}
	req, err := http.NewRequest("POST", d.node.BaseURL+"/v1/operator/connections/"+connectionID+"/freeze",
		strings.NewReader(`{"reason": "A test."}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("freeze: %d", resp.StatusCode)
	}
	return nil
}

// sign makes the headers of a delivery (decision 039).
func sign(body, secret, scheme string, at time.Time) (any, error) {
	time := strconv.FormatInt(at.Unix(), 10)
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	headers := map[string]any{}
	if scheme != "standard" {
		headers["Svc-Signature"] = "t=" + time + ",v1=" + hex.EncodeToString(mac([]byte(secret), time+"."+body))
		return map[string]any{"headers": headers}, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return nil, err
	}
	headers["webhook-id"], headers["webhook-timestamp"] = "evt_1", time
	headers["webhook-signature"] = "v1," + base64.StdEncoding.EncodeToString(mac(key, "evt_1."+time+"."+body))
	return map[string]any{"headers": headers}, nil
}
