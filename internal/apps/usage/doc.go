// Package usage sums the calls of an app over time, for its developer: from the daily totals of package store, and from
// the refusals. It also says for how many calls of an app's usual size an amount
// pays. It reads only.
package usage
