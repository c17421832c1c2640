// Package dashboard serves the user's pages: the overview, the activity with a receipt for each
// ledger row, connections, allocation requests, spend caps, and the review of a paused connection
// (contract §2, 2; §3; §7, increase_url and review_url). A GET changes nothing. What belongs to
// another account is 404, like what does not exist. Pages read daily totals and bounded parts of
// the ledger, so they stay fast as the ledger grows.
package dashboard
