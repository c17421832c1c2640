// Package summary explains a month's spend: it compares the month up to now with the same days of the month before,
// divides the difference exactly among its causes, and writes the largest of them in plain sentences (decision 104). It
// is pure: the caller reads the daily totals.
package summary
