package accounts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// signInLimits bound passwords, wrong ones above all. Where a stranger could use up a limit that the owner needs, an
// attempt from a network that the account has signed in from passes it, and is left to the limit of its pair.
type signInLimits struct {
	pairs    *web.Limiter // by network and email
	networks *web.Limiter // by network, for any email
	accounts *web.Limiter // by email, from any network
	correct  *web.Limiter // correct passwords, by account, so that it can't keep the hashes busy for everybody
}

func newSignInLimits(now func() time.Time) signInLimits {
	return signInLimits{
		pairs:    web.NewLimiter(time.Minute/10, 10, now),
		networks: web.NewLimiter(3*time.Second, 50, now),
		accounts: web.NewLimiter(5*time.Minute, 50, now),
		correct:  web.NewLimiter(2*time.Second, 30, now),
	}
}

// An attempt is a sign-in by a password under its limits.
type attempt struct {
	*Store
	from                   Client
	accountID              string // "" = unknown
	signedIn               bool
	pair, network, account string // keys of the limits
}

func (s *Store) newAttempt(from Client, email string, a Account, signedIn bool) attempt {
	t := attempt{
		Store:     s,
		from:      from,
		accountID: a.ID,
		signedIn:  signedIn,
		pair:      id.Hash(from.Network() + " " + email),
		network:   id.Hash(from.Network()),
		account:   id.Hash(email),
	}
	if a.ID != "" { // a new password makes what was guessed worthless
		t.account = id.Hash(a.ID + " " + strconv.FormatInt(a.Epoch, 10))
	}
	return t
}

// check returns 429 rate_limited over a limit.
func (t attempt) check(ctx context.Context) error {
	if wait, ok := t.limits.correct.Peek(t.accountID); t.accountID != "" && !ok {
		return rateLimited(wait, "Too many sign-ins. Wait a moment, then try again.")
	}
	if wait, ok := t.limits.pairs.Peek(t.pair); !ok {
		return rateLimited(wait, tooManyFailures)
	}
	waitNetwork, _ := t.limits.networks.Peek(t.network)
	waitAccount, _ := t.limits.accounts.Peek(t.account)
	wait := max(waitNetwork, waitAccount)
	if wait == 0 || t.signedIn {
		return nil
	}
	known, err := t.KnowsNetwork(ctx, t.db, t.accountID, t.from)
	if err != nil || known {
		return err
	}
	return rateLimited(wait, tooManyFailures)
}

const tooManyFailures = "Too many failed attempts. Wait a moment, then try again."

func rateLimited(wait time.Duration, text string) error {
	e := apierr.RateLimited.Errorf("%s", text)
	e.RetryAfter = wait
	return e
}

// succeed counts a correct password.
func (t attempt) succeed() { t.limits.correct.Allow(t.accountID) }

// fail counts a wrong password.
func (t attempt) fail() {
	t.limits.pairs.Allow(t.pair)
	t.limits.networks.Allow(t.network)
	if !t.signedIn {
		t.limits.accounts.Allow(t.account)
	}
}

// knownSignIns is how many of the last sign-ins KnowsNetwork looks at.
const knownSignIns = 20

// KnowsNetwork reports whether an account has signed in from the client's network lately. A limit that strangers may
// use up does not hold for such a client. An empty accountID stands for an unknown account.
func (s *Store) KnowsNetwork(ctx context.Context, q db.Queryer, accountID string, from Client) (bool, error) {
	list, err := listSignInAddresses(ctx, q, accountID, knownSignIns)
	if err != nil {
		return false, fmt.Errorf("accounts: sign-ins: %w", err)
	}
	return slices.ContainsFunc(list, func(address string) bool { return web.NetworkOf(address) == from.Network() }), nil
}

// ListWrongCodes returns the wrong codes of an account since a time, newest first, of all nodes. Those before its
// password was last set do not count: who entered them has no password any more.
func (s *Store) ListWrongCodes(ctx context.Context, q db.Queryer, accountID string, since time.Time) ([]Event, error) {
	list, err := listWrongCodes(ctx, q, accountID, id.Floor(eventPrefix, since))
	if err != nil {
		return nil, fmt.Errorf("accounts: wrong codes: %w", err)
	}
	return list, nil
}
