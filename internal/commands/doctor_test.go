package commands

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// findings runs purser doctor on a file and returns its findings by check.
func findings(t *testing.T, want int, file string, environ ...string) map[string]finding {
	t.Helper()
	code, out, stderr := command(environ, "doctor", "--json", "--config", file)
	if code != want || stderr != "" {
		t.Errorf("doctor: exit %d, want %d\n%s%s", code, want, out, stderr)
	}
	if strings.Contains(out, "hidden-secret") {
		t.Errorf("a secret is printed:\n%s", out)
	}
	found := map[string]finding{}
	for lines := json.NewDecoder(strings.NewReader(out)); lines.More(); {
		var f finding
		if err := lines.Decode(&f); err != nil {
			t.Fatal(err)
		}
		if f.State != checkOK && f.Remedy == "" {
			t.Errorf("%s: says not how to mend it: %s", f.Check, f.Text)
		}
		if old, twice := found[f.Check]; twice {
			f.Text = old.Text + "\n" + f.Text
		}
		found[f.Check] = f
	}
	return found
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "purser.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestInit writes a file that lacks only what the operator knows. With that, purser serve starts and doctor finds it.
func TestInit(t *testing.T) {
	t.Parallel()
	folder, binary := filepath.Join(t.TempDir(), "purser"), servertest.Binary(t)
	code, out, stderr := command(nil, "init", folder)
	path := filepath.Join(folder, "purser.yaml")
	if code != exitOK || !strings.Contains(out, "purser serve --config "+path) || stderr != "" {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(nil, "init", folder); code != exitFailed ||
		!strings.Contains(stderr, "is there already") {
		t.Errorf("init again: %d %s", code, stderr)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) {
		t.Errorf("it was overwritten: %v", err)
	}
	found := findings(t, exitFailed, path)
	for name, f := range found {
		if f.State == checkFailure && name != "settings" {
			t.Errorf("%s: %s", name, f.Text)
		}
	}
	if f := found["settings"]; !strings.HasPrefix(f.Text, "base_url: required") || strings.Contains(f.Text, "\n") {
		t.Errorf("settings: %s", f.Text)
	}
	// All settings of the comments are real ones.
	uncommented := strings.NewReplacer("# base_url: https://api.example.com", "base_url: https://api.example.com",
		"# trusted_proxies", "trusted_proxies", "# operator:", "operator:", "#   ", "  ", "# stripe:", "stripe:",
		"# providers:", "providers:", "# smtp:", "smtp:", "# metrics_listen", "metrics_listen", "# drain:", "drain:",
		"# backup:", "backup:", "# auth_url", "auth_url", "# dashboard_url", "dashboard_url", "…",
		"0123456789").Replace(string(text))
	if f := findings(t, exitFailed, writeFile(t, uncommented))["settings"]; f.State != checkOK {
		t.Errorf("with all comments taken away: %s", f.Text)
	}

	address := freeAddress(t)
	filled := strings.NewReplacer("# base_url: https://api.example.com", "base_url: http://"+address,
		"listen: 127.0.0.1:8080", "listen: "+address).Replace(string(text))
	if err := os.WriteFile(path, []byte(filled), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), binary, "serve", "--config", path, "--drain", "0s")
	log, err := serve.StderrPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), address) {
		t.Log(lines.Text())
	}
	go func() {
		for lines.Scan() { // until it ends
		}
	}()
	found = findings(t, exitOK, path)
	for name, state := range map[string]string{"settings": checkOK, "file": checkOK, "database": checkOK,
		"clock": checkOK, "base_url": checkWarning, "providers": checkWarning, "smtp": checkWarning,
		"stripe": checkWarning, "operator": checkWarning} {
		if found[name].State != state {
			t.Errorf("%s is %+v, want %s", name, found[name], state)
		}
	}
	if !strings.Contains(found["base_url"].Text, "reaches this machine only") {
		t.Errorf("base_url: %+v", found["base_url"])
	}
	if err := serve.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestDoctorPermissions names the permissions that a restricted key lacks, and changes nothing at Stripe to find out.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	payments := stripe.New(stripe.Options{Key: "rk_live_hidden-secret"})
	server := httptest.NewServer(payments)
	defer server.Close()
	c := config.Config{}
	c.Stripe = topups.Config{Key: "rk_live_hidden-secret", WebhookSecret: "whsec_hidden-secret", BaseURL: server.URL}
	needed := []string{"rak_checkout_session_write", "rak_customer_write", "rak_payment_intent_write",
		"rak_payment_method_write", "rak_charge_write", "rak_dispute_read", "rak_accounts_kyc_basic_write",
		"rak_account_link_write", "rak_transfer_write"}
	for i, name := range append(needed, "") {
		c.Payouts.Every = time.Hour
		may := slices.DeleteFunc(slices.Clone(needed), func(n string) bool { return n == name })
		if err := payments.Steer("", "permissions", url.Values{"may": {strings.Join(may, ",")}}); err != nil {
			t.Fatal(err)
		}
		f, lacks := checkStripe(t.Context(), c), 1
		if name == "" {
			lacks = 0
		}
		if strings.Count(f.Text, ": write")+strings.Count(f.Text, ": read") != lacks ||
			f.State != []string{checkOK, checkFailure}[lacks] {
			t.Errorf("without %q: %+v", name, f)
		}
		if c.Payouts.Every = 0; i >= 6 { // of Connect
			if f := checkStripe(t.Context(), c); f.State != checkOK {
				t.Errorf("nobody is paid, without %q: %+v", name, f)
			}
		}
	}
	if n := len(payments.Events()) + len(payments.Transfers()) + len(payments.SavedCards()); n != 0 {
		t.Errorf("%d changes at Stripe", n)
	}
}

// TestDoctorProviders checks the keys at the emulators, good ones and bad ones.
func TestDoctorProviders(t *testing.T) {
	t.Parallel()
	providers := httptest.NewServer(emulator.New(emulator.Options{}))
	defer providers.Close()
	payments := httptest.NewServer(stripe.New(stripe.Options{Key: "sk_live_hidden-secret"}))
	defer payments.Close()
	settings := func(openai, anthropic, google, payment string) string {
		return writeFile(t,
			"database: "+dbtest.URL(t, db.SQLite)+"\nbase_url: http://127.0.0.1:1\nenvelope_key: "+newKey()+
				"\nproviders:\n  openai: {key: "+openai+", base_url: '"+providers.URL+"/v1'}\n  anthropic: {key: "+
				anthropic+
				", base_url: '"+providers.URL+"'}\n  google: {key: "+google+", base_url: '"+providers.URL+"'}\n"+
				"stripe: {key: "+payment+", webhook_secret: whsec_hidden-secret, base_url: '"+payments.URL+"'}\n")
	}
	found := findings(t, exitOK,
		settings("hidden-secret-1", "hidden-secret-2", "hidden-secret-3", "sk_live_hidden-secret"))
	for _, name := range []string{"settings", "providers.openai", "providers.anthropic", "providers.google", "stripe"} {
		if found[name].State != checkOK {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	found = findings(t, exitFailed, settings("bad-key-", "hidden-secret-2", "hidden-secret-3", "sk_live_other"))
	if found["stripe"].State != checkFailure || !strings.Contains(found["stripe"].Text, "does not accept the key") {
		t.Errorf("stripe: %+v", found["stripe"])
	}
	// The emulated key that is refused is too short for a setting.
	for name, base := range map[string]string{"openai": providers.URL + "/v1", "anthropic": providers.URL,
		"google": providers.URL} {
		models := modelLists[name]
		status, _, err := getStatus(t.Context(), base+models.path, models.header("bad-key"))
		if f := describeKeyAnswer(name, "x", base, status, err); f.State != checkFailure {
			t.Errorf("%s with a bad key: %+v", name, f)
		}
	}
	providers.Close()
	found = findings(t, exitFailed,
		settings("hidden-secret-1", "hidden-secret-2", "hidden-secret-3", "sk_live_hidden-secret"))
	if !strings.Contains(found["providers.google"].Text, "can't be reached") {
		t.Errorf("google: %+v", found["providers.google"])
	}
}

// TestDoctorDatabases looks at databases that are empty, current, old, new, and absent.
func TestDoctorDatabases(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			file := writeFile(t, "database: "+target+"\nbase_url: https://purser.invalid\nenvelope_key: "+newKey()+"\n")
			for _, step := range []struct{ sql, state, text string }{
				{"SELECT 1", checkOK, "which this purser expects"},
				{"INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)", checkFailure,
					"a later version"},
				{"DELETE FROM goose_db_version WHERE version_id > 1", checkWarning, "the next start migrates it"},
			} {
				if _, err := d.ExecContext(t.Context(), step.sql); err != nil {
					t.Fatal(err)
				}
				want := exitOK
				if step.state == checkFailure {
					want = exitFailed
				}
				found := findings(t, want, file)
				if f := found["database"]; f.State != step.state || !strings.Contains(f.Text, step.text) {
					t.Errorf("%s: %+v", step.sql, f)
				}
				if found["clock"].State != checkOK || found["base_url"].State != checkWarning {
					t.Errorf("%+v", found)
				}
			}
		})
	}
	file := writeFile(t,
		"database: postgres://u:hidden-secret@127.0.0.1:1/x\nbase_url: http://api.example.com\nenvelope_key: "+newKey()+
			"\n")
	found := findings(t, exitFailed, file)
	if found["database"].State != checkFailure || found["clock"].State != checkWarning ||
		found["connections"].State != checkWarning || found["base_url"].State != checkFailure {
		t.Errorf("%+v", found)
	}
	if found = findings(t, exitFailed, file,
		"PURSER_DATABASE=sqlite:/nowhere/at/all/purser.db"); found["database"].State != checkFailure ||
		found["disk"].State != checkFailure {
		t.Errorf("%+v", found)
	}
}

// TestDoctorFaults names all faults of the settings, does not look at what these name, and checks all else.
func TestDoctorFaults(t *testing.T) {
	t.Parallel()
	found := findings(t, exitFailed, writeFile(t, "databse: x\nfee_rate: much\nstripe: {key: short}\n"))
	for _, want := range []string{"databse is not a setting", "fee_rate: ", "base_url: required",
		"envelope_key: required", "stripe.key: has 5 characters, and a key has at least 8"} {
		if !strings.Contains(found["settings"].Text, want) {
			t.Errorf("%q is not among\n%s", want, found["settings"].Text)
		}
	}
	if _, there := found["stripe"]; there || found["file"].State != checkOK || found["operator"].State != checkWarning {
		t.Errorf("%+v", found)
	}
	found = findings(t, exitFailed, writeFile(t, "database: mysql://x\nlisten: [\n"))
	if len(found) != 1 {
		t.Errorf("of a file that can't be read: %+v", found)
	}
	if code, _, stderr := command(nil, "doctor", "--config", "/absent"); code != exitUsage ||
		!strings.Contains(stderr, "/absent") {
		t.Errorf("absent: %d %s", code, stderr)
	}
}

// TestDoctorChecks tests single checks.
func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if f := checkFileMode(path); f.State != checkFailure || f.Remedy != "chmod 600 "+path {
		t.Errorf("%+v", f)
	}
	if few, enough := checkOpenFiles(1024, 10_000), checkOpenFiles(25_500, 10_000); few.State != checkWarning ||
		!strings.Contains(few.Remedy, "LimitNOFILE=25500") || enough.State != checkOK {
		t.Errorf("%+v %+v", few, enough)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler("https://www.example.com/healthz",
		http.StatusMovedPermanently))
	defer elsewhere.Close()
	if f := checkURL(t.Context(), elsewhere.URL); f.State != checkFailure ||
		!strings.Contains(f.Text, "redirects to https://www") {
		t.Errorf("%+v", f)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, out, _ := command([]string{"PURSER_SMTP_URL=smtp://u:hidden-secret@" + silent.Addr().String(),
		"PURSER_SMTP_FROM=a@example.com"}, "doctor")
	if !strings.Contains(out, "failure  smtp ") || strings.Contains(out, "hidden-secret") {
		t.Errorf("smtp:\n%s", out)
	}
}
