// Package mail sends mail to users (spec §3, §6: a review link, notices). A mail is
// queued in the transaction that causes it and sent by any node: whoever claims it
// has it for a lease, and one whose node died is sent again under the same
// Message-ID. So every mail is sent at least once, or marked failed after a day.
//
// The table mails is the queue and the outbox in one. Test accounts never get
// mail (spec §2, Account): Queue sees to that, for every sender.
package mail
