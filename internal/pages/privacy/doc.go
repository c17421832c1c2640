// Package privacy lets users export all their data and close their account (contract §2, Account). Other packages own
// what closing erases; each erases its part in the one transaction of Close. The ledger's rows
// stay, under the id of the closed account.
package privacy
