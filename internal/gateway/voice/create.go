package voice

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// ticketTTL is how long a browser may use its ticket (contract §8).
const ticketTTL = time.Minute

// mockNotice goes to the app and the browser of a mock session.
const mockNotice = "The app is in mock mode: a canned voice answers, billed at sandbox prices."

// createdSession answers POST /v1/realtime/sessions.
type createdSession struct {
	ID         string         `json:"id"`
	Status     session.Status `json:"status"`
	Model      string         `json:"model"`
	Mock       bool           `json:"mock"`
	Notice     *string        `json:"notice,omitempty"`
	Client     browserAccess  `json:"client"`
	ControlURL string         `json:"control_url"`
}

// browserAccess is what the app gives to the browser. Its only secret is the ticket, which is good
// for one offer (contract §4.4).
type browserAccess struct {
	Mode      string  `json:"mode"`
	OfferURL  string  `json:"offer_url"`
	MockURL   *string `json:"mock_url,omitempty"`
	Notice    *string `json:"notice,omitempty"`
	Ticket    string  `json:"ticket"`
	ExpiresAt string  `json:"expires_at"`
}

// createSession serves POST /v1/realtime/sessions.
func (h *Handler) createSession(w http.ResponseWriter, r *http.Request) error {
	who, err := h.resolveCaller(r)
	if err != nil {
		return err
	}
	if err := who.CheckAllowed(); err != nil {
		return err
	}
	raw, err := web.ReadBody(r, "application/json", maxBodyBytes)
	if err != nil {
		return err
	}
	c, err := parseCreation(raw)
	if err != nil {
		return err
	}
	saved, err := h.planSession(&c, who)
	if err != nil {
		return err
	}
	if c.Transcription != nil {
		if err := h.planTranscription(r.Context(), &c, who, &saved); err != nil {
			return err
		}
	}
	if saved.Terms.Mock {
		if err := h.Supervisor.node.freeRate.Check(who.App.OwnerID); err != nil {
			return err
		}
	}
	ticket, err := h.Supervisor.openSession(r.Context(), &saved)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusCreated, h.renderCreated(&saved.State, ticket))
}

// planTranscription decides by which model and prices what the user says is written down. The app must have switched
// transcripts on, and the user must have allowed them on the last consent screen of the connection.
func (h *Handler) planTranscription(
	ctx context.Context, c *creationRequest, who *callers.Caller, saved *savedSession,
) error {
	if !who.App.Transcripts {
		return apierr.InvalidRequest.On(who.ConnectionID,
			"transcription: this app has no transcripts; switch transcripts on in its settings")
	}
	allowed, err := h.Tokens.AllowsTranscripts(ctx, who.App.ID, who.AccountID, who.ConnectionID)
	if err != nil {
		return err
	}
	if !allowed {
		return apierr.InvalidRequest.On(who.ConnectionID,
			"transcription: the user has not allowed transcripts on this connection; send them through the "+
				"authorization again")
	}
	m, rates, ok := h.Catalog.Current().Find(c.Transcription.Model, h.Now())
	if !ok || !m.Transcription {
		return invalid("transcription.model: must be %s",
			strings.Join(h.Catalog.Current().Transcribing(h.Now()), " or "))
	}
	if !policy.AllowsModel(&who.App, m.ID) {
		return apierr.ModelNotAllowed.On(who.ConnectionID, "model %q is not among the app's allowed models", m.ID)
	}
	saved.State.Config.Transcription = c.Transcription
	saved.Terms.TranscriptModel, saved.Terms.TranscriptRates = m.ID, rates.Snapshot()
	return saved.Terms.parseRates()
}

// openSession stores a new session and makes its first reply's hold. A session whose hold is refused
// leaves no trace.
func (s *Supervisor) openSession(ctx context.Context, saved *savedSession) (ticket string, err error) {
	if err := s.checkAccepting(); err != nil {
		return "", err
	}
	now := s.Now()
	saved.Terms.PlatformKey = s.node.provider.chooseKey(saved.Terms.Model)
	state := &saved.State
	state.ID, state.CreatedUS = id.New(id.Voice, now), now.UnixMicro()
	state.TicketExpiresUS = now.Add(ticketTTL).UnixMicro()
	ticket, state.EventKey = "rtt_"+id.NewSecret(), id.NewSecret()
	next, actions := session.Step(*state, session.Tick{}, now) // it asks for the first hold
	*state = next
	ok, err := s.insertSession(ctx, newRow(saved), id.Hash(ticket))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", s.refuseAnother(ctx, saved, actions)
	}
	for _, a := range actions {
		if hold, ok := a.(session.Hold); ok {
			if err := s.holdFirst(context.WithoutCancel(ctx), saved, hold); err != nil {
				return "", err
			}
		}
	}
	return ticket, nil
}

// refuseAnother returns the error of a session beyond the open ones: 402 if the connection is exhausted,
// because then ending one would not help (decision 008), or else 429.
func (s *Supervisor) refuseAnother(ctx context.Context, saved *savedSession, actions []session.Action) error {
	terms := &saved.Terms
	conn, err := store.GetConnection(ctx, s.DB, terms.ConnectionID)
	if err != nil {
		return err
	}
	for _, a := range actions {
		hold, ok := a.(session.Hold)
		if !ok {
			continue
		}
		amountMC, err := terms.holdAmount(hold, terms.Margin, terms.Fee)
		if err != nil {
			return err
		}
		if err := (rules.Hold{Call: rules.Call{HoldMC: amountMC}}).CheckExhausted(&conn); err != nil {
			return err
		}
	}
	return s.tooManySessions(ctx, Holder{terms.ConnectionID, terms.ChildID})
}

// tooManySessions returns 429 that names the holder's sessions which have not ended. None of them ends by itself
// earlier than a ticket expires.
func (s *Supervisor) tooManySessions(ctx context.Context, h Holder) error {
	open, err := s.listOpen(ctx, h)
	if err != nil {
		return err
	}
	e := apierr.TooManySessions.On(h.ConnectionID,
		"this connection has %d pending or live voice sessions; end one of error.details.sessions first", maxSessions)
	e.RetryAfter, e.Details = ticketTTL, map[string]any{"sessions": open}
	return e
}

// newRow returns the row of a session that is not yet stored.
func newRow(saved *savedSession) *row {
	state, terms := &saved.State, &saved.Terms
	return &row{
		ID:              state.ID,
		ConnectionID:    terms.ConnectionID,
		AccountID:       terms.AccountID,
		AppID:           terms.AppID,
		Feature:         terms.Feature,
		Model:           terms.Model,
		Mock:            state.Mock,
		TicketExpiresUS: state.TicketExpiresUS,
		State:           string(mustJSON(saved)),
		MaxDurationS:    int64(state.MaxDuration / time.Second),
		MaxCostMC:       state.MaxCostMC,
		ChildID:         terms.ChildID,
		CreatedUS:       state.CreatedUS,
	}
}

// holdFirst makes the first reply's hold. If it is refused, the session is removed. After any other
// error it is not known whether the hold is made: the session ends with its ticket, which releases the
// hold.
func (s *Supervisor) holdFirst(ctx context.Context, saved *savedSession, hold session.Hold) error {
	err := s.node.biller.holdFirst(ctx, saved, hold)
	if tooDear, ok := errors.AsType[errOverMaxCost](err); ok {
		err = invalid("%v", tooDear)
	}
	if _, refused := errors.AsType[*apierr.Error](err); refused {
		if err := s.deletePending(ctx, saved.State.ID); err != nil {
			s.node.log.ErrorContext(ctx, "refused voice session not removed",
				"session_id", saved.State.ID, "error", err)
		}
	}
	return err
}

func (h *Handler) renderCreated(s *session.State, ticket string) createdSession {
	address := h.PublicURL + "/v1/realtime/sessions/" + s.ID
	socket := "ws" + strings.TrimPrefix(address, "http")
	out := createdSession{
		ID:         s.ID,
		Status:     session.Pending,
		Model:      s.Config.Model,
		Mock:       s.Mock,
		ControlURL: socket + "/control",
		Client: browserAccess{
			Mode:      "live",
			OfferURL:  address + "/offer",
			Ticket:    ticket,
			ExpiresAt: timestamp.Format(s.TicketExpiresUS),
		},
	}
	if s.Mock {
		notice, mockURL := mockNotice, socket+"/mock"
		out.Notice, out.Client.Notice, out.Client.Mode, out.Client.MockURL = &notice, &notice, "mock", &mockURL
	}
	return out
}
