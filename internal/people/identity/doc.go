// Package identity holds how people get an account and keep it (spec §2, Account):
// sign-up, reset, changes of password and address, the second step of signing in,
// and the pages on which they see who can act for them.
//
// No answer tells whether an address has an account. Both cases do the same work:
// hash, write, answer; what differs stands in a mail. Links in mails work once,
// only while the credentials are those that they were sent under, and change
// nothing before a button is pressed: programs that check mail open all of them.
//
// A second step is a code of an authenticator app, a passkey or a recovery code; it
// is on while an account has one of the first two (Store.arm, Store.disarm). A
// passkey alone signs in, too: it is something that people have, and asks for
// something that they are or know.
//
// People may also sign in by one OpenID Connect provider. It vouches for its own
// logins and for the address of a new account, and for nothing that is here
// already: an account that exists is opened only by a login that its owner linked.
//
// Who changes how an account is signed in to shows once more who they are: by the
// password, or, where there is none, by a sign-in of the last ten minutes in this
// browser (accounts.Store.Reauthenticate).
package identity
