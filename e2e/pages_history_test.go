package e2e

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestLooksWithHistory looks at pages as they are after two weeks of use: full of rows, charts and states.
func TestLooksWithHistory(t *testing.T) {
	testkit.Long(t, "pictures of many pages")
	t.Parallel()
	p := servertest.Start(t, "", "--empty=false")
	app := "/developer/apps/" + p.App.ID
	for _, visitor := range []struct {
		name  string
		login *sample.Login
		pages map[string]string // by the name of their picture
	}{
		{"visitor", nil, map[string]string{"status": "/status", "front": "/"}},
		{"user", &p.TestAccount, map[string]string{
			"overview":    "/dashboard",
			"hours":       "/dashboard?days=1&compare=1",
			"connections": "/connections",
			"activity":    "/activity",
			"search":      "/search?q=a",
		}},
		{"developer", &p.Developer, map[string]string{
			"apps":       "/developer",
			"payouts":    "/developer/payouts",
			"app":        app,
			"analytics":  app + "/analytics",
			"hours":      app + "/analytics?days=1&compare=1",
			"usage":      app + "/analytics?tab=usage",
			"users":      app + "/analytics?tab=users",
			"errors":     app + "/analytics?tab=errors",
			"latency":    app + "/analytics?tab=latency",
			"requests":   app + "/requests",
			"playground": app + "/playground",
			"webhooks":   app + "/webhooks",
			"events":     app + "/webhooks/events",
			"members":    app + "/members",
			"invite":     app + "/members/invite",
			"leave":      app + "/leave",
			"settings":   app + "/settings",
		}},
		{"operator", &p.Operator, map[string]string{
			"overview":  "/operator",
			"day":       "/operator?day=" + time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly),
			"providers": "/operator/providers",
			"incidents": "/operator/incidents",
			"prices":    "/operator/prices",
			"compare":   "/operator/prices/compare",
			"account":   "/operator/accounts?q=" + p.TestAccount.Email,
		}},
	} {
		t.Run(visitor.name, func(t *testing.T) {
			t.Parallel()
			b := newTab(t, p.BaseURL)
			if visitor.login != nil {
				b.open(p.DashboardURL + "/dashboard")
				b.signIn(visitor.login.Email, visitor.login.Password)
			}
			for name, path := range visitor.pages {
				if status := b.open(p.DashboardURL + path); status != 200 {
					t.Errorf("%s: %d", path, status)
				}
				b.look("history-" + visitor.name + "-" + name)
			}
		})
	}
}
