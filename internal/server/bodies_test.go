package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// sampledBodies is one of how many filled bodies make test plays. Routes that share a parser have different ones.
const sampledBodies = 4

// TestFilledBodiesTakeLittleMemory: each array and map of each request body of openapi.yaml, filled with its smallest
// elements, makes the node allocate at most 8 times the largest body of the route, what is garbage again included.
// It is no parallel test, as it counts all that the process allocates.
func TestFilledBodiesTakeLittleMemory(t *testing.T) {
	s, err := Open(t.Context(), config.Config{
		Database:       dbtest.URL(t, db.SQLite),
		Lease:          time.Minute,
		EnvelopeKeys:   [][]byte{make([]byte, 32)},
		OperatorTokens: []string{strings.Repeat("x", 32)},
		Policy:         policy.Default,
		DashboardURL:   "http://localhost:8080",
	}, slog.New(slog.DiscardHandler), true)
	if err != nil {
		t.Fatal(err)
	}
	s.Mount(ui.Home{})
	err = s.RunOffline(t.Context(), func(context.Context) error {
		seeded, err := seed(t, s)
		if err != nil {
			return err
		}
		bodies, begun := 0, time.Now()
		for _, route := range apitest.Routes() {
			list := apitest.FilledBodies(route)
			if len(list) == 0 {
				continue
			}
			size := sizeOf(s, &seeded, &list[0])
			for _, body := range list {
				if bodies++; testkit.IsLong() || len(list) < sampledBodies || bodies%sampledBodies == 0 {
					measureBody(t, s, &seeded, &body, size)
				}
			}
		}
		if bodies < 300 {
			t.Errorf("only %d bodies", bodies)
		}
		t.Logf("%d bodies in %s", bodies, time.Since(begun))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

const (
	usualBody  = 1 << 20 // bytes
	largerBody = 2 << 20 // of routes that take 8 MiB and more
	// largestValues is what the values of a larger body may take, whatever its length: for its largest, 8 times that is
	// less than 8 times the body. Package inference measures the parsers with such bodies.
	largestValues = 8 << 20
)

// sizeOf returns how many bytes a body like b has that is to be measured: the most of usual routes, and more of those
// that take more.
func sizeOf(s *Server, d *sample.Data, b *apitest.FilledBody) int {
	switch b.MediaType {
	case "application/x-www-form-urlencoded":
		return 64 << 10
	case "application/json":
	default:
		return 256 << 10
	}
	w := httptest.NewRecorder()
	s.Router.ServeHTTP(w, newBodyRequest(d, b, `{"x":"`+strings.Repeat("x", largerBody)+`"}`))
	if !strings.Contains(w.Body.String(), "body: must be at most") {
		return largerBody
	}
	return usualBody
}

// measureBody compares what a body makes the node allocate with its length.
func measureBody(t *testing.T, s *Server, d *sample.Data, b *apitest.FilledBody, size int) {
	t.Helper()
	const fixed = 256 << 10 // of each request, and of what else happens meanwhile
	body := b.Bytes(size)
	r := newBodyRequest(d, b, string(body))
	w := httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.Router.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	read := w.Code != http.StatusForbidden && w.Code != http.StatusMethodNotAllowed &&
		(w.Code != http.StatusUnauthorized || b.Security == "voiceTicket")
	if !read {
		t.Errorf("%s: the body is not read: %d %s", b.Route, w.Code, w.Body)
	}
	got, length := after.TotalAlloc-before.TotalAlloc, uint64(len(body))
	most := 8*length + fixed
	if length > usualBody {
		most = 8*largestValues + fixed
	}
	if got > most {
		t.Errorf("%s, %s: a body of %d bytes makes %d bytes, %.1f times as many; %d %.200s", b.Route, b.Place, length,
			got, float64(got)/float64(length), w.Code, w.Body)
	}
}

// newBodyRequest returns the request of a body by who may make it.
func newBodyRequest(d *sample.Data, b *apitest.FilledBody, body string) *http.Request {
	path := strings.NewReplacer("/v1/apps/{id}", "/v1/apps/"+d.App.ID, "{model}", "gpt-6-luna", "{provider}", "openai",
		"/v1/connections/{id}", "/v1/connections/"+d.Connection.ID).Replace(b.Path())
	r := httptest.NewRequest(b.Method(), path, strings.NewReader(body))
	r.Header.Set("Content-Type", b.MediaType)
	r.Header.Set("Idempotency-Key", id.NewUUID())
	switch b.Security {
	case "accessToken":
		r.Header.Set("Authorization", "Bearer "+d.Connection.AccessToken)
	case "clientCredentials":
		r.SetBasicAuth(d.App.ClientID, d.App.ClientSecret)
	case "operatorToken":
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 32))
	case "voiceTicket":
		r.Header.Set("Authorization", "Bearer rtt_unknown") // the offer is read before it is looked up
	default:
		panic(fmt.Sprintf("%s: no credential %q", b.Route, b.Security))
	}
	return r
}
