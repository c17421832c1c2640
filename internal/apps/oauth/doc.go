// Package oauth turns a person's consent into a connection and into the tokens
// that use it: the authorization code flow with PKCE, the consent page, the token
// and revocation endpoints and their discovery (spec §4.1, §5, §8; decisions,
// OAuth). The rules stand in authorize.go, consent.go and verdict.go and touch
// nothing; store.go runs each grant as one transaction.
package oauth
