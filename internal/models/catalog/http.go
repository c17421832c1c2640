package catalog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/web"
)

// A Handler answers GET /v1/models (contract §4.2).
type Handler struct {
	Catalog *Source
	Now     func() time.Time

	// Providers are those whose models are listed; nil = all. An installation can call only
	// those that it has a key for (decision 014).
	Providers []string

	cached atomic.Pointer[rendered]
}

// rendered is the response for one catalog on one UTC day, since rates change at midnight only.
type rendered struct {
	of   *Catalog
	day  string
	body []byte
}

// Mount adds the endpoint.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/models", h.listModels)
	rt.Handle("GET /openai/v1/models", h.listForOpenAI)
	rt.Handle("GET /openai/v1/models/{model}", h.getForOpenAI)
	rt.Handle("GET /anthropic/v1/models", h.listForAnthropic)
	rt.Handle("GET /anthropic/v1/models/{model}", h.getForAnthropic)
	rt.Handle("GET /google/{version}/models", h.listForGoogle)
	rt.Handle("GET /google/{version}/models/{model}", h.getForGoogle)
}

// listModels needs no credential.
func (h *Handler) listModels(w http.ResponseWriter, _ *http.Request) error {
	body, err := h.render(h.Now().UTC())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err = w.Write(body)
	return err
}

func (h *Handler) render(now time.Time) ([]byte, error) {
	c, day := h.Catalog.Current(), now.Format(time.DateOnly)
	if r := h.cached.Load(); r != nil && r.of == c && r.day == day {
		return r.body, nil
	}
	body, err := json.Marshal(h.list(c, now))
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	h.cached.Store(&rendered{c, day, body})
	return body, nil
}

// List returns the models that this installation can call now.
func (h *Handler) List() []Listing { return h.list(h.Catalog.Current(), h.Now().UTC()) }

// list returns the models that this installation can call.
func (h *Handler) list(c *Catalog, now time.Time) []Listing {
	return slices.DeleteFunc(c.Offered(now), func(l Listing) bool {
		return h.Providers != nil && !slices.Contains(h.Providers, l.Provider)
	})
}
