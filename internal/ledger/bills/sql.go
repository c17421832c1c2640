package bills

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// lateness bounds how long after its request a call is charged, by the provider's record of it at the latest.
const lateness = 7 * 24 * time.Hour

// ReadLedger returns what live calls from one time to another have cost at the providers, by day and model. Refunds do
// not count: the provider has been paid. Calls by a developer's own provider key are among them, since the ledger does
// not tell them apart. A row's terms say whether the call was live: the app's mode may have changed since. A row's id
// has the time of its request: the index finds rows by it, and lateness is how much later a call may be charged.
func ReadLedger(ctx context.Context, q db.Queryer, from, to time.Time) ([]Cost, error) {
	const dayUS = int64(24 * time.Hour / time.Microsecond)
	list, err := db.QueryAll(ctx, q, func(r db.Row) (c Cost, err error) {
		var day int64
		err = r.Scan(&day, &c.Model, &c.AmountMC)
		c.Day = time.UnixMicro(day * dayUS).UTC().Format(time.DateOnly)
		return c, err
	}, `SELECT l.created_us / $1 AS day, l.model, CAST(SUM(l.provider_cost_mc) AS BIGINT) FROM ledger l
		WHERE l.id >= $2 AND l.id < $3 AND l.created_us >= $4 AND l.created_us < $5
			AND l.type = 'spend' AND l.status = 'settled' AND COALESCE(l.terms, '') NOT LIKE '%"mock":true%'
		GROUP BY 1, 2 ORDER BY 1, 2`, dayUS, id.Floor(id.Ledger, from.Add(-lateness)),
		id.Floor(id.Ledger, to), from.UnixMicro(), to.UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("bills: %w", err)
	}
	return list, nil
}
