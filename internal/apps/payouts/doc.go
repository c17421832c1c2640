// Package payouts pays developers the margin of their apps by Stripe Connect (decision 110): developers answer Stripe's
// questions once, and a job pays what has matured by transfers. The rule, and what was taken of margins, are the
// ledger's.
package payouts
