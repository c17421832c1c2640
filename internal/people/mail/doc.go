// Package mail sends emails to users (contract §3, §6). An email is queued in the transaction that
// causes it, and any node sends it: a node leases an email, and after the node's death another one
// sends it again under the same Message-ID. So every email is sent at least once, or marked failed
// after a day.
//
// The table mails is the mail outbox. Test accounts never get email (contract §2): QueueMessage
// drops it.
package mail
