package apps

import (
	"context"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// A MarginChange is a change of the margin rate of a live app, or of one of its features. Users pay by it, so they are
// told when it rises (decision 125).
type MarginChange struct {
	AppID         string
	Feature, Name string // the feature's slug and what users read of it; "" = the app's own rate
	Before, After money.PPM
	ChangedUS     int64
}

// RecordMargin records a change in the transaction that makes it. Nobody pays for the calls of a sandbox app, and a
// rate that stays is no change.
func RecordMargin(ctx context.Context, tx *db.Tx, tier string, c MarginChange) error {
	if tier == tiers.Sandbox || c.Before == c.After {
		return nil
	}
	if err := insertMarginChange(ctx, tx, "mgc_"+id.NewSecret(), c); err != nil {
		return fmt.Errorf("apps: margin: %w", err)
	}
	return nil
}

// RaisedMargins returns the rates that are higher after a list of changes, in their order, than they were before. Each
// has the first rate before, the last one after, and the time of the last change.
func RaisedMargins(changes []MarginChange) []MarginChange {
	var list []MarginChange
	for _, c := range changes {
		i := slices.IndexFunc(list, func(l MarginChange) bool { return l.Feature == c.Feature })
		if i < 0 {
			list = append(list, c)
			continue
		}
		list[i].After, list[i].Name, list[i].ChangedUS = c.After, c.Name, c.ChangedUS
	}
	return slices.DeleteFunc(list, func(c MarginChange) bool { return c.After <= c.Before })
}

// Of names whose rate it is.
func (c MarginChange) Of() string {
	if c.Feature == "" {
		return "Margin"
	}
	return "Margin on “" + c.Name + "”"
}

// FormatMargin writes a rate in percent.
func FormatMargin(rate money.PPM) string { return (rate * 100).String() + "%" }
