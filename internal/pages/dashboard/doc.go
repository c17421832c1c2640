// Package dashboard serves the pages on which people look after their money and
// what they lent to apps: the overview, every movement with its receipt, their
// connections, the answer to an allocation request, the cap, and the review of a
// connection that is paused (contract §2, 2; §3; §7, increase_url and review_url). A GET
// never changes anything, and what belongs to somebody else is answered like what
// does not exist. Pages read the day's totals and bounded parts of the ledger, so
// that they stay fast however long the record gets.
package dashboard
