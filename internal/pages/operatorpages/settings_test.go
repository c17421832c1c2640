package operatorpages_test

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSettings changes the fee for later, sees it coming and in the audit log, and withdraws it.
func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		b.Get("/operator/settings").Want(t, 200, "In force since the first start", "fee_rate", "0.05",
			"Service fee as a share", "The settings of the first node").Lacks(t, "own settings differ", "Withdraw")
		for _, wrong := range [][]string{
			{"fee_rate", "1.5", "fee_rate"}, {"risk.warn", "0", "risk.warn"}, {"sandbox_day", "much", "sandbox_day"},
			{"from", "tomorrow", "from"}, {"from", "2026-11-21 09:00", "from"},
		} {
			form := settingsForm("fee_rate", "0.04", wrong[0], wrong[1])
			b.Post("/operator/settings", form).Want(t, 422, `href="#`+wrong[2]+`"`)
		}
		b.Post("/operator/settings", settingsForm("from", "2027-01-01 00:00")).Want(t, 422, "Nothing would change")
		b.Post("/operator/settings", act("change", "")).Want(t, 422, "reason")
		later := settingsForm("fee_rate", "0.04", "risk.warn", "5", "sandbox_day", "2.50", "from", "2027-01-01 00:00")
		b.Post("/operator/settings", later).Leads(t, "/operator/settings?done=settings")
		page := b.Get("/operator/settings?done=settings").Want(t, 200, "Saved.", "0.05 → 0.04", "→ 2.5<", "Withdraw",
			"1\u00a0Jan\u00a02027").Lacks(t, "risk.warn: 5 →")
		path := "/operator/settings/" + between(page.Body, `action="/operator/settings/`, `"`)
		b.Get("/operator/log?action=settings").Want(t, 200, "operator@example.com", "settings")
		w.signedIn("viewer").Get("/operator/settings").Want(t, 200, "0.05 → 0.04").
			Lacks(t, `<form method="post" action="/operator`)
		b.Post(path, act("withdraw", "")).Want(t, 422, "reason")
		b.Post(path, act("withdraw", "Announced too late.")).Leads(t, "/operator/settings?done=settings-withdrawn")
		b.Post(path, act("withdraw", "Again.")).Want(t, 404)
		b.Get("/operator/settings").Want(t, 200).Lacks(t, "0.04", "Withdraw")
	})
}

// TestNodesThatDiffer shows in which settings the nodes differ, and nothing while they do not.
func TestNodesThatDiffer(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres) // a file has one node
	w := newWorld(t, d)
	b := w.signedIn("viewer")
	b.Get("/operator/settings").Want(t, 200).Lacks(t, "Nodes differ")
	var nodes []*store.Node
	for _, nodeID := range []string{"node_a", "node_b"} {
		n, err := store.JoinNode(t.Context(), d, nodeID, time.Minute, d.Now)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.SetSettings(map[string]string{"base_url": n.ID, "oidc": "the same"}); err != nil {
			t.Fatal(err)
		}
		if err := n.RenewLease(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.Get("/operator/settings").Want(t, 200, "Nodes differ", "base_url", "node_a / node_b").Lacks(t, "oidc")
}
