package watch

import (
	"context"
	"database/sql"

	"github.com/purserhq/purser/internal/base/db"
)

// recorder is a database that shows the plan of each statement it is asked.
type recorder struct {
	*db.DB
	explain func(text string, args ...any)
}

func (r recorder) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	r.explain(text, args...)
	return r.DB.QueryContext(ctx, text, args...)
}

func (r recorder) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	r.explain(text, args...)
	return r.DB.QueryRowContext(ctx, text, args...)
}
