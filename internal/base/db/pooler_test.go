package db_test

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestOpenRefusesPooler opens a database by PgBouncer in transaction mode, as it comes and told to ignore the settings
// of sessions. Both are refused before anything is written.
func TestOpenRefusesPooler(t *testing.T) {
	t.Parallel()
	cluster := dbtest.StartCluster(t, false)
	for name, settings := range map[string][]string{
		"as it comes": nil,
		"ignoring": {
			"ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := db.Open(t.Context(), cluster.StartBouncer(t, cluster.NewURL(t), settings...))
			if err == nil {
				err = d.Close()
				t.Errorf("it was opened; closed: %v", err)
			} else if !strings.Contains(err.Error(), "PgBouncer") {
				t.Errorf("the error does not name the cause: %v", err)
			}
		})
	}
}
