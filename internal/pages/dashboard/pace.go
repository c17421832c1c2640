package dashboard

import (
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
)

// What a pace is based on. Fewer days, or fewer days with spend, say nothing about the next ones.
const (
	paceDays      = 14 // the most full days that it looks back on
	minPaceDays   = 7  // full days since the first spend
	minSpentDays  = 3  // of these, days with spend
	maxShownLasts = 365
)

// estimatePace says how long owned lasts if it is spent as on the last full days, today excluded.
// Calls that free credit has paid count as spend, so the balance lasts rather longer. The Pace is
// zero if there is no basis for a figure.
func estimatePace(owned money.MC, spentByDay map[string]money.MC, today time.Time) ui.Pace {
	var spent money.MC
	var days, spentDays int64 // full days since the first spend, and those with spend
	for i := 1; i <= paceDays; i++ {
		if on := spentByDay[formatDay(today, -i)]; on > 0 {
			spent += on
			spentDays++
			days = int64(i)
		}
	}
	for day, on := range spentByDay {
		if on > 0 && day < formatDay(today, -paceDays) {
			days = paceDays // spend before the window: all of it counts
		}
	}
	if owned <= 0 || days < minPaceDays || spentDays < minSpentDays {
		return ui.Pace{}
	}
	lasts, err := money.MulDiv(int64(owned), days, int64(spent), money.Down)
	if err != nil { // more days than can be written
		lasts = maxShownLasts + 1
	}
	p := ui.Pace{Days: days, Daily: ui.Total(spent / money.MC(days))}
	if spent < money.MC(days)*money.Cent { // less than a cent a day has no figure with two decimals
		p.Daily = ui.Price(spent / money.MC(days))
	}
	p.Lasts = "about " + strconv.FormatInt(lasts, 10) + " days"
	switch {
	case lasts > maxShownLasts:
		p.Lasts = "more than a year"
	case lasts == 1:
		p.Lasts = "about a day"
	case lasts == 0:
		p.Lasts = "less than a day"
	}
	return p
}

// compareSpend says how the spend of a period differs from that of the period before; "" if there is nothing to
// compare.
func compareSpend(spent, before money.MC) string {
	switch compared := ui.CompareSpend(spent, before); compared {
	case "":
		return ""
	case ui.SameSpend:
		return "about as much as before"
	default:
		return compared + " than before"
	}
}
