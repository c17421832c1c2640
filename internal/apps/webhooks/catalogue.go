package webhooks

import (
	"encoding/json"
)

// descriptions say when each event of Types comes.
var descriptions = map[string]string{
	"connection.created":          "A user connected your app, and you have exchanged the code.",
	"connection.updated":          "The spend cap or the daily limit changed, or the cause that keeps it paused.",
	"connection.exhausted":        "The allocation is spent, by a call or because the user lowered the cap.",
	"connection.revoked":          "The connection ended: the user, your app or the service revoked it.",
	"connection.frozen":           "The connection is paused. Calls are refused until it is resumed.",
	"connection.resumed":          "A paused connection is active again.",
	"connection.risk_warning":     "The connection spends faster than usual. It will be paused if this goes on.",
	"connection.child_ended":      "A child of the connection ended. The event has what it spent and what came back.",
	"allocation_change.requested": "Your app requested a higher spend cap.",
	"allocation_change.approved":  "The user approved the request. The new cap applies.",
	"allocation_change.denied":    "The user denied the request. The cap stays as it was.",
	"app.spend_limit_reached":     "All users together have reached the spend limit of your app.",
	"app.suspended":               "The service has suspended your app. The event says why.",
	"request.settled":             "The charge of a call that was pending is final.",
	"request.refunded":            "A call was refunded to its user.",
	"realtime_session.ended":      "A voice session ended. The event has all its receipts.",
}

// A CatalogueEntry describes a type of event.
type CatalogueEntry struct {
	Type, Description string
	Object            string // the member of data that has the resource
	Sample            []byte // the body of a sample event, as it is delivered
}

// Describe returns the catalogue's entry of a type, with a sample for an app; 400 invalid_request for an unknown type.
func (s *Store) Describe(appID, kind string) (CatalogueEntry, error) {
	v, err := s.makeSampleEvent(appID, kind)
	if err != nil {
		return CatalogueEntry{}, err
	}
	e := storedEvent{Event: v, sandbox: true, test: true}
	m, err := e.makeMessage(s.links)
	if err != nil {
		return CatalogueEntry{}, err
	}
	c := CatalogueEntry{Type: kind, Description: descriptions[kind]}
	for member := range m.Data {
		c.Object = member
	}
	c.Sample, err = json.Marshal(m)
	return c, err
}
