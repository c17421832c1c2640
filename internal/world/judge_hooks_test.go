package world

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// checkHooks compares what receivers got with what was due. Each delivery is signed, says the same each time, and comes
// to nobody who has unsubscribed. atEnd says that all have had the time to come: each event of an app's list is with
// each of its endpoints that were there.
func (w *world) checkHooks(atEnd bool) error {
	r := w.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	var wrong []error
	for n, e := range r.endpoints {
		if e.isVague {
			continue
		}
		bodies := map[string]string{}
		for _, d := range e.came {
			switch body, came := bodies[d.id]; {
			case d.at.Before(e.made): // before its app knew the secret
			case !e.deleted.IsZero() && d.at.After(e.deleted):
				wrong = append(wrong, fmt.Errorf("hooks: endpoint %d was deleted at %s, and got %s at %s", n, e.deleted,
					d.id, d.at))
			case !d.isSigned(e.secretsAt(d.at)):
				wrong = append(wrong, fmt.Errorf("hooks: %s to endpoint %d has a wrong signature", d.id, n))
			case came && body != d.body:
				wrong = append(wrong, fmt.Errorf("hooks: endpoint %d got %s with two texts: %s\n%s", n, d.id, body,
					d.body))
			}
			bodies[d.id] = d.body
		}
	}
	if !atEnd {
		return errors.Join(wrong...)
	}
	for _, app := range w.money.Apps {
		list, err := w.eventsOf(app.ID)
		if err != nil {
			return err
		}
		for n, e := range r.endpoints {
			if e.appID != app.ID || e.isVague || e.isDisabled || !e.deleted.IsZero() {
				continue
			}
			for _, event := range list {
				if event.at.After(e.since) && !e.taken(event.id) {
					wrong = append(wrong, fmt.Errorf("hooks: %s of %s did not come to endpoint %d, made at %s: %+v",
						event.id, event.at, n, e.made, e.cameOf(event.id)))
				} else if event.at.After(e.since) {
					w.api.drawn["an event that is due and has come"]++
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// isSigned is the check of docs/guide/webhooks.md.
func (d *delivery) isSigned(secrets []string) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(d.stamp + "." + d.body)) // it cannot fail
		return hmac.Equal([]byte(d.mark), []byte(hex.EncodeToString(mac.Sum(nil))))
	})
}

// An event is one of an app's list.
type event struct {
	id string
	at time.Time
}

// eventsOf reads an app's list of events. An app that has ended cannot.
func (w *world) eventsOf(appID string) (list []event, err error) {
	for after := "0"; ; {
		a, err := w.send(context.Background(), nil, "GET", "/v1/apps/"+appID+"/events?limit=100&after="+after, "",
			"Authorization", w.api.apps[appID].basic())
		if err != nil {
			return nil, err
		}
		if a.Status == http.StatusTooManyRequests {
			w.Pass(time.Minute)
			continue
		} else if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden {
			return nil, nil
		} else if a.Status != http.StatusOK {
			return nil, fmt.Errorf("hooks: the events of %s: %d %s", appID, a.Status, a.Body)
		}
		var page []struct {
			ID string    `json:"id"`
			At time.Time `json:"created_at"`
		}
		if err := json.Unmarshal([]byte(a.Body), &page); err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return list, nil
		}
		for _, e := range page {
			list = append(list, event{e.ID, e.At})
		}
		after = page[len(page)-1].ID
	}
}
