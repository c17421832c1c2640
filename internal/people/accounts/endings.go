package accounts

import (
	"context"
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
)

// A Change is a change of an account that ends something.
type Change string

// The changes. The transaction of a change calls Store.EndWith.
const (
	Confirmation      Change = "the address was confirmed at sign-up"
	PasswordChange    Change = "the password was set or changed"
	AddressChange     Change = "a new address was confirmed"
	AddressRequest    Change = "a change to another address was requested"
	SecondStepChange  Change = "two-step verification was turned on or off"
	LoginUnlink       Change = "a provider's login was unlinked"
	SignOutEverywhere Change = "an operator ended all sessions"
	Suspension        Change = "an operator suspended the account"
	Reinstatement     Change = "an operator reinstated the account"
	Closing           Change = "the account was closed"
)

// Changes lists all changes.
var Changes = []Change{Confirmation, PasswordChange, AddressChange, AddressRequest, SecondStepChange, LoginUnlink,
	SignOutEverywhere, Suspension, Reinstatement, Closing}

// A Thing is what an account has pending, or what was derived from it.
type Thing string

// The things. A mailed link and a step that waits for an answer are bound to Account.Epoch: they store it and are
// refused under another one.
const (
	SignInSession  Thing = "a session, also one before its second step"
	SignUpLink     Thing = "a link that confirms a sign-up"
	ResetLink      Thing = "a link that sets a password"
	AddressLink    Thing = "a link that confirms a new address"
	FactorSetUp    Thing = "a set-up of an authenticator app"
	PasskeyRequest Thing = "a challenge of a passkey, to add it or as a second step"
	LoginRequest   Thing = "a request to link a provider's login"
	AppInvitation  Thing = "an invitation into an app that the account has sent"
	AppApproval    Thing = "an approval of an app that the app has not exchanged yet"
)

// access lists the changes of how an account signs in, and of whether it may.
var access = []Change{Confirmation, PasswordChange, SecondStepChange, LoginUnlink, SignOutEverywhere, Suspension,
	Reinstatement, Closing}

// credentials is access with the address, to which links are mailed.
var credentials = append(slices.Clone(access), AddressChange)

// Endings is the one table of what ends with what (contract §2): nothing pending and nothing derived outlives what it
// was made under. A new kind of link, step or token gets a row here.
var Endings = map[Thing][]Change{
	SignInSession:  access,
	SignUpLink:     credentials,
	ResetLink:      credentials,
	AddressLink:    append(slices.Clone(credentials), AddressRequest),
	FactorSetUp:    credentials,
	PasskeyRequest: credentials,
	LoginRequest:   credentials,
	AppInvitation:  {Suspension, Closing},
	AppApproval:    credentials,
}

// Ends reports whether a change of an account ends a thing of it.
func Ends(t Thing, c Change) bool { return slices.Contains(Endings[t], c) }

// An ender ends all things of one kind of an account, in the transaction of the change.
type ender func(ctx context.Context, tx *db.Tx, accountID string) error

// OnEnd registers how things are ended that are not bound to an epoch. Call it before the first request.
func (s *Store) OnEnd(t Thing, end ender) { s.enders[t] = end }

// EndWith ends what ends with a change, in the transaction of the change, which has locked the account. Higher epochs
// end the sessions, links and steps that begin while the transaction runs, too.
func (s *Store) EndWith(ctx context.Context, tx *db.Tx, accountID string, c Change) error {
	if slices.Contains(credentials, c) {
		if err := raiseEpoch(ctx, tx, accountID, Ends(SignInSession, c)); err != nil {
			return err
		}
	}
	for _, t := range slices.Sorted(maps.Keys(s.enders)) { // the same order of locks in all transactions
		if !Ends(t, c) {
			continue
		}
		if err := s.enders[t](ctx, tx, accountID); err != nil {
			return err
		}
	}
	return nil
}
