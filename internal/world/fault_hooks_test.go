package world

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// A receiver is the host of apps that gets their webhooks, and keeps a book of what came.
type receiver struct {
	clock *wallClock
	waits func(context.Context, time.Duration)

	mu        sync.Mutex
	endpoints []*endpoint
	faults    []receiverFault // of the next deliveries
	isActing  bool            // the subscriber sends a request
}

// An endpoint is one that an app has made, as far as the app knows of it.
type endpoint struct {
	id, appID  string
	made       time.Time // when its app got its secret
	since      time.Time // the same by the clock that the product reads
	deleted    time.Time // zero = it is not
	isDisabled bool
	secrets    []secret
	isVague    bool // an answer about it was lost: nothing is asked of it
	came       []delivery
}

// A secret of an endpoint is used from a time on.
type secret struct {
	text string
	from time.Time
}

// A delivery is one that came.
type delivery struct {
	at          time.Time
	id          string
	body        string
	stamp, mark string // of the signature
	isTaken     bool   // it was answered by 2xx, and the answer went out
}

// A receiverFault is what a receiver does with a delivery.
type receiverFault string

const (
	takes       receiverFault = "takes"
	fails       receiverFault = "fails"        // by 500
	moves       receiverFault = "moves"        // by a redirect
	takesLate   receiverFault = "takes late"   // within the time that it has
	isSlow      receiverFault = "is slow"      // for longer
	losesAnswer receiverFault = "loses answer" // after it has taken it
)

var receiverFaults = []receiverFault{fails, losesAnswer, isSlow, moves, takesLate, takes}

// arm lets faults happen to the next deliveries.
func (r *receiver) arm(faults []receiverFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = faults
}

// watch notes that somebody else may have changed an endpoint: nothing is asked of it any more.
func (r *receiver) watch(method, path, body string) {
	for _, e := range r.endpoints {
		if !r.isActing && method != http.MethodGet && e.id != "" && strings.Contains(path+body, e.id) {
			e.isVague = true
		}
	}
}

// ServeHTTP takes a delivery at the path /N of the N-th endpoint.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var n int
	_, err = fmt.Sscanf(q.URL.Path, "/%d", &n)
	r.mu.Lock()
	if err != nil || n >= len(r.endpoints) {
		r.mu.Unlock()
		w.WriteHeader(http.StatusGone)
		return
	}
	e, fault := r.endpoints[n], takes
	if len(r.faults) > 0 {
		fault, r.faults = r.faults[0], r.faults[1:]
	}
	stamp, mark, _ := strings.Cut(strings.TrimPrefix(q.Header.Get("Svc-Signature"), "t="), ",v1=")
	e.came = append(e.came, delivery{r.clock.steady(), q.Header.Get("Webhook-Id"), string(body), stamp, mark,
		fault == takes || fault == takesLate})
	r.mu.Unlock()
	switch fault {
	case fails:
		w.WriteHeader(http.StatusInternalServerError)
	case moves:
		w.Header().Set("Location", "/0")
		w.WriteHeader(http.StatusTemporaryRedirect)
	case takesLate:
		r.waits(q.Context(), 10*time.Second)
	case isSlow:
		r.waits(q.Context(), time.Minute)
		panic(http.ErrAbortHandler) // who asked has left
	case losesAnswer:
		panic(http.ErrAbortHandler)
	}
}

// subscriber is the actor of apps that subscribe to webhooks.
type subscriber struct {
	*world
}

// maxEndpoints bounds those of a history.
const maxEndpoints = 6

// acts makes an endpoint, changes one, or lets receivers have faults.
func (u *subscriber) acts(s bank.Step) error {
	r := u.receiver
	switch {
	case s.A%3 == 0:
		var faults []receiverFault
		for i := range 1 + s.C%5 {
			faults = append(faults, receiverFaults[(s.B+i*s.C)%len(receiverFaults)])
		}
		r.arm(faults)
		return nil
	case len(r.endpoints) == 0 || s.A%5 < 2 && len(r.endpoints) < maxEndpoints:
		return u.subscribe(u.money.Apps[s.B%len(u.money.Apps)].ID)
	}
	e := r.endpoints[s.B%len(r.endpoints)]
	if e.isVague || !e.deleted.IsZero() {
		return nil
	}
	read := func(text []byte) error { return e.read(text, u.clock.steady()) }
	switch s.C % 6 {
	case 0:
		return u.change(e, "DELETE", "", "", func([]byte) error { e.deleted = u.clock.steady(); return nil })
	case 1:
		return u.change(e, "POST", "/rotate-secret", "", read)
	case 2:
		return u.change(e, "PATCH", "", `{"status":"disabled"}`, func([]byte) error { e.isDisabled = true; return nil })
	case 3:
		return u.change(e, "PATCH", "", `{"status":"active"}`, func([]byte) error { e.isDisabled = false; return nil })
	case 4:
		return u.change(e, "POST", "/test", `{"type":"connection.created"}`, nil)
	}
	return u.change(e, "POST", "/recover", `{"since":"2026-11-02T00:00:00Z"}`, nil)
}

func (u *subscriber) subscribe(appID string) error {
	e := &endpoint{appID: appID, isVague: true}
	u.receiver.mu.Lock()
	u.receiver.endpoints = append(u.receiver.endpoints, e)
	n := len(u.receiver.endpoints) - 1
	u.receiver.mu.Unlock()
	body := fmt.Sprintf(`{"url":"http://%s/%d"}`, u.loopback, n)
	return u.change(e, "POST", "", body, func(text []byte) error {
		e.isVague, e.made, e.since = false, u.clock.steady(), u.clock.Now()
		return e.read(text, e.made)
	})
}

// read reads an endpoint from an answer that has its secret.
func (e *endpoint) read(text []byte, at time.Time) error {
	var answer struct{ ID, Secret string }
	err := json.Unmarshal(text, &answer)
	e.id = answer.ID
	e.secrets = append(e.secrets, secret{answer.Secret, at})
	return err
}

// change sends a request about an endpoint. Until its answer has come, nothing is known of the endpoint. An app that
// has ended is refused.
func (u *subscriber) change(e *endpoint, method, what, body string, then func([]byte) error) error {
	path := "/v1/apps/" + e.appID + "/webhooks"
	if e.id != "" {
		path += "/" + e.id
	}
	u.receiver.isActing = true
	defer func() { u.receiver.isActing = false }()
	was := e.isVague
	e.isVague = e.isVague || then != nil
	a, err := u.send(context.Background(), nil, method, path+what, body, "Content-Type", "application/json",
		"Authorization", u.api.apps[e.appID].basic())
	u.api.drawn[fmt.Sprintf("%s webhooks%s: %d", method, what, a.Status)]++
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case isOurFault(a.Status):
		return fmt.Errorf("%s %s is answered by %d: %s", method, path, a.Status, a.Body)
	case a.Status < 300 && then != nil:
		e.isVague = was
		return then([]byte(a.Body))
	case a.Status < 500:
		e.isVague = was
	}
	return nil
}

// taken reports whether an endpoint has taken a delivery of an event, or has refused it too often.
func (e *endpoint) taken(id string) bool {
	tries := 0
	for _, d := range e.came {
		if d.id == id {
			if tries++; d.isTaken || tries > 6 {
				return true
			}
		}
	}
	return false
}

// cameOf returns when deliveries of an event came.
func (e *endpoint) cameOf(id string) (list []time.Time) {
	for _, d := range e.came {
		if d.id == id {
			list = append(list, d.at)
		}
	}
	return list
}

// secretsAt returns the secrets that a delivery at a time may be signed with.
func (e *endpoint) secretsAt(at time.Time) []string {
	var list []string
	for i, s := range e.secrets {
		if i+1 == len(e.secrets) || !e.secrets[i+1].from.Before(at) {
			list = append(list, s.text)
		}
	}
	return list
}
