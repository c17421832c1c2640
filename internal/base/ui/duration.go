package ui

import (
	"fmt"
	"time"
)

// Duration writes a duration as people say it: in whole days, hours or minutes, the largest of which it has two at
// least, or one if that is all of it. 72h is "3 days", 90m "90 minutes", 36h "36 hours".
func Duration(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		n := (d + unit.length/2) / unit.length
		if n == 1 && d%unit.length == 0 {
			return "1 " + unit.name
		}
		if n >= 2 && (d%unit.length == 0 || d >= 3*unit.length) {
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return "less than two minutes"
}
