package rules

import "time"

// Delivery is how the response of a call was delivered. It is kept with the call's ledger row, whose hash does not
// cover it. Zero values are not known.
type Delivery struct {
	FirstByteMS  int64  // from the hold to the first part of a streamed response, rounded up
	DurationMS   int64  // from the hold to the end of the response, rounded up
	FinishReason string // as the response gave it: stop, length, tool_calls …
}

// Milliseconds returns d in milliseconds, rounded up and at least 1: 0 means that a time is not known.
func Milliseconds(d time.Duration) int64 {
	return max(int64((d+time.Millisecond-1)/time.Millisecond), 1)
}

// DeliveryColumns are the columns of a Delivery.
const DeliveryColumns = `first_byte_ms, duration_ms, finish_reason`

// Columns returns the values in the order of DeliveryColumns.
func (d *Delivery) Columns() [3]Column {
	return [3]Column{knownMS(d.FirstByteMS), knownMS(d.DurationMS), OptionalText(d.FinishReason)}
}

// knownMS is null for 0.
func knownMS(ms int64) Column {
	if ms == 0 {
		return Column{}
	}
	return Integer(ms)
}
