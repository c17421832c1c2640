// Package notices emails users about their connections: when 50, 80 and 100 % of a cap are used, when a connection is
// frozen (contract §3), and when an app requests a higher allocation. The ledger writes a notice in the transaction of
// the change. This package turns it into an email in one transaction, so that each notice is sent one time.
//
// It emails the users of a live app when the app's margin has risen (decision 125).
//
// Users can turn off all notices except those about frozen connections, on a page or with the one-click unsubscribe of
// email programs (RFC 8058).
package notices
