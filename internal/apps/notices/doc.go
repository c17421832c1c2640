// Package notices tells users by mail what the ledger noticed about their apps:
// 50, 80 and 100 % of a cap used, a connection that was frozen (contract §3), an app
// that asks for more. The ledger writes a notice with the change that causes it;
// here it becomes a mail in one transaction, so that each is told once.
//
// People may stop all of it but what says that an app was paused, on a page, or by
// the one click that mail programs offer (RFC 8058).
package notices
