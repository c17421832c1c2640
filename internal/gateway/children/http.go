package children

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// What bounds a child's label, lists and time.
const (
	maxLabel      = 60 // characters; users read it on their dashboard
	maxListed     = 20 // features or models
	createBurst   = 200
	createPause   = time.Second // between new children of a connection, over time
	minLifetime   = time.Minute
	maxLifetime   = 30 * 24 * time.Hour
	usualLifetime = time.Hour
)

// A Handler serves /v1/connection/children.
type Handler struct {
	DB      *db.DB
	Ledger  *store.Writer
	Callers *callers.Resolver
	Offered func(model string) bool
	Box     *seal.Box // seals tokens, so that a repeated request gets the same one

	FreeRate *callers.FreeRate // of children of sandbox apps; nil = none
	Rate     *web.Limiter      // of new children, by connection
}

// NewRate returns a Handler's rate of new children: each leaves rows, and an event.
func NewRate(now func() time.Time) *web.Limiter { return web.NewLimiter(createPause, createBurst, now) }

// tokenBytes is how many random bytes a token has.
const tokenBytes = 32

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("POST /v1/connection/children", h.create)
	rt.Handle("GET /v1/connection/children", h.list)
	rt.Handle("GET /v1/connection/children/{id}", h.get)
	rt.Handle("POST /v1/connection/children/{id}/end", h.end)
}

// A Resource is a child as the API shows it.
type Resource = rules.ChildResource

func newResource(c *store.ChildBudget) Resource { return c.Resource(c.AllHeldMC(), c.RemainingMC()) }

// createBody is the body of POST /v1/connection/children.
type createBody struct {
	AmountMC  web.Field[money.MC] `json:"amount_mc"`
	ExpiresIn web.Field[int64]    `json:"expires_in"` // seconds
	Label     web.Field[string]   `json:"label"`
	Features  web.Field[[]string] `json:"features"`
	Models    web.Field[[]string] `json:"models"`
}

// create passes an amount on. The key answers the same child again.
func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	if err := who.CheckAllowed(); err != nil {
		return err
	}
	key, err := web.ReadIdempotencyKey(r)
	if err != nil {
		return err
	}
	var body createBody
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	child, err := h.newChild(who, key, &body)
	if err != nil {
		return err
	}
	childID, err := h.delegate(r, who, &child)
	if err != nil {
		return err
	}
	made, err := store.ReadChild(r.Context(), h.DB, childID)
	if err != nil {
		return err
	}
	out := newResource(&made)
	if out.Token, err = h.token(r.Context(), made.ID); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// checkRate counts a request for a child, or refuses it.
func (h *Handler) checkRate(who *callers.Caller) error {
	if who.App.Tier == apps.Sandbox {
		if err := h.FreeRate.Check(who.App.OwnerID); err != nil {
			return err
		}
	}
	return h.Rate.Check(who.ConnectionID,
		"this connection makes children faster than it may, which is one a second over time; slow down")
}

// token returns the token of a child; "" = an older version has made it, and its token opens nothing any more.
func (h *Handler) token(ctx context.Context, childID string) (string, error) {
	sealed, err := store.GetSealedToken(ctx, h.DB, childID)
	if err != nil || sealed == nil {
		return "", err
	}
	token, err := h.Box.Open(sealed, store.ChildTokenPlace(childID))
	if err != nil {
		return "", fmt.Errorf("children: token of %s: %w", childID, err)
	}
	return string(token), nil
}

// delegate makes a child within what the app may use now, and at the rate it may. What the key has made before is
// answered whatever these say now.
func (h *Handler) delegate(r *http.Request, who *callers.Caller, child *rules.Child) (childID string, err error) {
	refused := h.checkModels(who, child.Models)
	if refused == nil {
		refused = checkFeatures(who, child.Features)
	}
	if refused == nil {
		refused = h.checkRate(who)
	}
	if refused == nil {
		return h.makeChild(r, who, *child)
	}
	old, err := store.GetChildOfKey(r.Context(), h.DB, child.ConnectionID, child.Key)
	switch {
	case err == nil && old.Fingerprint == child.Fingerprint:
		return old.ID, nil
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return "", refused
	}
	return "", err
}

// makeChild makes a child, or finds the one that the key has made. A child of the connection is bound to the grant
// family of the request's token, which may have been revoked since the caller was cached: its revocation waits for the
// child, and ends it.
func (h *Handler) makeChild(r *http.Request, who *callers.Caller, child rules.Child) (childID string, err error) {
	err = h.DB.InTx(r.Context(), func(ctx context.Context, tx *db.Tx) error {
		if who.Child == nil {
			grant, err := h.Callers.LockGrant(ctx, tx, r)
			if err != nil {
				return err
			}
			child.FamilyID = grant.FamilyID
		}
		done, err := h.Ledger.DoTx(ctx, tx, rules.Delegate{Child: child})
		childID = done.Child.ID
		return err
	})
	return childID, err
}

// newChild returns the child that a request asks for. It may do no more than the one who makes it.
func (h *Handler) newChild(who *callers.Caller, key string, body *createBody) (rules.Child, error) {
	lifetime := usualLifetime
	if body.ExpiresIn.Set && !body.ExpiresIn.Null {
		if s := body.ExpiresIn.Value; s < int64(minLifetime.Seconds()) || s > int64(maxLifetime.Seconds()) {
			return rules.Child{}, apierr.InvalidRequest.Errorf("expires_in: must be from %d to %d seconds",
				int64(minLifetime.Seconds()), int64(maxLifetime.Seconds()))
		}
		lifetime = time.Duration(body.ExpiresIn.Value) * time.Second
	}
	if !body.AmountMC.Set || body.AmountMC.Null {
		return rules.Child{}, apierr.InvalidRequest.Errorf("amount_mc: required")
	}
	if body.Label.Value != "" {
		if err := apps.CheckText("label", body.Label.Value, maxLabel); err != nil {
			return rules.Child{}, err
		}
	}
	now := h.DB.Now()
	c := rules.Child{
		ID:           id.New(id.Child, now),
		ConnectionID: who.ConnectionID,
		ParentID:     who.ChildID(),
		Label:        body.Label.Value,
		AmountMC:     body.AmountMC.Value,
		Features:     body.Features.Value,
		Models:       body.Models.Value,
		Key:          rules.ChildKey(who.ChildID(), key),
		ExpiresUS:    now.Add(lifetime).UnixMicro(),
	}
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	token := callers.ChildTokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	c.TokenHash = id.Hash(token)
	var err error
	if c.SealedToken, err = h.Box.Seal([]byte(token), store.ChildTokenPlace(c.ID)); err != nil {
		return rules.Child{}, fmt.Errorf("children: seal a token: %w", err)
	}
	if who.Child != nil {
		c.ExpiresUS = min(c.ExpiresUS, who.Child.ExpiresUS)
		if len(c.Features) == 0 {
			c.Features = who.Child.Features
		}
		if len(c.Models) == 0 {
			c.Models = who.Child.Models
		}
	}
	c.Fingerprint = fingerprint(&c, lifetime)
	return c, nil
}

// fingerprint hashes what makes two requests for a child the same.
func fingerprint(c *rules.Child, lifetime time.Duration) string {
	text, err := json.Marshal([]any{"children", c.Label, c.AmountMC, c.Features, c.Models, lifetime})
	if err != nil {
		panic("children: encode: " + err.Error())
	}
	return id.Hash(string(text))
}

func (h *Handler) checkModels(who *callers.Caller, models []string) error {
	if len(models) > maxListed {
		return apierr.InvalidRequest.Errorf("models: at most %d", maxListed)
	}
	for _, model := range models {
		switch {
		case !h.Offered(model):
			return apierr.InvalidRequest.Errorf("models: %q is not offered; GET /v1/models lists what is", model)
		case len(who.App.AllowedModels) > 0 && !slices.Contains(who.App.AllowedModels, model):
			return apierr.ModelNotAllowed.Errorf("model %q is not among the allowed models", model)
		}
	}
	return nil
}

func checkFeatures(who *callers.Caller, list []string) error {
	if len(list) > maxListed {
		return apierr.InvalidRequest.Errorf("features: at most %d", maxListed)
	}
	for _, slug := range list {
		if who.Features[slug] == nil {
			return apierr.InvalidRequest.Errorf("features: %q is not a feature of the app", slug)
		}
		if err := who.CheckFeature(slug); err != nil {
			return apierr.InvalidRequest.Errorf("features: %q is not one that this token may use", slug)
		}
	}
	return nil
}

// list answers with the caller's children and theirs, newest first.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	page, err := web.ReadPage(r, id.Child)
	if err != nil {
		return err
	}
	list, err := store.ListChildren(r.Context(), h.DB, who.ConnectionID, who.ChildID(), page.StartingAfter,
		page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]Resource, len(list))
	for i := range list {
		out[i] = newResource(&list[i])
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// require returns the child of the path if it is the caller's: of its connection, or below the caller or the caller
// itself. To others it does not exist.
func (h *Handler) require(r *http.Request) (child store.ChildBudget, err error) {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return child, err
	}
	who.Log(r.Context())
	notFound := apierr.NotFound.Errorf("no such child")
	childID := r.PathValue("id")
	if !strings.HasPrefix(childID, id.Child) {
		return child, notFound
	}
	child, err = store.ReadChild(r.Context(), h.DB, childID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && child.ConnectionID != who.ConnectionID {
		return child, notFound
	} else if err != nil {
		return child, err
	}
	if who.Child == nil {
		return child, nil
	}
	for above := child.Child; above.ID != who.Child.ID; {
		if above.ParentID == "" {
			return child, notFound
		}
		if above, err = store.GetChild(r.Context(), h.DB, above.ParentID); err != nil {
			return child, err
		}
	}
	return child, nil
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	child, err := h.require(r)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newResource(&child))
}

// end ends a child and all below it. A repeated request answers the same.
func (h *Handler) end(w http.ResponseWriter, r *http.Request) error {
	child, err := h.require(r)
	if err != nil {
		return err
	}
	if child.EndedUS == nil {
		ending, err := store.ListLiveTokens(r.Context(), h.DB, child.ConnectionID)
		if err != nil {
			return err
		}
		_, err = h.Ledger.Do(r.Context(),
			rules.EndChild{ConnectionID: child.ConnectionID, ChildID: child.ID, By: rules.EndedByApp})
		if err != nil {
			return err
		}
		h.Callers.ForgetTokens(ending)
		if child, err = store.ReadChild(r.Context(), h.DB, child.ID); err != nil {
			return err
		}
	}
	return web.WriteJSON(w, http.StatusOK, newResource(&child))
}

// expireBatch is how many children ExpireDue ends before it looks again.
const expireBatch = 100

// ExpireDue ends the children whose time is over.
func (h *Handler) ExpireDue(ctx context.Context) error {
	for {
		list, err := store.ListExpiredChildren(ctx, h.DB, h.DB.Now().UnixMicro(), expireBatch)
		if err != nil {
			return err
		}
		for _, c := range list {
			_, err := h.Ledger.Do(ctx,
				rules.EndChild{ConnectionID: c.ConnectionID, ChildID: c.ID, By: rules.EndedByExpiry})
			if err != nil {
				return fmt.Errorf("child %s: %w", c.ID, err)
			}
		}
		if len(list) < expireBatch {
			return nil
		}
	}
}
