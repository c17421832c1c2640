package ui

// A Moment is a time: When as RFC 3339, and Shown as people read it in UTC.
type Moment struct{ When, Shown string }

// Status is the public page about the state of the service.
type Status struct {
	State       string // operational, degraded or down
	Unreachable bool   // the database cannot be read: what the page shows is from memory
	At          Moment
	Groups      []StatusGroup
	Incidents   []StatusIncident
}

// A StatusGroup is a list of services under a heading.
type StatusGroup struct {
	Title    string
	Services []StatusService
}

// A StatusService is a service with the bars of its days.
type StatusService struct {
	Name, Title string
	State       string
	Uptime      string // over all days, in per cent; "" = not known
	Days        []StatusDay
}

// A StatusDay is a bar. Its Level is good, warn, bad or none.
type StatusDay struct{ Date, Level, Text string }

// A StatusIncident is what the operator tells about an incident.
type StatusIncident struct {
	Title, Text string
	Service     string
	Impact      string // none, degraded or down
	From        Moment
	Resolved    *Moment // nil = it lasts
}

func (Status) name() string       { return "status/status" }
func (Status) title() string      { return "Status" }
func (Status) formAction() string { return "" }

// Headline says in one sentence how the service is.
func (s Status) Headline() string {
	switch {
	case s.Unreachable:
		return "The database is unreachable"
	case s.State == "down":
		return "Major outage"
	case s.State == "degraded":
		return "Some services are degraded"
	}
	return "All systems operational"
}

// Tone is the color of a state.
func Tone(state string) string {
	switch state {
	case "operational":
		return "good"
	case "degraded":
		return "warn"
	case "down":
		return "bad"
	}
	return "plain"
}

// Tone is the color of the page's state.
func (s Status) Tone() string { return Tone(s.State) }

// Tone is the color of the service's state.
func (s StatusService) Tone() string { return Tone(s.State) }

// Word is the service's state as people read it.
func (s StatusService) Word() string { return stateWord(s.State) }

func stateWord(state string) string {
	switch state {
	case "operational":
		return "Operational"
	case "degraded":
		return "Degraded"
	case "down":
		return "Down"
	}
	return "No data"
}

// Word is the incident's impact as people read it.
func (i StatusIncident) Word() string {
	if i.Resolved != nil {
		return "Resolved"
	} else if i.Impact == "none" {
		return "Notice"
	}
	return stateWord(i.Impact)
}

// Tone is the color of the incident.
func (i StatusIncident) Tone() string {
	if i.Resolved != nil {
		return "good"
	}
	return Tone(i.Impact)
}

// A DayMark is the place of a day in the drawing of a service.
type DayMark struct {
	StatusDay
	X int
}

// Marks returns the days with their places, in units of which a day is 4 wide.
func (s StatusService) Marks() (list []DayMark) {
	for i, d := range s.Days {
		list = append(list, DayMark{d, 4 * i})
	}
	return list
}

// Width is the width of the drawing.
func (s StatusService) Width() int { return max(4*len(s.Days)-1, 1) }

// BadDays lists the days that were not good, newest first.
func (s StatusService) BadDays() (list []StatusDay) {
	for i := len(s.Days) - 1; i >= 0; i-- {
		if d := s.Days[i]; d.Level == "warn" || d.Level == "bad" {
			list = append(list, d)
		}
	}
	return list
}
