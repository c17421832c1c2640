// Package verdict holds the decisions of OAuth: which authorization requests are valid, whether a code or
// refresh token is accepted, and as whom an account may connect to an app (contract §4.1, §5;
// decisions 032–036). It does no I/O and takes the time as an argument.
package verdict
