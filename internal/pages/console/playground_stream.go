package console

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxPlaygroundBody is the most bytes that the page's script may send: a conversation with its images.
const maxPlaygroundBody = 8 << 20

// callIDHeader names the call to the page's script, which stops it and links to its receipt.
const callIDHeader = "Playground-Call"

// A scriptedCall is what the page's script sends: the body of a chat completion, and who makes the call.
type scriptedCall struct {
	Account string                     `json:"account"`
	Feature string                     `json:"feature"`
	Request map[string]json.RawMessage `json:"request"`
}

// readScriptedCall reads the request of the page's script.
func readScriptedCall(r *http.Request) (c scriptedCall, err error) {
	body, err := web.ReadBody(r, "application/json", maxPlaygroundBody)
	if err != nil {
		return c, err
	}
	if err := web.DecodeSaid(body, &c); err != nil || c.Request == nil {
		return c, apierr.InvalidRequest.Errorf("body: must be an object with a request").WithCause(err)
	}
	return c, nil
}

// writeScriptError answers the page's script with an error.
func writeScriptError(w http.ResponseWriter, err error) error {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code.Status >= http.StatusInternalServerError {
		return err
	}
	return web.WriteJSON(w, e.Code.Status, map[string]any{
		"error": map[string]string{"code": e.Code.Name, "message": e.Message},
	})
}

// playgroundAccount returns the test account that a script names: one of the developer's own that the playground
// offers. The error is a page with 404 for any other.
func (h playgroundPages) playgroundAccount(ctx context.Context, v visit,
	accountID string) (sandbox.TestAccount, error) {
	if v.app.Tier != apps.Sandbox {
		return sandbox.TestAccount{}, ui.NotFound()
	}
	list, err := h.Sandbox.List(ctx, v.app.OwnerID)
	if err != nil {
		return sandbox.TestAccount{}, err
	}
	i := slices.IndexFunc(list, func(t sandbox.TestAccount) bool { return t.ID == accountID && t.TesterID == "" })
	if i < 0 {
		return sandbox.TestAccount{}, ui.NotFound()
	}
	return list[i], nil
}

// streamCall is POST /developer/apps/{id}/playground/stream: one streamed call for the page's script. The access token
// stays on this node, and is revoked afterwards. Who leaves the page pays for the whole answer, like a client that
// disconnects; stopCall ends it.
func (h playgroundPages) streamCall(w http.ResponseWriter, r *http.Request, v visit) error {
	c, err := readScriptedCall(r)
	if err != nil {
		return writeScriptError(w, err)
	}
	account, err := h.playgroundAccount(r.Context(), v, c.Account)
	if err != nil {
		return err
	}
	c.Request["stream"] = json.RawMessage(`true`)
	c.Request["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	body, err := json.Marshal(c.Request)
	if err != nil {
		return fmt.Errorf("console: playground: %w", err)
	}
	tokens, err := h.Tokens.ConnectTestAccount(r.Context(), v.app.ID, account.ID, playgroundCap)
	if err != nil {
		if found := formProblems(err, nil); found != nil {
			return writeScriptError(w, apierr.InvalidRequest.Errorf("%s", found[0].Text))
		}
		return notFound(err)
	}
	relay := &relay{w: w, recorder: recorder{header: http.Header{}}}
	h.postTo(r.Context(), relay, "/v1/chat/completions", string(body), tokens.AccessToken, callHeaders(c.Feature))
	err = h.Tokens.RevokeToken(context.WithoutCancel(r.Context()), v.app.ID, tokens.RefreshToken)
	if err != nil || relay.status == http.StatusOK {
		return err
	}
	return h.writeRefusal(r.Context(), w, v, &relay.recorder)
}

// writeRefusal passes a refusal to the page's script, with the address of its receipt. Not every refusal is recorded.
func (h playgroundPages) writeRefusal(ctx context.Context, w http.ResponseWriter, v visit, a *recorder) error {
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &body); err != nil || body.Error == nil {
		return fmt.Errorf("console: playground: status %d without an error: %w", a.status, err)
	}
	out := map[string]any{"error": body.Error}
	requestID := a.header.Get("X-Request-Id")
	if _, err := store.GetRefusal(ctx, h.DB, requestID); err == nil {
		out["receipt"] = v.path("/requests/" + requestID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: refusal: %w", err)
	}
	return web.WriteJSON(w, a.status, out)
}

// stopCall is POST /developer/apps/{id}/playground/stop: it ends a running call as its user would. What was delivered
// is billed. A call of another connection stays as it is.
func (h playgroundPages) stopCall(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	account, err := h.playgroundAccount(r.Context(), v, form.Get("account"))
	if err != nil {
		return err
	}
	c, err := store.LiveConnection(r.Context(), h.DB, v.app.ID, account.ID)
	if err != nil {
		return notFound(err)
	}
	if callID := form.Get("call"); callID != "" {
		if err := h.Calls.StopCall(r.Context(), c.ID, callID); err != nil {
			return err
		}
	}
	return web.WriteJSON(w, http.StatusAccepted, map[string]bool{"stopping": true})
}

// writeCode is POST /developer/apps/{id}/playground/code: the call in four languages.
func (h playgroundPages) writeCode(w http.ResponseWriter, r *http.Request, _ visit) error {
	c, err := readScriptedCall(r)
	if err != nil {
		return writeScriptError(w, err)
	}
	return web.WriteJSON(w, http.StatusOK, callCode(h.BaseURL, c.Feature, c.Request))
}

// A relay passes a stream on as it comes. Any other response it records, because a refusal gets a receipt first.
type relay struct {
	w http.ResponseWriter
	recorder
}

// WriteHeader begins the stream, or records the status.
func (a *relay) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	if a.recorder.WriteHeader(status); status != http.StatusOK {
		return
	}
	to := a.w.Header()
	to.Set("Content-Type", a.header.Get("Content-Type"))
	to.Set("X-Accel-Buffering", "no")
	to.Set(callIDHeader, a.header.Get("X-Request-Id"))
	a.w.WriteHeader(status)
}

// Write passes a part of the stream on, or records it.
func (a *relay) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.status == http.StatusOK {
		return a.w.Write(p)
	}
	return a.recorder.Write(p)
}

// FlushError flushes for http.ResponseController.
func (a *relay) FlushError() error {
	if a.status != http.StatusOK {
		return nil
	}
	return http.NewResponseController(a.w).Flush()
}

// Unwrap gives http.ResponseController access to the write deadline.
func (a *relay) Unwrap() http.ResponseWriter { return a.w }
