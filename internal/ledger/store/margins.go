package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const marginColumns = `app_id, n, kind, subject, developer_id, amount_mc, taken_mc, COALESCE(matured_day, ''),
	COALESCE(matured_mc, 0), COALESCE(returned_mc, 0), kept_mc, COALESCE(detail, ''), created_us`

func readMarginRecords(ctx context.Context, q db.Queryer, where string, args ...any) ([]*rules.MarginRecord, error) {
	list, err := db.QueryAll(ctx, q, db.ScanFields(func(r *rules.MarginRecord) []any {
		return []any{&r.AppID, &r.N, &r.Kind, &r.Subject, &r.DeveloperID, &r.AmountMC, &r.TakenMC, &r.MaturedDay,
			&r.MaturedMC, &r.ReturnedMC, &r.KeptMC, &r.Detail, &r.CreatedUS}
	}), `SELECT `+marginColumns+` FROM margin_records WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("ledger: margin records: %w", err)
	}
	pointers := make([]*rules.MarginRecord, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	return pointers, nil
}

// lastMarginRecord returns the newest record of an app that is of a kind, "" = of any; the zero value if there is none.
func lastMarginRecord(ctx context.Context, q db.Queryer, appID, kind string) (rules.MarginRecord, error) {
	list, err := readMarginRecords(
		ctx,
		q,
		`app_id = $1 AND ($2 = '' OR kind = $2) ORDER BY n DESC LIMIT 1`,
		appID,
		kind,
	)
	if err != nil || len(list) == 0 {
		return rules.MarginRecord{}, err
	}
	return *list[0], nil
}

// ReadMaturedMargin reads what is known of an app's margin in real money, for a BeginPayout: the margin of the days
// before matured, and what came back of margin since. A payout keeps the sum of its days, so that the next one reads
// only the days since, and no day becomes immature again.
func ReadMaturedMargin(ctx context.Context, q db.Queryer, appID string,
	matured time.Time) (m rules.MaturedMargin, err error) {
	last, err := lastMarginRecord(ctx, q, appID, "") // first: a record that comes between is seen by its number
	if err != nil {
		return m, err
	}
	refund, err := lastCallRefund(ctx, q, appID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return m, fmt.Errorf("ledger: refunds of %s: %w", appID, err)
	}
	payout, err := lastMarginRecord(ctx, q, appID, "begun")
	if err != nil {
		return m, err
	}
	m = rules.MaturedMargin{
		Refunds: refund.N,
		Records: last.N,
		Day:     max(matured.UTC().Format(time.DateOnly), payout.MaturedDay),
	}
	days, err := ReadAppDays(ctx, q, AppDayFilter{AppID: appID, From: payout.MaturedDay, Before: m.Day})
	if err != nil {
		return m, fmt.Errorf("ledger: matured margin of %s: %w", appID, err)
	}
	m.MaturedMC = payout.MaturedMC
	for _, d := range days {
		m.MaturedMC += d.DevMarginMC
	}
	day, err := time.Parse(time.DateOnly, m.Day)
	if err != nil {
		return m, fmt.Errorf("ledger: matured margin of %s: %w", appID, err)
	}
	_, reversed, err := sumReversed(ctx, q, appID, day.UnixMicro(), math.MaxInt64)
	if err != nil {
		return m, fmt.Errorf("ledger: reversed margin of %s: %w", appID, err)
	}
	m.ReversedMC = reversed.DevMarginMC
	return m, nil
}

// An AppMarginView is the margin of an app as its developer sees it.
type AppMarginView struct {
	EarnedMC   money.MC // in real money, of all calls, without what came back
	DisputedMC money.MC // of Margin.TakenMC: for disputed payments
	rules.Margin
}

// ViewAppMargin reads the margin of an app; see ReadMaturedMargin.
func ViewAppMargin(ctx context.Context, q db.Queryer, appID string, matured, now time.Time) (v AppMarginView,
	err error) {
	m, err := ReadMaturedMargin(ctx, q, appID, matured)
	if err != nil {
		return v, err
	}
	earned, err := ReadAppMargin(ctx, q, appID, now)
	if err != nil {
		return v, err
	}
	last, err := lastMarginRecord(ctx, q, appID, "")
	if err != nil {
		return v, err
	}
	refund, err := lastCallRefund(ctx, q, appID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return v, fmt.Errorf("ledger: refunds of %s: %w", appID, err)
	}
	err = q.QueryRowContext(ctx, `SELECT CAST(COALESCE(SUM(amount_mc), 0) AS BIGINT) FROM margin_records
		WHERE app_id = $1 AND kind = 'disputed'`, appID).Scan(&v.DisputedMC)
	if err != nil {
		return v, fmt.Errorf("ledger: disputed margin of %s: %w", appID, err)
	}
	v.EarnedMC = earned.EarnedMC - refund.MarginUsedMC
	v.Margin = rules.Margin{
		MaturedMC:  m.MaturedMC,
		ReturnedMC: m.ReversedMC + refund.MarginUsedMC,
		TakenMC:    last.TakenMC,
	}
	return v, nil
}

func foldPayouts(records []*rules.MarginRecord) (list []*rules.Payout) {
	for _, r := range records {
		if len(list) == 0 || list[len(list)-1].ID != r.Subject {
			list = append(list, &rules.Payout{})
		}
		list[len(list)-1].Fold(*r)
	}
	return list
}

// PayoutsOfDeveloper returns the payouts of a developer's apps, newest first, at most limit.
func PayoutsOfDeveloper(ctx context.Context, q db.Queryer, developerID string, limit int) ([]*rules.Payout, error) {
	list, err := readMarginRecords(ctx, q, `kind <> 'disputed' AND (app_id, subject) IN (SELECT app_id, subject
		FROM margin_records WHERE developer_id = $1 AND kind IN ('begun', 'found') ORDER BY subject DESC LIMIT $2)
		ORDER BY subject DESC, n`,
		developerID, limit)
	return foldPayouts(list), err
}

// PayoutOfApp returns a payout of an app; its id is "" if there is none.
func PayoutOfApp(ctx context.Context, q db.Queryer, appID, payoutID string) (rules.Payout, error) {
	list, err := readMarginRecords(ctx, q, `app_id = $1 AND subject = $2 AND kind <> 'disputed' ORDER BY n`, appID,
		payoutID)
	if payouts := foldPayouts(list); err == nil && len(payouts) > 0 {
		return *payouts[0], nil
	}
	return rules.Payout{}, err
}

// payoutsPerStep is how many payouts one statement looks at.
const payoutsPerStep = 300

// OpenPayouts returns payouts of which Stripe's answer is not recorded, oldest first, at most limit. It looks at all
// payouts, in steps, each along the index of those that were begun or paid.
func OpenPayouts(ctx context.Context, q db.Queryer, limit int) ([]*rules.Payout, error) {
	var open []*rules.MarginRecord
	for last := ""; ; {
		step, err := db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT subject FROM margin_records
			WHERE kind IN ('begun', 'paid') AND kind = 'begun' AND subject > $1 ORDER BY subject LIMIT $2`, last,
			payoutsPerStep)
		if err != nil || len(step) == 0 {
			return foldPayouts(open), err
		}
		first := step[0]
		last = step[len(step)-1]
		list, err := readMarginRecords(ctx, q, `kind IN ('begun', 'paid') AND kind = 'begun' AND subject >= $1
			AND subject <= $2 AND NOT EXISTS (SELECT 1 FROM margin_records e WHERE e.app_id = margin_records.app_id
				AND e.subject = margin_records.subject AND e.kind <> 'begun') ORDER BY subject`, first, last)
		if open = append(open, list...); err != nil || len(open) >= limit {
			return foldPayouts(open[:min(len(open), limit)]), err
		}
	}
}

// GetPayout returns a payout of an app; its id is "" if there is none.
func GetPayout(ctx context.Context, q db.Queryer, appID, payoutID string) (p rules.Payout, err error) {
	list, err := readMarginRecords(ctx, q, `app_id = $1 AND subject = $2 AND kind <> 'disputed' ORDER BY n`, appID,
		payoutID)
	for _, r := range list {
		p.Fold(*r)
	}
	return p, err
}

// HasFoundSince reports whether a transfer of an app was found since one of its payouts began.
func HasFoundSince(ctx context.Context, q db.Queryer, appID, payoutID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM margin_records b JOIN margin_records f
		ON f.app_id = b.app_id AND f.n > b.n AND f.kind = 'found'
		WHERE b.app_id = $1 AND b.subject = $2 AND b.kind = 'begun')`, appID, payoutID).Scan(&yes)
	if err != nil {
		err = fmt.Errorf("ledger: payout %s: %w", payoutID, err)
	}
	return yes, err
}

// PaidPayouts returns the payouts that were paid since a time and have not failed after.
func PaidPayouts(ctx context.Context, q db.Queryer, sinceUS int64) ([]*rules.Payout, error) {
	list, err := readMarginRecords(ctx, q, `kind <> 'disputed' AND subject IN (SELECT p.subject FROM margin_records p
		WHERE p.kind IN ('paid', 'found') AND p.created_us >= $1 AND NOT EXISTS (SELECT 1 FROM margin_records f
			WHERE f.subject = p.subject AND f.kind = 'failed' AND f.app_id = p.app_id AND f.n > p.n))
		ORDER BY subject, n`, sinceUS)
	return foldPayouts(list), err
}

// LastPayoutUS returns when the newest payout of an app was begun; 0 = never.
func LastPayoutUS(ctx context.Context, q db.Queryer, appID string) (int64, error) {
	r, err := lastMarginRecord(ctx, q, appID, "begun")
	return r.CreatedUS, err
}

// findMargins reads the newest records of the apps that are named, the newest refunds of their calls, and the records
// of subjects, under the locks of the balances of the apps' developers.
func (r *rareRows) findMargins(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, k := range keys.Margins {
		last, err := lastMarginRecord(ctx, tx, k.AppID, "")
		if err != nil {
			return err
		}
		if last.N > 0 {
			r.margins = append(r.margins, &last)
		}
		if k.Subject == "" {
			continue
		}
		list, err := readMarginRecords(ctx, tx, `app_id = $1 AND subject = $2 ORDER BY n`, k.AppID, k.Subject)
		if err != nil {
			return err
		}
		r.margins = append(list, r.margins...) // those of a subject in their order
		switch refund, err := lastCallRefund(ctx, tx, k.AppID); {
		case err == nil:
			r.refunds = append(r.refunds, refund)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

// saveMargins appends what happened to the margins of apps, and says of which losses it follows.
func saveMargins(ctx context.Context, tx *db.Tx, s *rules.State) error {
	if err := saveLosses(ctx, tx, s); err != nil {
		return err
	}
	for _, r := range s.Changes.MarginRecords {
		begun := r.Kind == "begun"
		_, err := tx.ExecContext(ctx, `INSERT INTO margin_records (app_id, n, kind, subject, developer_id, amount_mc,
				taken_mc, matured_day, matured_mc, returned_mc, kept_mc, detail, created_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			r.AppID, r.N, r.Kind, r.Subject, r.DeveloperID, r.AmountMC, r.TakenMC, db.NullText(r.MaturedDay),
			sql.NullInt64{Int64: int64(r.MaturedMC), Valid: begun},
			sql.NullInt64{Int64: int64(r.ReturnedMC), Valid: begun}, r.KeptMC, db.NullText(r.Detail), r.CreatedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
