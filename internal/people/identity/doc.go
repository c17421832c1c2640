// Package identity serves what an account needs to sign in (contract §2): sign-up, password reset,
// changes of password and email, two-step verification, passkeys, sign-in by an OpenID Connect
// provider, and the pages under Settings.
//
// No response reveals whether an email has an account. Both cases do the same work (hash, write,
// respond) and differ only in the email that is sent. A mailed link works once, only while the
// account's address and credentials are those it was sent under (accounts.Endings), and changes
// nothing before the user presses a button, because mail scanners open links.
//
// The second step is a code of an authenticator app, a passkey or a recovery code. It is on while
// an account has an authenticator app or a passkey (Store.enableTwoStep,
// Store.disableTwoStepAfterLast). A passkey alone also signs in: with user verification it is two
// factors.
//
// Users may also sign in by one OpenID Connect provider. It is trusted for its own logins and for
// the email of a new account only: an existing account is opened only by a login that its owner has
// linked.
//
// A change to how an account signs in needs re-authentication: the password or, for an account
// without one, credentials given within the last ten minutes for this session
// (accounts.Store.Reauthenticate, decision 118).
package identity
