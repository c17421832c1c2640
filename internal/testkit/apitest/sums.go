package apitest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/money"
)

// checkSums checks in every object what a schema cannot: a _display member agrees with
// its _mc, a charge is the sum of its parts, the remaining allocation is what is neither
// consumed nor held, and tokens add up.
func checkSums(value any) error {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if err := checkSums(item); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := sumsOf(v); err != nil {
			return err
		}
		for _, member := range v {
			if err := checkSums(member); err != nil {
				return err
			}
		}
	}
	return nil
}

func sumsOf(o map[string]any) error {
	for name := range o {
		amount, ok := integer(o, name)
		base, isMoney := strings.CutSuffix(name, "_mc")
		if shown, twin := o[base+"_display"].(string); ok && isMoney && twin && shown != money.MC(amount).Display() {
			return fmt.Errorf("%s_display is %q, %s_mc is %d", base, shown, base, amount)
		}
	}
	for _, rule := range []struct {
		total string
		parts []string
		signs []int64
	}{
		{"user_charge_mc", []string{"provider_cost_mc", "svc_fee_mc", "dev_margin_mc"}, []int64{1, 1, 1}},
		{"allocation_remaining_mc", []string{"allocation_mc", "consumed_mc", "held_mc"}, []int64{1, -1, -1}},
		{"reserved_allocation_mc", []string{"allocation_mc"}, []int64{1}},
		{"total_tokens", []string{"prompt_tokens", "completion_tokens"}, []int64{1, 1}},
	} {
		total, complete := integer(o, rule.total)
		sum := int64(0)
		for i, part := range rule.parts {
			n, ok := integer(o, part)
			complete = complete && ok
			sum += rule.signs[i] * n
		}
		if complete && sum != total {
			return fmt.Errorf("%s is %d and not %d, the sum of %v", rule.total, total, sum, rule.parts)
		}
	}
	return nil
}

func integer(o map[string]any, name string) (int64, bool) {
	n, ok := o[name].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}
