package inference

import (
	"fmt"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// TestBrokenHoldDoesNotBlockTheSweep leaves three holds of a dead node, one of which cannot
// be ended because its terms are broken: the others end.
func TestBrokenHoldDoesNotBlockTheSweep(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{})
	b.Recorders = nil
	var calls []rules.Call
	for i := range 3 {
		c := rules.Call{
			ConnectionID: b.who.ConnectionID,
			AccountID:    b.who.AccountID,
			AppID:        b.who.App.ID,
			Key:          id.NewUUID(),
			RequestID:    id.New(id.Request, b.now),
			Fingerprint:  "print",
			Model:        testModel,
			Terms:        "{}",
			HoldMC:       10,
		}
		b.do(rules.Hold{Call: c, NodeID: "dead", Claim: fmt.Sprint(i)})
		calls = append(calls, c)
	}
	b.do(rules.TopUp{AccountID: b.who.AccountID, AmountMC: 1}) // saves the holds
	for _, text := range []string{
		`UPDATE holds SET terms = 'broken' WHERE request_id = $1`,
		`INSERT INTO checkpoints (request_id, attempt, n, body) VALUES ($1, 1, 0, '` + delta("Hello") + `')`,
	} {
		if _, err := b.DB.ExecContext(t.Context(), text, calls[0].RequestID); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := b.EndLostHolds(t.Context())
	if err == nil || ended != 2 {
		t.Errorf("%d holds ended, %v", ended, err)
	}
	var open string
	if err := b.DB.QueryRowContext(t.Context(),
		`SELECT request_id FROM holds WHERE state = 'open'`).Scan(&open); err != nil || open != calls[0].RequestID {
		t.Errorf("the hold of %s is open, %v", open, err)
	}
}
