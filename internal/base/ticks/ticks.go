// Package ticks tells jobs when to run.
package ticks

import "time"

// A Source makes tickers. The zero value makes those of package time; tests that simulate days have another.
type Source func(interval time.Duration) (ticks <-chan time.Time, stop func())

// Every returns a channel that gets a value after each interval, unless the last one still waits there, and what ends
// it.
func (s Source) Every(interval time.Duration) (ticks <-chan time.Time, stop func()) {
	if s != nil {
		return s(interval)
	}
	t := time.NewTicker(interval)
	return t.C, t.Stop
}
