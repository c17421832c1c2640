package webhooks

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Endpoints that are deleted, and wait for the purge of their deliveries, are not read with those that are live.
func TestLiveEndpointsHaveAnIndex(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		for _, text := range []string{
			`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_x', 'x@example.com', '', 1)`,
			`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models,
				default_max_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, suspended, created_us)
			VALUES ('app_x', 'wac_x', 'Reader', 'c', '', '[]', '[]', 1, 'sandbox', 'mock', '[]', 0, 0, 1)`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
			INSERT INTO webhooks (id, app_id, url, events, status, sealed, created_us, deleted_us)
			SELECT 'whk_' || i, 'app_x', '', '[]', CASE WHEN i % 1000 = 0 THEN 'active' ELSE 'disabled' END, '', 1,
				CASE WHEN i % 1000 = 0 THEN NULL ELSE 1 END FROM n`,
			`ANALYZE`,
		} {
			if _, err := d.ExecContext(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
		for what, f := range map[string]func(q db.Queryer) error{
			"a page of an app's endpoints": func(q db.Queryer) error {
				list, err := listEndpoints(ctx, q, "app_x", "", MaxPerApp, "")
				if len(list) != 10 {
					t.Errorf("%d endpoints are live", len(list))
				}
				return err
			},
			"endpoints with due deliveries": func(q db.Queryer) error {
				_, err := listReadyEndpoints(ctx, q, 1)
				return err
			},
		} {
			if plan := dbtest.Explain(t, d, f); !strings.Contains(plan, "webhooks_live") {
				t.Errorf("%s: %s", what, plan)
			}
		}
	})
}
