package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// eventsCmd reads the events of an app and sends them again.
type eventsCmd struct {
	List   eventsListCmd   `cmd:"" default:"withargs" help:"List the newest events, the newest last."`
	Resend eventsResendCmd `cmd:"" help:"Send an event again to the endpoints that it was for."`
}

// Help is shown by purser events --help.
func (eventsCmd) Help() string { return "Example:\n  purser events list --lines 20" }

type eventsListCmd struct {
	appFlags
	Lines int  `short:"n" default:"20" placeholder:"N" help:"How many, at most 100 (default: 20)."`
	JSON  bool `name:"json" help:"Print each event as webhooks get it, a line each."`
}

// Help is shown by purser events list --help.
func (eventsListCmd) Help() string {
	return appHelp + "\n\nExample:\n  purser events list --json --lines 1"
}

// Run lists the newest events.
func (c *eventsListCmd) Run(p *program) error {
	client, err := c.newClient(p)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	list, _, err := client.listEvents(ctx, "?limit="+strconv.Itoa(c.Lines))
	if err != nil {
		return wrapUsage(err)
	}
	for _, body := range slices.Backward(list) {
		line := string(body)
		if !c.JSON {
			var e struct {
				ID, Type     string
				CreatedAt    string `json:"created_at"`
				ConnectionID string `json:"connection_id"`
			}
			if err := json.Unmarshal(body, &e); err != nil {
				return fmt.Errorf("an event that is none: %w", err)
			}
			line = fmt.Sprintf("%s  %-28s %s  %s", e.CreatedAt, e.Type, e.ID, e.ConnectionID)
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

type eventsResendCmd struct {
	appFlags
	Event    string `arg:"" help:"The event, evt_…"`
	Endpoint string `placeholder:"ID" help:"Only to this webhook endpoint (default: to all that it was for)."`
	JSON     bool   `name:"json" help:"Print a line of JSON for each delivery."`
}

// Help is shown by purser events resend --help.
func (eventsResendCmd) Help() string {
	return "The event is sent again as it was, under its id. purser listen gets it too. It must be among the latest " +
		"50 deliveries of an endpoint.\n\n" + appHelp +
		"\n\nExample:\n  purser events resend evt_06f2k8m3q5t7w9y1b3d5f7h9j1"
}

// Run redelivers an event.
func (c *eventsResendCmd) Run(p *program) error {
	client, err := c.newClient(p)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	endpoints := []struct{ ID, URL string }{}
	if _, err := client.list(ctx, client.appPath+"/webhooks", "list of endpoints", &endpoints); err != nil {
		return err
	}
	sent := 0
	for _, endpoint := range endpoints {
		if c.Endpoint != "" && c.Endpoint != endpoint.ID {
			continue
		}
		resent, err := client.redeliver(ctx, endpoint.ID, c.Event)
		if err != nil {
			return err
		}
		for _, delivery := range resent {
			sent++
			if c.JSON {
				_, err = fmt.Fprintln(p.out, string(delivery))
			} else {
				_, err = fmt.Fprintf(p.out, "%s is sent again to %s\n", c.Event, endpoint.URL)
			}
			if err != nil {
				return err
			}
		}
	}
	if sent == 0 {
		return fmt.Errorf("%s is not among the latest 50 deliveries of an endpoint; purser events list shows the "+
			"events, and purser listen --after can post them again", c.Event)
	}
	return nil
}

// redeliver sends an event again to an endpoint, and returns the deliveries; none if the endpoint did not get it.
func (c *appClient) redeliver(ctx context.Context, endpointID, eventID string) (resent []json.RawMessage, err error) {
	at := c.appPath + "/webhooks/" + url.PathEscape(endpointID) + "/deliveries"
	var deliveries []struct {
		ID      string
		EventID string `json:"event_id"`
	}
	if _, err := c.list(ctx, at, "list of deliveries", &deliveries); err != nil {
		return nil, err
	}
	for _, d := range deliveries {
		if d.EventID != eventID {
			continue
		}
		text, _, err := c.callAPI(ctx, http.MethodPost, at+"/"+url.PathEscape(d.ID)+"/redeliver", nil)
		if err != nil {
			return resent, err
		}
		return append(resent, text), nil // the newest delivery of the event
	}
	return nil, nil
}
