package identity

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// endingsWorld makes things of accounts and changes of them, without hashing a password.
type endingsWorld struct {
	*Store
	t        *testing.T
	sessions *accounts.Sessions
	at       time.Time
	n        int
}

func newEndingsWorld(t *testing.T, d *db.DB) *endingsWorld {
	t.Helper()
	w := &endingsWorld{t: t, at: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)}
	now := func() time.Time { return w.at }
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	party, err := NewPasskeyParty("http://purser.example", "http://purser.example")
	if err != nil {
		t.Fatal(err)
	}
	people := accounts.NewStore(d, now)
	w.sessions = accounts.NewSessions(people, false)
	w.Store = NewStore(d, people, &mail.Store{DB: d, Now: now}, box, now, "http://purser.example", party)
	return w
}

// inTx runs f in a transaction.
func (w *endingsWorld) inTx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *endingsWorld) account(unconfirmed bool) (a accounts.Account) {
	w.t.Helper()
	w.n++
	w.inTx(func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = w.accounts.Create(ctx, tx, accounts.NewAccount{
			Email:       fmt.Sprintf("person%d@example.com", w.n),
			Unconfirmed: unconfirmed,
		})
		return err
	})
	return a
}

func (w *endingsWorld) reload(a accounts.Account) accounts.Account {
	w.t.Helper()
	a, err := w.accounts.Get(w.t.Context(), a.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// link stores a mailed link and returns whether it still works.
func (w *endingsWorld) link(a accounts.Account, kind linkKind) (works func() bool) {
	w.t.Helper()
	token := fmt.Sprint("token ", w.n)
	w.inTx(func(ctx context.Context, tx *db.Tx) error {
		return insertLink(ctx, tx, id.Hash(token), link{
			kind:      kind,
			accountID: a.ID,
			email:     a.Email,
			epoch:     a.Epoch,
			expiresUS: w.at.Add(time.Hour).UnixMicro(),
		})
	})
	return func() bool { _, err := w.getValidLink(w.t.Context(), token, kind); return err == nil }
}

// session signs a in and returns whether the session goes on.
func (w *endingsWorld) session(a accounts.Account, proof accounts.Proof) (works func() bool) {
	w.t.Helper()
	cookie := ""
	start := w.sessions.With(func(rw http.ResponseWriter, r *http.Request) error {
		return w.sessions.Start(rw, r, a, proof)
	})
	answer := httptest.NewRecorder()
	if err := start(answer, httptest.NewRequestWithContext(w.t.Context(), "POST", "/", nil)); err != nil {
		w.t.Fatal(err)
	}
	cookie = answer.Header().Get("Set-Cookie")
	return func() (signedIn bool) {
		r := httptest.NewRequestWithContext(w.t.Context(), "GET", "/", nil)
		r.Header.Set("Cookie", regexp.MustCompile(`^[^;]*`).FindString(cookie))
		if err := w.sessions.With(func(_ http.ResponseWriter, r *http.Request) error {
			_, whole := accounts.CurrentAccount(r.Context())
			_, half := accounts.PendingSecondStep(r.Context())
			signedIn = whole || half
			return nil
		})(httptest.NewRecorder(), r); err != nil {
			w.t.Fatal(err)
		}
		return signedIn
	}
}

// makers makes each thing of this package for an account and returns whether it still works.
var makers = map[accounts.Thing]func(*endingsWorld, accounts.Account) (works func() bool){
	accounts.SignInSession: func(w *endingsWorld, a accounts.Account) func() bool {
		whole, half := w.session(a, accounts.ProofSingle), w.session(a, accounts.ProofPending)
		return func() bool {
			if whole() != half() {
				w.t.Error("a session goes on and one before its second step does not, or the other way round")
			}
			return whole()
		}
	},
	accounts.SignUpLink:  func(w *endingsWorld, a accounts.Account) func() bool { return w.link(a, signUpLink) },
	accounts.ResetLink:   func(w *endingsWorld, a accounts.Account) func() bool { return w.link(a, resetLink) },
	accounts.AddressLink: func(w *endingsWorld, a accounts.Account) func() bool { return w.link(a, newEmailLink) },
	accounts.FactorSetUp: func(w *endingsWorld, a accounts.Account) func() bool {
		sealed, err := w.box.Seal(make([]byte, 20), seedPlace(a.ID))
		if err != nil {
			w.t.Fatal(err)
		}
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return setTOTPSeed(ctx, tx, a.ID, totpSeed{
				sealed:    sealed,
				epoch:     a.Epoch,
				holder:    "browser",
				expiresUS: w.at.Add(setupTTL).UnixMicro(),
			})
		})
		return func() bool {
			_, err := twoStepStore{w.Store}.getSetupSecret(w.t.Context(), w.reload(a), "browser")
			return err == nil
		}
	},
	accounts.PasskeyRequest: func(w *endingsWorld, a accounts.Account) func() bool {
		holder := fmt.Sprint("browser ", w.n)
		err := upsertChallenge(w.t.Context(), w.db, holder, challenge{
			kind:      registerChallenge,
			accountID: a.ID,
			epoch:     a.Epoch,
			expiresUS: w.at.Add(challengeTTL).UnixMicro(),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		return func() bool {
			_, err := passkeyStore{w.Store}.getPendingChallenge(w.t.Context(), holder, registerChallenge, w.reload(a))
			return err == nil
		}
	},
	accounts.LoginRequest: func(w *endingsWorld, a accounts.Account) func() bool {
		asked, err := loginStore{w.Store}.beginAuthRequest(w.t.Context(), "browser", a, "/")
		if err != nil {
			w.t.Fatal(err)
		}
		return func() bool {
			kept, err := loginStore{w.Store}.endAuthRequest(w.t.Context(), asked)
			return err == nil && kept.isOf(w.reload(a))
		}
	},
}

// changes makes each change of an account.
var changes = map[accounts.Change]func(context.Context, *db.Tx, *endingsWorld, accounts.Account) error{
	accounts.Confirmation: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.accounts.ConfirmAddress(ctx, tx, a.ID, "")
	},
	accounts.PasswordChange: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.setPassword(ctx, tx, a.ID, "hash", accounts.Client{})
	},
	accounts.AddressChange: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.accounts.SetEmail(ctx, tx, a.ID, "new-"+a.Email)
	},
	accounts.AddressRequest: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.accounts.EndWith(ctx, tx, a.ID, accounts.AddressRequest)
	},
	accounts.SecondStepChange: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		_, err := w.enableTwoStep(ctx, tx, a, accounts.Client{})
		return err
	},
	accounts.LoginUnlink: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.accounts.EndWith(ctx, tx, a.ID, accounts.LoginUnlink)
	},
	accounts.SignOutEverywhere: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.SignOutAccount(ctx, tx, a.ID)
	},
	accounts.Suspension: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.SuspendAccount(ctx, tx, a, "abuse", 0)
	},
	accounts.Reinstatement: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.ReinstateAccount(ctx, tx, a)
	},
	accounts.Closing: func(ctx context.Context, tx *db.Tx, w *endingsWorld, a accounts.Account) error {
		return w.accounts.CloseAccount(ctx, tx, a.ID)
	},
}

// Each cell of the table of endings holds: a change ends what the table says, and nothing else.
func TestEndings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newEndingsWorld(t, d)
		for thing, mk := range makers {
			for change, mkChange := range changes {
				a := w.account(thing == accounts.SignUpLink)
				works := mk(w, a)
				w.inTx(func(ctx context.Context, tx *db.Tx) error {
					if _, err := accounts.Lock(ctx, tx, a.ID); err != nil {
						return err
					}
					return mkChange(ctx, tx, w, a)
				})
				if got := works(); got == accounts.Ends(thing, change) {
					t.Errorf("%s; then %s: goes on %v", thing, change, got)
				}
			}
		}
	})
	for _, c := range accounts.Changes {
		if changes[c] == nil {
			t.Errorf("no test makes the change: %s", c)
		}
	}
	elsewhere := []accounts.Thing{accounts.AppInvitation, accounts.AppApproval} // their packages test them
	for thing := range accounts.Endings {
		if makers[thing] == nil && !slices.Contains(elsewhere, thing) {
			t.Errorf("no test makes %s", thing)
		}
	}
}
