package inference

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
)

// Handler serves inference (contract §4.3) and receipts.
type Handler struct {
	DB           *db.DB
	Ledger       *store.Writer
	Node         *store.Node
	Callers      *callers.Resolver
	Apps         *apps.Store
	Catalog      *catalog.Source
	Mock         provider.Provider            // for apps whose provider mode is mock
	Providers    map[string]provider.Provider // by name, for live ones
	Records      map[string]Recorder          // of the providers that keep one, by name
	Estimates    *estimates.Calibration       // of live calls
	Dialects     map[string]Dialect           // by provider, mock or live
	Images       *images.Fetcher
	Metrics      *metrics.Metrics
	Fee          money.PPM
	Free         tiers.FreeCredit                                                                // of live apps
	Risk         limits.Risk                                                                     // of live apps
	SandboxDayMC money.MC                                                                        // what live models may cost the sandbox of a developer in 24 hours
	Own          func(ctx context.Context, accountID, provider string) (provider.Provider, bool) // by a developer's own key
	Now          func() time.Time
	Log          *slog.Logger

	calls  registry
	drains drains
}

// A Dialect says whether a request can be said in a provider's own terms. Its
// error is a *provider.Error that names the member.
type Dialect func(*provider.Request) error

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	h.calls.calls = map[rules.Key]*running{}
	h.drains.most, h.drains.patience = mostDrains, drainPatience
	rt.Handle("POST /v1/ai/{model}", func(w http.ResponseWriter, r *http.Request) error {
		model := r.PathValue("model")
		return h.infer(w, r, route{path: "ai/" + model, model: model})
	})
	rt.Handle("POST /v1/ai/features/{slug}", func(w http.ResponseWriter, r *http.Request) error {
		slug := r.PathValue("slug")
		return h.infer(w, r, route{path: "ai/features/" + slug, slug: slug})
	})
	rt.Handle("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) error {
		return h.infer(w, r, route{path: "chat/completions", chat: true})
	})
	rt.Handle("GET /v1/requests/{id}", h.receipt)
}

var featureSlug = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// infer checks in the order of decisions, 'Order of checks', and keeps a
// refusal for its receipt.
func (h *Handler) infer(w http.ResponseWriter, r *http.Request, rt route) error {
	who, err := h.Callers.Resolve(r)
	if err != nil {
		return err
	}
	web.Log(r.Context(), slog.String("connection_id", who.ConnectionID), slog.String("app_id", who.App.ID))
	if err := who.CheckAllowed(); err != nil {
		return h.refuse(r, who, nil, err)
	}
	key, err := readKey(r, rt)
	if err != nil {
		return h.refuse(r, who, nil, err)
	}
	raw, err := readBody(w, r)
	if err != nil {
		return h.refuse(r, who, nil, err)
	}
	q, err := h.plan(r, rt, who, raw)
	if err != nil {
		return h.refuse(r, who, q, err)
	}
	print := fingerprint(rt, r.Header.Get(web.FeatureHeader), raw)
	if key == "" {
		if key, err = h.derive(r, who, print); err != nil {
			return err
		}
	}
	return h.refuse(r, who, q, h.run(w, r, who, q, key, print))
}

// plan reads the body and decides everything that needs no transaction.
func (h *Handler) plan(r *http.Request, rt route, who *callers.Caller, raw []byte) (*plan, error) {
	p, err := parse(raw)
	if err != nil {
		return nil, err
	}
	feature, err := readFeature(r, rt)
	if err != nil {
		return nil, err
	}
	return newPlan(p, rt, feature, &who.App, who.Features, h.Catalog.Current(), h.drift(who), h.Fee, h.Now())
}

func readFeature(r *http.Request, rt route) (string, error) {
	values := r.Header.Values(web.FeatureHeader)
	if rt.slug != "" {
		if !featureSlug.MatchString(rt.slug) {
			return "", invalid("slug: must match %s", featureSlug)
		}
		if len(values) > 0 && (len(values) > 1 || values[0] != rt.slug) {
			return "", invalid("X-Svc-Feature: differs from the feature of this route; leave it out")
		}
		return rt.slug, nil
	}
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !featureSlug.MatchString(values[0]) {
		return "", invalid("X-Svc-Feature: must be one slug that matches %s", featureSlug)
	}
	return values[0], nil
}

// readBody reads the whole body. It is also read whole before anything goes
// upstream, because a half-read body truncates streams.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := web.CheckJSON(r); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBody {
		return nil, invalid("body: at most %d bytes", maxBody)
	}
	data := make([]byte, 0, max(r.ContentLength, 512)+1)
	body := http.MaxBytesReader(w, r.Body, maxBody)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		var tooLarge *http.MaxBytesError
		switch {
		case err == io.EOF:
			return data, nil
		case errors.As(err, &tooLarge):
			return nil, invalid("body: at most %d bytes", maxBody)
		case err != nil:
			return nil, apierr.InvalidRequest.Errorf("body: it did not arrive whole").WithCause(err)
		}
	}
}

// derive makes the key of a call that came without one. Only a repetition by an
// SDK is the same call as an earlier one: it finds the newest with its fingerprint.
func (h *Handler) derive(r *http.Request, who *callers.Caller, print string) (string, error) {
	if !retried(r) {
		return id.NewUUID(), nil
	}
	if key := h.calls.find(who.ConnectionID, print); key != "" {
		return key, nil
	}
	key, err := store.FindKeyByFingerprint(r.Context(), h.DB, who.ConnectionID, who.AccountID, print, h.Now().Add(-10*time.Minute).UnixMicro())
	if err != nil || key != "" {
		return key, err
	}
	return id.NewUUID(), nil
}

// find returns the key of a call that runs here with this fingerprint.
func (g *registry) find(connectionID, print string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, c := range g.calls {
		if k.ConnectionID == connectionID && c.fingerprint == print {
			return k.Key
		}
	}
	return ""
}

// refuse keeps why a call was refused, so that its receipt can say so. Failures
// that are not the caller's are in the log.
func (h *Handler) refuse(r *http.Request, who *callers.Caller, q *plan, err error) error {
	var e *apierr.Error
	if err == nil || !errors.As(err, &e) || e.Code.Status >= 500 && e.Code != apierr.ProviderError {
		return err
	}
	h.Metrics.Refused(e.Code.Name)
	row := rules.Refusal{
		RequestID: web.RequestID(r.Context()), ConnectionID: who.ConnectionID, AppID: who.App.ID, Status: e.Code.Status, Code: e.Code.Name,
		Message: e.Message, Details: detailsJSON(e), Feature: strings.ToValidUTF8(cutText(r.Header.Get(web.FeatureHeader), 40), ""),
	}
	if q != nil {
		row.Feature, row.Model = q.feature, q.model.ID
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	if _, kept := h.Ledger.Do(ctx, rules.RecordRefusal{Refusal: row}); kept != nil {
		h.Log.ErrorContext(ctx, "a refusal was not kept", "request_id", row.RequestID, "error", kept)
	}
	return err
}

func cutText(s string, n int) string { return s[:min(len(s), n)] }

// provider returns who serves the call: the canned one in mock mode.
func (h *Handler) provider(who *callers.Caller, q *plan) provider.Provider {
	if who.App.ProviderMode == "mock" {
		return h.Mock
	}
	if p := h.Providers[q.model.Provider]; p != nil {
		return p
	}
	return absent{q.model.Provider}
}

// drift returns what corrects the counts of a call and learns from it: nothing in
// mock mode, where the provider counts as we do.
func (h *Handler) drift(who *callers.Caller) *estimates.Calibration {
	if who.App.ProviderMode == "mock" {
		return nil
	}
	return h.Estimates
}

// absent stands for a provider that is not configured.
type absent struct{ name string }

func (a absent) Name() string { return a.name }

func (a absent) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, &provider.Error{Message: a.name + " is not configured"}
}

func (a absent) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	return nil, &provider.Error{Message: a.name + " is not configured"}
}
