package inference

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Config is what a Handler works with.
type Config struct {
	DB        *db.DB
	Ledger    *store.Writer
	Node      *store.Node
	Apps      *apps.Store
	Callers   *callers.Resolver
	Catalog   *catalog.Source
	Policies  *policies.Book
	Images    *images.Fetcher
	Estimates *estimates.Calibration // of live calls
	Metrics   *metrics.Metrics
	Traces    *telemetry.Calls // nil = calls are not traced

	Mock      provider.Provider            // serves the apps whose provider mode is mock
	Providers map[string]provider.Provider // serve live calls by the platform keys; by name
	Recorders map[string]Recorder          // the providers that keep a record of calls; by name
	Dialects  map[string]Dialect           // by provider, in mock mode too
	CheckMock Dialect                      // of the requests that Mock serves; nil = it takes them all

	Bounds   Bounds
	Storing  Storing
	FreeRate *callers.FreeRate // of calls of the mock; nil = none

	Links web.Links // of errors inside streams

	Identifiers accounts.SafetyIdentifiers // name the account of each call to its provider

	// DeveloperProvider returns a provider that is called with the developer's own
	// provider key, or nil if the developer has stored none. Nil: no developer has.
	DeveloperProvider func(ctx context.Context, accountID, name string) (provider.Provider, error)

	Now func() time.Time
	Log *slog.Logger
}

// A Dialect checks whether a request can be expressed in a provider's own terms. Its
// error is a *provider.Error that names the member.
type Dialect func(*provider.Request) error

// Handler serves inference (contract §4.3).
type Handler struct {
	Config
	calibrate func(model string, counted int64) int64 // by what Estimates has learned
	calls     registry
	orphans   orphanedCalls
	late      lateSettlements
	inFlight  callsInFlight
	stored    *responseStore
	refusals  *web.Limiter // that are stored

	unbilledRate *web.Limiter // of what unbilled attempts cost, by app and user
	imageRate    *web.Limiter // of remote images that nobody pays for, by app and user

	stops        stopWatch
	keepAlive    time.Duration // keepAliveInterval, but in tests
	pollPatience time.Duration // pollPatience, but in tests
}

// New returns a Handler.
func New(c Config) *Handler {
	return &Handler{
		Config:    c,
		calibrate: c.Estimates.Correct,
		calls:     registry{calls: map[rules.Key]*runningCall{}},
		orphans: orphanedCalls{
			max:           maxOrphans,
			timeout:       orphanTimeout,
			silentTimeout: silentOrphanTimeout,
		},
		keepAlive:    keepAliveInterval,
		pollPatience: pollPatience,
		stored:       newResponseStore(c.Storing, c.Now),
		refusals:     web.NewLimiter(refusalInterval, refusalBurst, c.Now),

		unbilledRate: newUnbilledRate(c.Now),
		imageRate:    web.NewLimiter(imageInterval, imageBurst, c.Now),

		stops: stopWatch{readAt: c.Now(), seen: map[string]time.Time{}},
		late:  lateSettlements{stopped: make(chan struct{})},
	}
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("POST /v1/ai/{model}", func(w http.ResponseWriter, r *http.Request) error {
		model := r.PathValue("model")
		return h.infer(w, r, plan.Route{Path: "ai/" + model, Model: model}, nil)
	})
	rt.Handle("POST /v1/ai/features/{slug}", func(w http.ResponseWriter, r *http.Request) error {
		slug := r.PathValue("slug")
		return h.infer(w, r, plan.Route{Path: "ai/features/" + slug, Slug: slug}, nil)
	})
	rt.Handle("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) error {
		return h.infer(w, r, plan.Route{Path: "chat/completions", Chat: true}, nil)
	})
	h.mountOpenAI(rt)
	h.mountMessages(rt)
	h.mountContents(rt)
	rt.Handle("POST /v1/estimate", h.estimate)
	const chat = "text models answer at POST /v1/chat/completions, as OpenAI's clients call it, or at " +
		"POST /v1/ai/{model}"
	for path, hint := range map[string]string{
		"/v1/responses":           "set the client's base URL to the one that ends in /openai/v1.",
		"/v1/messages":            "set the client's base URL to the one that ends in /anthropic; " + chat + ".",
		"/v1/completions":         chat + ".",
		"/v1/ai/chat/completions": "set the client's base URL to the one that ends in /v1; " + chat + ".",
		"/chat/completions":       "set the client's base URL to the one that ends in /v1; " + chat + ".",
		"/v1/embeddings":          "set the client's base URL to the one that ends in /openai/v1.",
	} {
		rt.SetHint(path, hint)
	}
}

// A call is one request for inference, with all that is known of it before its hold.
type call struct {
	who          *callers.Caller
	key          rules.Key
	fingerprint  string
	claim        string // the id of this HTTP request, which claims the hold
	arrived      time.Time
	input        plan.Input
	plan         *plan.Plan
	out          *sse        // of a streamed call
	shape        shapes.Call // of the client; nil = canonical
	seat         *seat       // what it takes of this node; nil = nothing is counted
	unstored     bool        // its refusal is not stored for its receipt
	simulated    bool        // its refusal was asked for by its message
	remoteImages int         // that were fetched, and that nobody has paid for
	clientGone   func()      // of a leader: reports, once, that its client has disconnected
}

// A parser reads a body of a client's shape, and finds the items of earlier answers that it refers to.
type parser func(body []byte, find responses.Finder) (shapes.Call, error)

// alone is the parser of bodies that refer to nothing.
func alone(parse func(body []byte) (shapes.Call, error)) parser {
	return func(body []byte, _ responses.Finder) (shapes.Call, error) { return parse(body) }
}

// infer answers a call, and stores the refusal of a refused one. parse is that of the client's shape; nil = the
// canonical one.
func (h *Handler) infer(w http.ResponseWriter, r *http.Request, route plan.Route, parse parser) error {
	c, err := h.withCall(r, func(c *call) error {
		if err := h.planCall(w, r, route, parse, c); err != nil {
			return err
		}
		if err := c.simulateRefusal(w.Header()); err != nil {
			return err
		}
		return h.runCall(w, r, c)
	})
	if err != nil && c != nil && c.simulated {
		web.Log(r.Context(), slog.Bool("simulated", true))
		return err
	}
	if err != nil && c != nil && !c.unstored {
		h.storeRefusal(r, c, err)
	}
	return err
}

// withCall runs do for a call of the request's caller, which counts as one in flight. An error of do names the members
// of the client's shape. The call is nil if there is no caller, or too many calls.
func (h *Handler) withCall(r *http.Request, do func(*call) error) (*call, error) {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return nil, err
	}
	who.Log(r.Context())
	seat, err := h.inFlight.enter(who.App.ID, who.App.OwnerID, who.AccountID, &h.Bounds)
	if err != nil {
		return nil, err
	}
	defer seat.leave()
	c := &call{who: who, claim: web.RequestID(r.Context()), arrived: time.Now(), seat: seat}
	if err = do(c); err != nil && c.shape != nil {
		err = shapes.RenameMember(err, c.shape.MemberName)
	} else if err != nil && c.input.Request != nil {
		err = shapes.RenameMember(err, c.input.Request.MemberName)
	}
	return c, err
}

// planCall reads and checks the request in the order of decision 008, and plans it.
func (h *Handler) planCall(w http.ResponseWriter, r *http.Request, route plan.Route, parse parser, c *call) error {
	if err := c.who.CheckAllowed(); err != nil {
		return err
	}
	key, err := readKey(r, route)
	if err != nil {
		return err
	}
	if err := h.readPlan(w, r, route, parse, c); err != nil {
		return err
	}
	if key == "" {
		if key, err = h.deriveKey(r, c); err != nil {
			return err
		}
	}
	if rules.ChildOfKey(key) == "" { // no retry that was matched
		key = rules.ChildKey(c.who.ChildID(), key)
	}
	c.key = rules.Key{ConnectionID: c.who.ConnectionID, Key: key}
	return nil
}

// readPlan reads the body and the headers that the call is planned by, and plans it. Afterwards only the planned
// request is left of the body.
func (h *Handler) readPlan(w http.ResponseWriter, r *http.Request, route plan.Route, parse parser, c *call) error {
	body, err := readBody(w, r, c.seat)
	if err != nil {
		return err
	}
	if err := h.renewCaller(r, c); err != nil {
		return err
	}
	c.fingerprint = fingerprint(route, r.Header.Get(web.FeatureHeader), c.who.ChildID(), body)
	request, err := c.parseBody(body, parse, h.findItems(r.Context(), c))
	if err != nil {
		return err
	}
	setIgnored(w.Header(), request.Ignored)
	feature, err := readFeature(r, route)
	if err != nil {
		return err
	}
	fit, err := readFit(r)
	if err != nil {
		return err
	}
	now := h.Now()
	c.input = plan.Input{
		Request:   request,
		Route:     route,
		Feature:   feature,
		Fit:       fit,
		Caller:    c.who,
		Catalog:   h.Catalog.Current(),
		Policy:    h.Policies.At(now),
		Calibrate: h.calibration(&c.who.App),
		Now:       now,
	}
	if c.plan, err = plan.New(&c.input); err != nil {
		return err
	}
	setIgnored(w.Header(), c.listIgnored(request))
	setDeprecationHeaders(w.Header(), &c.plan.Model)
	return c.countRequest()
}

// renewCaller looks the caller up again if the body came so slowly that what is known of them may be outdated: the app
// may be suspended since.
func (h *Handler) renewCaller(r *http.Request, c *call) error {
	if !c.who.IsOutdated(h.Now()) {
		return nil
	}
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return err
	}
	c.who = who
	return who.CheckAllowed()
}

// setIgnored names the members of the request that are not sent as the client wrote them.
func setIgnored(h http.Header, members []string) {
	if len(members) > 0 {
		h.Set(web.IgnoredHeader, strings.Join(members, ", "))
	}
}

// listIgnored returns what was dropped of the body, and then what does not fit the model, by the client's names.
func (c *call) listIgnored(request *plan.Request) []string {
	list := slices.Clone(request.Ignored)
	for _, member := range c.plan.Ignored {
		if c.shape != nil {
			member = c.shape.MemberName(member)
		}
		list = append(list, member)
	}
	return list
}

// parseBody reads the body in the client's shape.
func (c *call) parseBody(body []byte, parse parser, find responses.Finder) (*plan.Request, error) {
	if parse == nil {
		return plan.Parse(body)
	}
	shape, err := parse(body, find)
	if err != nil {
		return nil, err
	}
	c.shape = shape
	return shape.Request(), nil
}

// setDeprecationHeaders announces the end of a model: Deprecation (RFC 9745) and Sunset (RFC
// 8594).
func setDeprecationHeaders(h http.Header, m *catalog.Model) {
	if m.DeprecatedAt == nil {
		return
	}
	h.Set("Deprecation", "@"+strconv.FormatInt(m.DeprecatedAt.Unix(), 10))
	if m.RetiresAt != nil {
		h.Set("Sunset", m.RetiresAt.UTC().Format(http.TimeFormat))
	}
}

// readFeature returns the feature slug of the route or of the header; "" = none.
func readFeature(r *http.Request, route plan.Route) (string, error) {
	values := r.Header.Values(web.FeatureHeader)
	if route.Slug != "" {
		if !features.SlugPattern.MatchString(route.Slug) {
			return "", apierr.InvalidRequest.Errorf("slug: must match %s", features.SlugPattern)
		}
		if len(values) > 0 && (len(values) > 1 || values[0] != route.Slug) {
			return "", apierr.InvalidRequest.Errorf(
				"X-Svc-Feature: differs from the feature of this route; leave it out")
		}
		return route.Slug, nil
	}
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !features.SlugPattern.MatchString(values[0]) {
		return "", apierr.InvalidRequest.Errorf("X-Svc-Feature: must be one slug that matches %s", features.SlugPattern)
	}
	return values[0], nil
}

// readFit returns what the header says about a call that does not fit; nil = there is none.
func readFit(r *http.Request) (*bool, error) {
	values := r.Header.Values(web.FitHeader)
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 || values[0] != "0" && values[0] != "1" {
		return nil, apierr.InvalidRequest.Errorf("X-Svc-Fit: must be 0 or 1")
	}
	fit := values[0] == "1"
	return &fit, nil
}

// derivedKeyTTL is for how long an SDK's retry without a key is matched with an earlier
// call (decision 041).
const derivedKeyTTL = 10 * time.Minute

// deriveKey makes the idempotency key of a call that came without one. Only a retry of
// an SDK is the same call as an earlier one: the newest with its fingerprint.
func (h *Handler) deriveKey(r *http.Request, c *call) (string, error) {
	if !isRetry(r) {
		return id.NewUUID(), nil
	}
	if key := h.calls.findKey(c.who.ConnectionID, c.fingerprint); key != "" {
		return key, nil
	}
	since := h.Now().Add(-derivedKeyTTL).UnixMicro()
	key, err := store.FindKeyByFingerprint(
		r.Context(), h.DB, c.who.ConnectionID, c.who.AccountID, c.fingerprint, since)
	if err != nil || key != "" {
		return key, err
	}
	return id.NewUUID(), nil
}

// storeRefusal stores why a call was refused, for its receipt. It leaves out failures
// that are not the caller's: those are in the log.
func (h *Handler) storeRefusal(r *http.Request, c *call, err error) {
	var e *apierr.Error
	if !errors.As(err, &e) || e.Code.Status >= 500 && e.Code != apierr.ProviderError {
		return
	}
	h.Metrics.CountRefusal(e.Code.Name)
	if !h.mayStoreRefusal(c.who) {
		return
	}
	row := rules.Refusal{
		RequestID:    c.claim,
		ConnectionID: c.who.ConnectionID,
		AppID:        c.who.App.ID,
		Status:       e.Code.Status,
		Code:         e.Code.Name,
		Message:      strings.ReplaceAll(e.Message, "\x00", "\uFFFD"), // PostgreSQL does not store it
		Details:      encodeDetails(e),
		DurationMS:   rules.Milliseconds(time.Since(c.arrived)),
	}
	if c.plan != nil {
		row.Feature, row.Model = c.plan.Feature.Slug, c.plan.Model.ID
	} else {
		header := r.Header.Get(web.FeatureHeader) // not checked: any text
		row.Feature = strings.ToValidUTF8(header[:min(len(header), maxStoredFeature)], "")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.DB.Limit(refusalTimeout))
	defer cancel()
	if _, err := h.Ledger.Do(ctx, rules.RecordRefusal{Refusal: row}); err != nil {
		h.Log.ErrorContext(ctx, "refusal not stored", "request_id", row.RequestID, "error", err)
	}
}

// mayStoreRefusal reports whether another refusal of a caller is stored: it costs nothing, so a loop of them would fill
// the disk, as the answers of the mock would (decision 152). The sandbox apps of a developer are one caller.
func (h *Handler) mayStoreRefusal(who *callers.Caller) bool {
	if h.Storing.IsDiskLow != nil && h.Storing.IsDiskLow() {
		return false
	}
	key := who.App.OwnerID
	if who.App.Tier != apps.Sandbox {
		key = who.App.ID + "/" + who.AccountID
	}
	_, ok := h.refusals.Allow(key)
	return ok
}

const (
	refusalInterval  = time.Second // between refusals that are stored, over time
	refusalBurst     = 1000        // at once
	maxStoredFeature = 40          // bytes of a feature header that was not checked
	refusalTimeout   = 5 * time.Second
)

func encodeDetails(e *apierr.Error) string {
	if e.Details == nil {
		return "{}"
	}
	b, err := json.Marshal(e.Details)
	if err != nil {
		return "{}"
	}
	return string(b)
}
