// Package people has no code. Its folder holds what belongs to an account: the account and its
// sessions, the ways to sign in, email, and top-ups. What an app may do with an account's money is
// in the folder apps.
package people
