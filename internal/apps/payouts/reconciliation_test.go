package payouts_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// restored lets the world go on with the restore of a backup, with the same Stripe.
func (w *world) restored(file string, e db.Engine) {
	w.t.Helper()
	w.at = "sqlite:" + filepath.Join(w.t.TempDir(), "new.db")
	if e == db.Postgres {
		w.at = dbtest.URL(w.t, e)
	}
	if _, r, err := backup.Restore(w.t.Context(), file, w.at, nil); err != nil {
		w.t.Fatal(r, err)
	}
	w.open()
}

// reconcile runs the daily job.
func (w *world) reconcile() {
	w.t.Helper()
	for range 3 { // it may begin again
		if err := w.payments.Reconcile(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestPayoutAfterARestore pays a developer once although the restored database does not know of it: because the restore
// says so, or because Stripe is asked what the developer's account has.
func TestPayoutAfterARestore(t *testing.T) {
	t.Parallel()
	for _, marker := range []bool{true, false} {
		name := map[bool]string{true: "a restore", false: "a failover"}[marker]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, e := range []db.Engine{db.SQLite, db.Postgres} {
				t.Run(string(e), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, e)
					w.topUp()
					w.call("k1", 10)
					w.onboard()
					w.pass(3 * day)
					file := filepath.Join(t.TempDir(), "b.backup")
					if _, err := backup.Create(t.Context(), w.at, file, nil); err != nil {
						t.Fatal(err)
					}
					w.run()
					w.wants([]int64{1000}, "paid")
					w.restored(file, e)
					if marker {
						w.run()
						w.wants([]int64{1000})
						w.reconcile()
					} else {
						w.exec(`DELETE FROM settings WHERE name = 'restored'`)
						w.run()
					}
					w.wants([]int64{1000}, "paid")
					w.pass(8 * day)
					w.run()
					w.wants([]int64{1000}, "paid")
					w.reconcile()
					w.call("k2", 10) // what is earned after that is paid
					w.pass(10 * day)
					w.run()
					w.wants([]int64{1000, 1000}, "paid", "paid")
					w.verify()
				})
			}
		})
	}
}

// TestPayeeAfterARestore restores a database from a time at which no developer had an account at Stripe. What was paid
// since is booked, and not paid again to the account that the developer opens anew.
func TestPayeeAfterARestore(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			w.topUp()
			w.call("k1", 10)
			file := filepath.Join(t.TempDir(), "b.backup")
			if _, err := backup.Create(t.Context(), w.at, file, nil); err != nil {
				t.Fatal(err)
			}
			w.onboard()
			w.pass(3 * day)
			w.run()
			w.wants([]int64{1000}, "paid")
			w.restored(file, e)
			w.reconcile()
			w.wants([]int64{1000}, "paid")
			w.pass(10 * day)
			w.onboard()
			w.run()
			w.wants([]int64{1000}, "paid")
			w.verify()
		})
	}
}

// TestFoundTransferEndsAnOpenPayout gives back a payout that has begun when a transfer is found of the margin that it
// would pay, and takes a transfer that was reversed back.
func TestFoundTransferEndsAnOpenPayout(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.meter()
		w.steer("", "transfers", "status", "")
		w.transferLost("po_lost", 1000)
		w.run()
		w.wants([]int64{1000}, "paid", "failed")
		w.alarmed("payout_refused", 0)
		w.reconcile()
		w.run()
		w.wants([]int64{1000}, "paid", "failed")
		w.steer("", "transfers", "status", "reversed")
		w.run()
		w.wants([]int64{1000}, "failed", "failed")
		w.reconcile() // one that was reversed is not found again
		w.wants([]int64{1000}, "failed", "failed")
	})
}

// TestPayoutsSwitchedOff finishes the payout that has begun, and begins no other.
func TestPayoutsSwitchedOff(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		w.pass(3 * day)
		refuse := true
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if refuse && r.Method == http.MethodPost {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			return refuse && r.Method == http.MethodPost
		})
		w.run()
		w.wants(nil, "begun")
		w.Config.Every, refuse = 0, false
		w.run()
		w.wants([]int64{1000}, "paid")
		w.call("k2", 10)
		w.pass(10 * day)
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}
