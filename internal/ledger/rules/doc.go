// Package rules decides every change of money. A Command is one change; Apply
// carries it out on a State, which is the rows that the command touches, or returns
// an error and leaves the State as it was (contract §2, Balance, holds and
// allocation).
//
// A command first checks everything and then changes everything: the comment
// "Nothing fails from here on." marks the place. Every change of a balance appends an
// Entry to the account's hash chain. The rules know the time only as an argument.
package rules
