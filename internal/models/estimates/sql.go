package estimates

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/estimates/calibration"
)

// savedModel is a row of the table estimates.
type savedModel struct {
	name string
	calibration.Stat
}

// readModels reads the statistics of all models.
func readModels(ctx context.Context, q db.Queryer) ([]savedModel, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(m *savedModel) []any {
		return []any{&m.name, &m.Calls, &m.MeanPPM, &m.SampledCalls, &m.MaxPPM, &m.PriorPPM}
	}), `SELECT model, calls, mean_ppm, telling, max_ppm, prior_ppm FROM estimates`)
}

// writeModel saves the statistics of one model; the last node that saves wins.
func writeModel(ctx context.Context, tx *db.Tx, m ModelStats) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO estimates (model, calls, mean_ppm, telling, max_ppm, prior_ppm)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (model) DO UPDATE SET calls = excluded.calls, mean_ppm = excluded.mean_ppm,
			telling = excluded.telling, max_ppm = excluded.max_ppm, prior_ppm = excluded.prior_ppm`,
		m.Model, m.Calls, m.MeanPPM, m.SampledCalls, m.MaxPPM, m.PriorPPM)
	return err
}
