// Package oauth turns a user's consent into a connection and into the tokens that use it: the
// authorization code flow with PKCE, the consent screen, the token and revocation endpoints and
// discovery (contract §4.1, §5, §8; decisions 032–037). Package verdict holds the decisions;
// store.go runs each grant as one transaction.
package oauth
