package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestCausesOfAnOlderNode is F-125: a node of before the causes pauses and resumes a connection without them.
func TestCausesOfAnOlderNode(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := NewWriter(d, d.Now)
		do := func(older string, c rules.Command) (r rules.Result, err error) {
			err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if older != "" {
					if _, err := tx.ExecContext(ctx, older); err != nil {
						return err
					}
				}
				r, err = w.DoTx(ctx, tx, c)
				return err
			})
			return r, err
		}
		shows := func(want rules.FreezeCause, older string, c rules.Command) {
			t.Helper()
			if r, err := do(older, c); err != nil || r.Connection.FrozenBy != want {
				t.Fatalf("%+v: by %q, %v, want %q", c, r.Connection.FrozenBy, err, want)
			}
		}
		paused := `UPDATE connections SET status = 'frozen', frozen_by = 'operator', frozen_reason = 'abuse'`
		resumed := `UPDATE connections SET status = 'active', frozen_by = '', frozen_reason = ''`
		if _, err := do("", rules.TopUp{AccountID: "A", AmountMC: 100}); err != nil {
			t.Fatal(err)
		}
		shows("", "", rules.Connect{ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 50})
		if _, err := do(paused, rules.Resume{ConnectionID: "C"}); err == nil {
			t.Error("its user has resumed what the operator paused")
		}
		shows("", paused, rules.Resume{ConnectionID: "C", By: rules.FrozenByOperator})

		shows(rules.FrozenByOperator, "", rules.Freeze{ConnectionID: "C", By: rules.FrozenByOperator, Subject: "o1"})
		shows(rules.FrozenByUser, resumed, rules.Freeze{ConnectionID: "C", By: rules.FrozenByUser})
		shows("", "", rules.Resume{ConnectionID: "C"})
		if left, err := ListFreezes(t.Context(), d, "C"); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestResumeEndsWhatWasShown: who resumes names the causes that a page showed. A colleague's pause, a dispute and a
// pause by the risk layer that came after it stay.
func TestResumeEndsWhatWasShown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := d.Now()
		w := NewWriter(d, func() time.Time { now = now.Add(time.Millisecond); return now })
		do := func(c rules.Command) rules.Connection {
			t.Helper()
			return must(t)(w.Do(t.Context(), c)).Connection
		}
		shown := func() []string {
			t.Helper()
			causes, err := ListFreezes(t.Context(), d, "C")
			if err != nil {
				t.Fatal(err)
			}
			return rules.SplitKeys(rules.JoinKeys(causes))
		}
		resume := rules.Resume{ConnectionID: "C", By: rules.FrozenByOperator, DespiteDispute: true}
		do(rules.OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: 100})
		do(rules.MarkPaymentPaid{PaymentID: "top_1", PaymentIntent: "pi_1"})
		do(rules.SettlePayment{PaymentID: "top_1"})
		do(rules.Connect{ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 50})
		do(rules.Freeze{ConnectionID: "C", By: rules.FrozenByOperator, Subject: "o1"})
		resume.Shown = shown()
		do(rules.Freeze{ConnectionID: "C", By: rules.FrozenByOperator, Subject: "o2", Reason: "abuse"})
		do(rules.DisputePayment{PaymentID: "top_1", DisputeID: "du_1"})
		if c := do(resume); c.Status != rules.Frozen || c.FrozenReason != "abuse" {
			t.Errorf("after a resume of the first pause: %+v", c)
		}
		if _, err := w.Do(t.Context(), resume); err == nil || !strings.Contains(err.Error(), "Look again") {
			t.Errorf("a resume of what has ended: %v", err)
		}
		resume.Shown = shown()
		if c := do(resume); c.Status != rules.Active {
			t.Errorf("after a resume of all that was shown: %+v", c)
		}
		do(rules.Freeze{ConnectionID: "C", By: rules.FrozenByRisk})
		user := rules.Resume{ConnectionID: "C", By: rules.FrozenByUser, Shown: shown()}
		do(resumeAll())
		do(rules.Freeze{ConnectionID: "C", By: rules.FrozenByRisk})
		if _, err := w.Do(t.Context(), user); err == nil {
			t.Error("a later pause by the risk layer was resumed unseen")
		}
		if c := do(resumeAll()); c.Status != rules.Active {
			t.Errorf("after a resume without a page: %+v", c)
		}
	})
}

// resumeAll is a resume by a command, which names no causes.
func resumeAll() rules.Resume { return rules.Resume{ConnectionID: "C", By: rules.FrozenByOperator} }
