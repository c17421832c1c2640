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

// A StatusService is a service with the bars of its hours.
type StatusService struct {
	Name, Title string
	State       string
	Uptime      string // over all hours, in per cent; "" = not known
	Hours       []StatusHour
}

// A StatusHour is a bar. Its Level is good, warn, bad or none.
type StatusHour struct{ From, Level, Text string }

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

// An HourMark is the place of an hour in the drawing of a service.
type HourMark struct {
	StatusHour
	X int
}

// Marks returns the hours with their places, in units of which an hour is 4 wide.
func (s StatusService) Marks() (list []HourMark) {
	for i, h := range s.Hours {
		list = append(list, HourMark{h, 4 * i})
	}
	return list
}

// Width is the width of the drawing.
func (s StatusService) Width() int { return max(4*len(s.Hours)-1, 1) }

// BadHours lists the hours that were not good, newest first.
func (s StatusService) BadHours() (list []StatusHour) {
	for i := len(s.Hours) - 1; i >= 0; i-- {
		if h := s.Hours[i]; h.Level == "warn" || h.Level == "bad" {
			list = append(list, h)
		}
	}
	return list
}
