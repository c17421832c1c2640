package receipts

import (
	"strings"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// noCache is in the usage of text calls that neither read the provider's cache nor wrote to it.
const noCache = `"cached":0,"cache_write":0,`

// CacheSaved returns what the provider's cache saved of a text call's charge, negative if it cost more (decision 071).
// It depends on the ledger row alone. It returns false if the call did not use the cache, or was free.
func CacheSaved(e *rules.Entry) (money.MC, bool) {
	if e.Usage == "" || strings.Contains(e.Usage, noCache) || e.IsWaived() {
		return 0, false
	}
	u, err := decodeUsage(e)
	if err != nil || u.Cached == 0 && u.CacheWrite == 0 {
		return 0, false
	}
	t, err := policy.ParseTerms(e.Terms)
	if err != nil || t.Voice {
		return 0, false
	}
	rates, err := catalog.ParseSnapshot(t.Rates)
	if err != nil {
		return 0, false
	}
	saved, err := pricing.CacheSaved(rates, provider.Usage{
		Input:      u.Input,
		Cached:     u.Cached,
		CacheWrite: u.CacheWrite,
		Output:     u.Output,
	}, t.Margin, t.Fee)
	return saved, err == nil
}

// explainCache says what the provider's cache saved, "" if the call did not use it.
func explainCache(e *rules.Entry) string {
	switch saved, ok := CacheSaved(e); {
	case !ok:
		return ""
	case saved < 0:
		return " Writing to the provider's cache cost " + (-saved).Display() + " more."
	default:
		return " The provider's cache saved " + saved.Display() + "."
	}
}
