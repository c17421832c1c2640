// Package timestamp writes points in time as the API shows them.
package timestamp

import "time"

// Format writes Unix microseconds as RFC 3339 in UTC, with milliseconds.
func Format(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000Z") }
