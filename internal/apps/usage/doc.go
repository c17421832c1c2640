// Package usage sums the calls of an app over time, for its developer: from the daily totals of package store, and from
// the refusals. It reads only.
package usage
