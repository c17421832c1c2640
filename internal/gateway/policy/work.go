package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// OwnWork stands in rows where calls have their model: the app charges for work of its own, such as a search, at its
// own price.
const OwnWork = rules.OwnWork

// WorkLifetime is how long the hold of an app's own work lasts: the app captures or releases it before.
const WorkLifetime = 10 * time.Minute

// WorkTerms are the terms of an app's own work, as its hold and its ledger row store them.
type WorkTerms struct {
	AmountMC    money.MC  `json:"amount_mc"` // the hold
	Description string    `json:"description"`
	Fee         money.PPM `json:"-"`
	Mock        bool      `json:"-"` // fake money
}

// storedWork is how terms of own work are stored.
type storedWork struct {
	Work WorkTerms `json:"own_work"`
	Fee  money.PPM `json:"fee_ppm"`
	Mock bool      `json:"mock,omitempty"`
}

// workMember begins stored terms of own work.
const workMember = `{"own_work":`

// JSON returns the terms as they are stored.
func (t WorkTerms) JSON() string {
	b, err := json.Marshal(storedWork{t, t.Fee, t.Mock})
	if err != nil {
		panic("policy: encode terms: " + err.Error())
	}
	return string(b)
}

// ParseWork reads what WorkTerms.JSON wrote. It returns false for the terms of calls.
func ParseWork(text string) (WorkTerms, bool) {
	if !strings.HasPrefix(text, workMember) {
		return WorkTerms{}, false
	}
	var t storedWork
	if json.Unmarshal([]byte(text), &t) != nil {
		return WorkTerms{}, false
	}
	t.Work.Fee, t.Work.Mock = t.Fee, t.Mock
	return t.Work, true
}

// FeeOn returns the service fee of a charge for own work, which is a part of it, rounded up. The rest is the
// developer's margin.
func (t WorkTerms) FeeOn(charge money.MC) (money.MC, error) {
	return money.Share(charge, t.Fee, money.Up)
}

// WorkUsage returns the usage of a charge for own work as its row stores it.
func WorkUsage(captured money.MC) string { return fmt.Sprintf(`{"captured_mc":%d}`, captured) }
