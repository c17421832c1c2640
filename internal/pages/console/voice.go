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

// voicePages run voice sessions for test accounts.
type voicePages struct {
	playgroundPages
	Voice *voice.Supervisor
}

func (h voicePages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/playground/voice", access.requireApp(apps.RunCalls, h.showVoice))
	rt.HandlePage("POST "+appPath+"/playground/voice", access.requireApp(apps.RunCalls, h.startSession))
	rt.HandlePage("GET "+appPath+"/voice/{session}", access.requireApp(apps.View, h.showSession))
	rt.HandlePage("POST "+appPath+"/voice/{session}/end", access.requireApp(apps.RunCalls, h.endSession))
}

// voicePage returns the page with the form for a session and the past sessions, and the test accounts of the form.
func (h voicePages) voicePage(r *http.Request, v visit) (ui.Voice, []sandbox.TestAccount, error) {
	page := ui.Voice{Console: v.newPage(r, "Playground", "/playground"), Playgrounds: v.playgroundTabs("/voice")}
	fields, testAccounts, why, err := h.callFields(r.Context(), v, true)
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
	return page, testAccounts, err
}

// showVoice is GET /developer/apps/{id}/playground/voice.
func (h voicePages) showVoice(w http.ResponseWriter, r *http.Request, v visit) error {
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

// A startedSession is the answer to the page's script: the client's ticket and two addresses.
type startedSession struct {
	Watch  string          `json:"watch"`
	End    string          `json:"end"`
	Client json.RawMessage `json:"client"` // as the app's server would pass it to its browser
}

// writeVoiceError answers the page's script with an error.
func writeVoiceError(w http.ResponseWriter, status int, text string) error {
	return web.WriteJSON(w, status, map[string]string{"error": text})
}

// startSession is POST /developer/apps/{id}/playground/voice: it creates a session as an app's
// server would, for a test account's connection. The access token stays on this node.
func (h voicePages) startSession(w http.ResponseWriter, r *http.Request, v visit) error {
	page, testAccounts, err := h.voicePage(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	account, err := chosenAccount(testAccounts, form)
	if err != nil {
		return err
	}
	maxCost, err := money.Parse(form.Get("max_cost"))
	if err != nil || maxCost == 0 {
		return writeVoiceError(w, http.StatusUnprocessableEntity,
			"Max cost: enter an amount in dollars, such as 1 or 0.25.")
	}
	tokens, err := h.Tokens.ConnectTestAccount(r.Context(), v.app.ID, account.ID, playgroundCap)
	if err != nil {
		if found := formProblems(err, page.Fields); found != nil {
			return writeVoiceError(w, http.StatusUnprocessableEntity, found[0].Text)
		}
		return notFound(err)
	}
	body, err := json.Marshal(map[string]any{
		"model":        form.Get("model"),
		"feature":      form.Get("feature"),
		"instructions": form.Get("instructions"),
		"max_cost_mc":  maxCost,
	})
	if err != nil {
		return fmt.Errorf("console: voice: %w", err)
	}
	answer := h.postJSON(r.Context(), "/v1/realtime/sessions", string(body), tokens.AccessToken, nil)
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
		return writeVoiceError(w, answer.status, ui.Sentence(made.Error.Message)+" ("+made.Error.Code+")")
	}
	at := v.path("/voice/" + made.ID)
	return web.WriteJSON(w, http.StatusCreated, startedSession{Watch: at, End: at + "/end", Client: made.Client})
}

// A sessionState is a session as the page's script shows it.
type sessionState struct {
	Text    string  `json:"text"`
	Bad     bool    `json:"bad"` // Text reports a failure
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

// showSession is GET /developer/apps/{id}/voice/{session}, for the page's script.
func (h voicePages) showSession(w http.ResponseWriter, r *http.Request, v visit) error {
	s, err := h.voiceSession(r, v)
	if err != nil {
		return err
	}
	out := sessionState{
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

// voiceSession returns the session of the path; 404 unless it is the app's.
func (h voicePages) voiceSession(r *http.Request, v visit) (voice.Session, error) {
	s, err := h.Voice.GetOfApp(r.Context(), v.app.ID, r.PathValue("session"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.NotFound {
		err = ui.NotFound()
	}
	return s, err
}

// endSession is POST /developer/apps/{id}/voice/{session}/end: after what is sessionState now.
func (h voicePages) endSession(w http.ResponseWriter, r *http.Request, v visit) error {
	s, err := h.voiceSession(r, v)
	if err != nil {
		return err
	}
	if v.app.Tier != apps.Sandbox { // only sessions of test accounts end here
		return ui.NotFound()
	}
	holder := voice.Holder{ConnectionID: s.ConnectionID}
	if err := h.Voice.End(r.Context(), holder, s.ID, session.AfterHeard); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusAccepted, map[string]bool{"ending": true})
}
