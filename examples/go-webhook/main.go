// Command go-webhook receives the events of an app, verifies them, and prints each one once.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	purser "github.com/purserhq/purser/sdk/go"
)

func main() {
	if err := loadSettings(); err != nil {
		log.Fatal(err)
	}
	// Two secrets, separated by a comma, while you rotate.
	secrets := strings.Split(os.Getenv("WEBHOOK_SECRET"), ",")
	if secrets[0] == "" {
		log.Fatal("WEBHOOK_SECRET: required; creating the webhook endpoint shows it")
	}
	receiver := &receiver{
		secrets: secrets,
		out:     os.Stdout,
		seen:    map[string]bool{},
	}
	http.Handle("POST /webhooks", receiver)
	server := &http.Server{Addr: "localhost:" + setting("PORT", "3000"), ReadHeaderTimeout: 10 * time.Second}
	log.Printf("Listening at http://%s/webhooks", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// A receiver handles deliveries. A real one keeps what it has seen in its database.
type receiver struct {
	secrets []string
	out     io.Writer

	mu   sync.Mutex
	seen map[string]bool // ids of events
}

const largestBody = 1 << 20

// ServeHTTP verifies a delivery and answers before it does the work, because deliveries have 15 seconds.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, largestBody))
	if err != nil {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	event, err := purser.VerifyWebhook(body, request.Header, r.secrets...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.handle(event)
	w.WriteHeader(http.StatusNoContent)
}

// handle prints an event, unless it came before. Events may come out of order: who acts on one asks for its connection.
func (r *receiver) handle(event purser.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[event.ID] {
		return
	}
	r.seen[event.ID] = true
	fmt.Fprintf(r.out, "%s %s %s\n", event.ID, event.Type, describe(event))
}

// describe says what an event means to the app.
func describe(event purser.Event) string {
	data := event.Data
	switch {
	case event.Type == purser.EventConnectionRevoked:
		return "forget the tokens of " + event.ConnectionID
	case event.Type == purser.EventConnectionFrozen:
		return "show the user " + data.ReviewURL
	case data.Connection != nil:
		return data.Connection.AllocationRemainingDisplay + " left of " + data.Connection.AllocationDisplay
	case data.AllocationRequest != nil:
		return data.AllocationRequest.Status + " " + data.AllocationRequest.TargetAllocationDisplay
	case data.Request != nil:
		return data.Request.Explanation
	case data.App != nil:
		return "all users together have spent " + data.App.LimitDisplay
	}
	return event.ConnectionID
}
