package bank

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
)

// A Fault is what the network between the service and Stripe does to one request.
type Fault string

// The faults. After each but a refusal the service cannot know what Stripe did.
const (
	LoseRequest  Fault = "lose request" // Stripe never gets it
	LoseAnswer   Fault = "lose answer"  // Stripe does what is asked
	EndBefore    Fault = "end before"   // the service's process ends before Stripe gets it
	EndAfter     Fault = "end after"    // and after Stripe has done it
	HoldRequest  Fault = "hold request" // it waits before Stripe gets it
	HoldAnswer   Fault = "hold answer"  // its answer waits
	Unauthorized Fault = "unauthorized" // Stripe refuses the key
	Forbidden    Fault = "forbidden"    // Stripe refuses what the key may do
	TooMany      Fault = "too many"     // Stripe refuses the pace
	Conflict     Fault = "conflict"     // Stripe is busy with the same object
)

// faults are the faults by number.
var faults = []Fault{LoseRequest, LoseAnswer, EndBefore, EndAfter, HoldAnswer, HoldRequest, HoldAnswer, Unauthorized,
	Forbidden, TooMany, Conflict}

// Network stands between the service and Stripe.
type Network struct {
	Stripe http.Handler
	// Watch judges each request that changes something at Stripe, unless its act has waited: then what it says may be
	// old. nil = nobody watches.
	Watch func(path string, form url.Values) error

	mu      sync.Mutex
	fault   Fault // "" = none
	after   int   // how many requests pass before it, or NextChange
	current *act
}

// An act is something that the service does, which may wait for the network.
type act struct {
	end    context.CancelFunc // of the process that does it
	parked chan struct{}      // it waits
	goOn   chan struct{}
	done   chan struct{}
	hit    bool  // a fault was in it
	waited bool  // it has waited
	wrong  error // what Watch says of a request
	check  func() error
}

// NextChange lets a fault happen to the next request that changes something.
const NextChange = -1

// Arm lets a fault happen to the request after so many others, or to the NextChange. It returns the one that has not
// happened yet, and no longer will.
func (n *Network) Arm(f Fault, after int) (was Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, n.fault, n.after = n.fault, f, after
	return was
}

// begin makes a the act to which requests belong.
func (n *Network) begin(a *act) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = a
}

// take returns the fault of a request, and the act that it belongs to.
func (n *Network) take(r *http.Request) (f Fault, a *act) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault == "" || n.current == nil {
		return "", n.current
	}
	if n.after == NextChange && r.Method != http.MethodPost {
		return "", n.current
	} else if n.after > 0 {
		n.after--
		return "", n.current
	}
	f, n.fault = n.fault, ""
	n.current.hit = true
	return f, n.current
}

// statuses are the answers of refusals.
var statuses = map[Fault]int{
	Unauthorized: http.StatusUnauthorized, Forbidden: http.StatusForbidden, TooMany: http.StatusTooManyRequests,
	Conflict: http.StatusConflict, LoseRequest: http.StatusBadGateway, LoseAnswer: http.StatusBadGateway,
}

// ServeHTTP passes a request on to Stripe, unless a fault is due. What is lost is answered as by a proxy that has lost
// it, without a repetition by the client itself, which waits.
func (n *Network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, a := n.take(r)
	n.watch(r, a)
	switch f {
	case EndBefore:
		a.end()
		panic(http.ErrAbortHandler)
	case HoldRequest:
		a.wait()
	case Unauthorized, Forbidden, TooMany, Conflict, LoseRequest:
		refuse(w, statuses[f])
		return
	}
	answer := httptest.NewRecorder()
	n.Stripe.ServeHTTP(answer, r)
	switch f {
	case EndAfter:
		a.end()
		panic(http.ErrAbortHandler)
	case HoldAnswer:
		a.wait()
	case LoseAnswer:
		refuse(w, statuses[f])
		return
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may have left
}

// watch asks Watch about a request.
func (n *Network) watch(r *http.Request, a *act) {
	if n.Watch == nil || a == nil || a.waited || r.Method != http.MethodPost {
		return
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, failed := url.ParseQuery(string(body))
	if err = errors.Join(err, failed); err == nil {
		err = n.Watch(r.URL.Path, form)
	}
	a.wrong = errors.Join(a.wrong, err)
}

// wait lets an act wait until it goes on.
func (a *act) wait() {
	a.waited = true
	a.parked <- struct{}{}
	<-a.goOn
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Stripe-Should-Retry", "false")
	w.WriteHeader(status)
	kind := "api_error"
	if status < http.StatusInternalServerError {
		kind = "invalid_request_error" // as Stripe says of a wrong key, too
	}
	_, _ = fmt.Fprintf(w, `{"error":{"type":%q,"message":"a fault of the test"}}`, kind) // the client may have left
}
