// Package stripeapi makes the clients by which Stripe is asked, and sorts Stripe's answers (decision 126). No other
// package reads an HTTP status, a type or a code of an error of Stripe: it would take a refusal of our key for a
// refusal of a bank, or an unknown outcome for a refusal.
package stripeapi
