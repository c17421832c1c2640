package nodes

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestAsynchronousStandby promotes a standby that lacks the primary's last rows. The ledger that is left is whole in
// itself, so that its verification is clean; who has seen the public log before notices, at once and later.
func TestAsynchronousStandby(t *testing.T) {
	testkit.Long(t, "waits for the public log; TestVerifyLogFindsEachAttack proves that a lost end is found")
	primary := dbtest.StartCluster(t, true)
	first := primary.NewURL(t)
	standby := primary.StartStandby(t, failoverGuide(t), false)
	url := dbtest.JoinURLs(t, first, primary, standby)
	p := servertest.Start(t, url, "--lease=2s")
	b := newBooks(t, isUnavailable)
	call := func(n int) {
		t.Helper()
		for range n {
			c := b.addCall(false, "!mock words=5")
			testkit.Eventually(t, maxFailover, "an answer", func() bool {
				return b.sendCall(t.Context(), p, c) && c.state() == "answered"
			})
		}
	}
	state := filepath.Join(t.TempDir(), "state")
	call(5)
	awaitLog(t, p, 6) // the top-up, connect and five calls
	checkLog(t, p, state, 0, "")
	standby.StopReplication(t)
	call(5)
	seen := awaitLog(t, p, 11)
	checkLog(t, p, state, 0, "")
	primary.KillPostmaster(t)
	standby.Promote(t)
	call(1)
	servertest.Verify(t, url)
	checkLog(t, p, state, 1, "WRONG")
	call(8)
	if now := awaitLog(t, p, seen+1); now <= seen {
		t.Errorf("the log has %d leaves", now)
	}
	checkLog(t, p, state, 1, "WRONG")
}

// awaitLog waits until the public log has at least so many leaves, and returns how many it has.
func awaitLog(t *testing.T, p *servertest.Process, atLeast int64) int64 {
	t.Helper()
	var log struct{ Size int64 }
	testkit.Eventually(t, testkit.Patience, "leaves of the log", func() bool {
		response := p.Call("GET", "/v1/log", "")
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(&log) == nil && log.Size >= atLeast
	})
	return log.Size
}

// checkLog runs tools/verify-log against a node.
func checkLog(t *testing.T, p *servertest.Process, state string, code int, says string) {
	t.Helper()
	response := p.Call("GET", "/v1/log", "")
	defer response.Body.Close()
	var log struct{ Key string }
	if err := json.NewDecoder(response.Body).Decode(&log); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/usr/bin/python3", "../../../tools/verify-log", p.BaseURL, "--key", log.Key, "--state",
		state)
	out, _ := command.CombinedOutput() // its exit code tells
	if got := command.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), says) {
		t.Errorf("verify-log: %d, want %d\n%s", got, code, out)
	}
}
