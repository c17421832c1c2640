package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestFeeChangesOnEveryNode changes the fee by the command line, and calls two nodes until it has begun: each call pays
// by the version in force at its start, on whichever node.
func TestFeeChangesOnEveryNode(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	b.Connection = a.Connection
	var v struct{ From time.Time }
	operate(t, a, &v, "set", "fee_rate=0.10", "--reason", "New prices.")
	if wait := time.Until(v.From); wait < 5*time.Second || wait > 20*time.Second {
		t.Fatalf("it begins in %v", wait)
	}
	const slack = 500 * time.Millisecond // a call's row is later than its start
	for end := v.From.Add(slack + 2*time.Second); time.Now().Before(end); {
		for _, p := range []*servertest.Process{a, b} {
			a := apitest.Read(t, p.Call("POST", luna, `{"messages":[{"role":"user","content":"Hello."}]}`))
			if a.Status != http.StatusOK {
				t.Fatal(a)
			}
		}
	}
	from := v.From.UnixMicro()
	for percent, when := range map[int]string{
		5:  fmt.Sprintf("created_us < %d", from),
		10: fmt.Sprintf("created_us > %d", from+slack.Microseconds()),
	} {
		const calls = `SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND provider_cost_mc > 0 AND `
		if n := dbtest.Number(t, a.DB, calls+when); n < 4 {
			t.Errorf("vacuous: %d calls at %d %%", n, percent)
		}
		other := fmt.Sprintf(" AND svc_fee_mc <> (provider_cost_mc * %d + 99) / 100", percent)
		if n := dbtest.Number(t, a.DB, calls+when+other); n > 0 {
			t.Errorf("%d calls pay another fee than %d %%", n, percent)
		}
	}
	var list []struct {
		State    string
		Settings map[string]string
	}
	operate(t, b, &list, "settings")
	if len(list) < 2 || list[0].State != "in_force" || list[0].Settings["fee_rate"] != "0.1" ||
		list[1].State != "past" || list[1].Settings["fee_rate"] != "0.05" {
		t.Errorf("the other node lists %+v", list)
	}
}

// operate runs purser operator, and reads what it prints.
func operate(t *testing.T, p *servertest.Process, into any, args ...string) {
	t.Helper()
	args = append([]string{"operator", "--url", p.BaseURL, "--token-file", p.OperatorFile}, args...)
	out, err := exec.Command(servertest.Binary(t), args...).Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}
