package server

import (
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/dev/sample"
)

// seed puts the sample data of a development node into s.
func seed(t *testing.T, s *Server) (sample.Data, error) {
	t.Helper()
	return sample.Seed(t.Context(), sample.Stores{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Accounts: s.Accounts,
		Apps:     s.Apps,
		Features: s.Features,
		Tokens:   s.Tokens,
	}, s.Config.DashboardURL+"/dev/callback", apps.Mock)
}
