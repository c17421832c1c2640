package dashboard

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// listWork returns what apps hold for work of their own (decision 109): of an account, or of one connection of it.
func (h *Handler) listWork(ctx context.Context, accountID, connectionID string) ([]rules.HoldRow, error) {
	list, err := store.ListWorkHolds(ctx, h.DB, accountID, connectionID)
	if err != nil {
		return nil, fmt.Errorf("dashboard: holds of own work: %w", err)
	}
	return list, nil
}

// sumWork adds holds up; "" = there is none.
func sumWork(list []rules.HoldRow) string {
	var sum money.MC
	for i := range list {
		sum += list[i].HoldMC
	}
	if sum == 0 {
		return ""
	}
	return ui.Dollars(sum)
}

// workUntil returns when a hold of an app's own work ends by itself.
func workUntil(hold *rules.HoldRow) ui.Moment {
	return ui.NewMoment(hold.CreatedUS + policy.WorkLifetime.Microseconds())
}

// workRows returns the rows of a connection's page.
func workRows(list []rules.HoldRow) (rows []ui.WorkHold) {
	for i := range list {
		terms, _ := policy.ParseWork(list[i].Terms)
		rows = append(rows, ui.WorkHold{
			ID:          list[i].RequestID,
			Description: terms.Description,
			Amount:      ui.PriceMoney(list[i].HoldMC),
			Until:       workUntil(&list[i]),
		})
	}
	return rows
}
