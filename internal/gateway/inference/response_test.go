package inference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// FuzzWithBlock: an answer with its bill is JSON, and the provider's members survive.
func FuzzWithBlock(f *testing.F) {
	f.Add(`{"id":"x","choices":[{}]}`, "chat", false)
	f.Add("{\"a\":{\"svc\":1}} \n", "", true)
	f.Fuzz(func(t *testing.T, body, feature string, estimated bool) {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &members) != nil || len(members) == 0 || !strings.HasPrefix(body, "{") {
			return
		}
		if !features.SlugPattern.MatchString(feature) {
			feature = ""
		}
		e := rules.Entry{
			ID:          "led_x",
			Feature:     feature,
			Settlement:  rules.Settled,
			PaidBy:      "wallet",
			Usage:       `{"input":1,"cached":0,"cache_write":0,"output":2,"reasoning":0}`,
			Amounts:     rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1},
			RemainingMC: money.Dollar,
		}
		if estimated {
			e.Settlement = rules.Estimated
		}
		var out map[string]json.RawMessage
		if err := json.Unmarshal(withBlock([]byte(body), &e), &out); err != nil {
			t.Fatalf("%v in %s", err, withBlock([]byte(body), &e))
		}
		for name := range members {
			if _, ok := out[name]; !ok {
				t.Errorf("%q is lost", name)
			}
		}
		if !strings.Contains(string(out["svc"]), `"user_charge_mc":1`) {
			t.Errorf("the bill is lost: %s", out["svc"])
		}
	})
}
