package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// voicePage is the form that begins a call, and the sessions that there were.
func (h *Handler) voicePage(r *http.Request, v visit) (ui.Voice, []sandbox.TestAccount, error) {
	page := ui.Voice{Console: v.page(r, "Playground", "/playground"), Plays: v.plays("/voice")}
	fields, people, why, err := h.players(r.Context(), v, true)
	if err != nil {
		return page, nil, err
	}
	if page.Why = why; why == "" {
		page.Fields = append(fields,
			ui.Field{ID: "instructions", Label: "Instructions", Kind: "area", Value: "You are friendly, and brief."},
			ui.Field{ID: "max_cost", Label: "Max cost", Kind: "dollars", Value: "1.00", Hint: "Stops at this cost."},
		)
	}
	page.Sessions, err = h.Voice.ListForPage(r.Context(), voice.Filter{AppID: v.app.ID})
	return page, people, err
}

// talk is GET /developer/apps/{id}/playground/voice.
func (h *Handler) talk(w http.ResponseWriter, r *http.Request, v visit) error {
	page, _, err := h.voicePage(r, v)
	if err != nil {
		return err
	}
	if page.Why == "" {
		if err := web.AllowVoice(w, h.BaseURL); err != nil {
			return err
		}
	}
	return ui.Render(w, http.StatusOK, page)
}

// A begun is a session for the page's script: the ticket, and where to ask further.
type begun struct {
	Watch  string          `json:"watch"`
	End    string          `json:"end"`
	Client json.RawMessage `json:"client"` // as the app's browser would get it
}

// refuseTalk tells the page's script why not.
func refuseTalk(w http.ResponseWriter, status int, text string) error {
	return web.WriteJSON(w, status, map[string]string{"error": text})
}

// beginTalk is POST /developer/apps/{id}/playground/voice: a session made as an app's
// server makes it, of a connection of a test account. The token stays here.
func (h *Handler) beginTalk(w http.ResponseWriter, r *http.Request, v visit) error {
	page, people, err := h.voicePage(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	who, err := chosen(people, form)
	if err != nil {
		return err
	}
	most, err := money.Parse(form.Get("max_cost"))
	if err != nil || most == 0 {
		return refuseTalk(w, http.StatusUnprocessableEntity, "Max cost: enter an amount in dollars, such as 1 or 0.25.")
	}
	tokens, err := h.borrow(r.Context(), v.app.ID, who.Account)
	if err != nil {
		if found := problems(err, page.Fields); found != nil {
			return refuseTalk(w, http.StatusUnprocessableEntity, found[0].Text)
		}
		return gone(err)
	}
	body, err := json.Marshal(map[string]any{
		"model":        form.Get("model"),
		"feature":      form.Get("feature"),
		"instructions": form.Get("instructions"),
		"max_cost_mc":  most,
	})
	if err != nil {
		return fmt.Errorf("console: voice: %w", err)
	}
	answer := h.ask(r.Context(), "/v1/realtime/sessions", string(body), tokens.AccessToken, nil)
	if err := h.Tokens.RevokeToken(context.WithoutCancel(r.Context()), v.app.ID, tokens.RefreshToken); err != nil {
		return err
	}
	var made struct {
		ID     string
		Client json.RawMessage
		Error  struct{ Code, Message string }
	}
	if err := json.Unmarshal(answer.body.Bytes(), &made); err != nil {
		return fmt.Errorf("console: voice: %w", err)
	}
	if answer.status != http.StatusCreated {
		return refuseTalk(w, answer.status, sentence(made.Error.Message)+" ("+made.Error.Code+")")
	}
	at := v.path("/voice/" + made.ID)
	return web.WriteJSON(w, http.StatusCreated, begun{Watch: at, End: at + "/end", Client: made.Client})
}

// A heard is a session as the page shows it now.
type heard struct {
	Text    string  `json:"text"`
	Bad     bool    `json:"bad"` // the text is no good news
	Ended   bool    `json:"ended"`
	Time    string  `json:"time"`
	Spent   string  `json:"spent"`
	Replies []reply `json:"replies"`
}

type reply struct {
	Price  string `json:"price"`
	Detail string `json:"detail"`
	Href   string `json:"href"` // of its receipt
}

// session is GET /developer/apps/{id}/voice/{session}, for the page's script.
func (h *Handler) session(w http.ResponseWriter, r *http.Request, v visit) error {
	s, err := h.voiceSession(r, v)
	if err != nil {
		return err
	}
	out := heard{
		Text:    s.StatusText() + ".",
		Ended:   s.Status == session.Ended,
		Time:    s.Duration(h.Now()),
		Spent:   s.ChargedDisplay,
		Replies: []reply{},
	}
	switch {
	case out.Ended:
		out.Text = "Ended. " + voice.EndReasonText(*s.EndReason) + "."
		out.Bad = *s.EndReason != session.AppEnded && *s.EndReason != session.ClientClosed
	case s.Status == session.Live && !s.Live.Ending:
		out.Text = "Live. Say something."
	}
	for _, x := range s.Receipts {
		detail := ui.Count(x.InputTokens) + " tokens in, " + ui.Count(x.OutputTokens) + " out"
		if x.UsageSource == "estimated" {
			detail += ", estimated"
		}
		out.Replies = append(out.Replies,
			reply{x.UserChargeDisplay, detail, v.path("/requests/" + id.ReplacePrefix(x.ID, id.Ledger, id.Request))})
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// voiceSession returns the session of the path, if it is the app's.
func (h *Handler) voiceSession(r *http.Request, v visit) (voice.Session, error) {
	s, err := h.Voice.GetOfApp(r.Context(), v.app.ID, r.PathValue("session"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.NotFound {
		err = ui.NotFound()
	}
	return s, err
}

// endTalk is POST /developer/apps/{id}/voice/{session}/end: after what is heard now.
func (h *Handler) endTalk(w http.ResponseWriter, r *http.Request, v visit) error {
	s, err := h.voiceSession(r, v)
	if err != nil {
		return err
	}
	if v.app.Tier != apps.Sandbox { // nobody's call but a tester's
		return ui.NotFound()
	}
	if err := h.Voice.End(r.Context(), s.ID, session.AfterHeard); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusAccepted, map[string]bool{"ending": true})
}
