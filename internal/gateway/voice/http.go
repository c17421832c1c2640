package voice

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/mock"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/metrics"
)

// Handler serves voice sessions (spec §4.4) and runs those of this node.
type Handler struct {
	DB           *db.DB
	Ledger       *store.Writer
	Node         string // this process
	NodeURL      string // where other nodes reach it; "" = they cannot
	Callers      *callers.Resolver
	Apps         *apps.Store
	Catalog      *catalog.Source
	Metrics      *metrics.Metrics
	Fee          money.PPM
	Free         tiers.FreeCredit
	Risk         limits.Risk
	SandboxDayMC money.MC
	Idle         time.Duration
	PublicURL    string // how browsers and apps reach the API
	BaseURL      string // the provider's
	Key          string // ours at the provider; "" = there are no live sessions
	Own          func(ctx context.Context, accountID string) (key string, ok bool)
	Client       *http.Client
	Now          func() time.Time
	Log          *slog.Logger

	adopting sync.Mutex // held while a session that nobody runs is taken; before mu
	mu       sync.Mutex
	sessions map[string]*running // of this node
	waiting  map[string]*channel // control channels of sessions that nobody runs yet
	stopping bool
	writes   writes
	work     sync.WaitGroup
	giveUp   context.Context // ends when the node does not wait for its sessions any longer
	abandon  context.CancelFunc
}

// Limits of the routes.
const (
	ticketLife = time.Minute // spec §8
	maxOffer   = 256 << 10
	watchIn    = 2 * time.Second // how long that is kept back for the sideband
)

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	h.sessions, h.waiting = map[string]*running{}, map[string]*channel{}
	h.giveUp, h.abandon = context.WithCancel(context.Background())
	rt.Handle("POST /v1/realtime/sessions", h.create)
	rt.Handle("GET /v1/realtime/sessions/{id}", h.get)
	rt.Handle("POST /v1/realtime/sessions/{id}/end", h.end)
	rt.Handle("POST /v1/realtime/sessions/{id}/offer", h.offer)
	rt.Handle("OPTIONS /v1/realtime/sessions/{id}/offer", preflight)
	rt.Handle("GET /v1/realtime/sessions/{id}/control", h.control)
	rt.Handle("GET /v1/realtime/sessions/{id}/mock", h.mock)
}

// risky says whether an app's connections can spend too fast: fake money cannot.
func (h *Handler) risky(app *apps.App) bool {
	return app.Tier != "" && app.Tier != tiers.Sandbox && h.Risk.Warn > 0
}

// client is what the app gives to the browser; it holds nothing secret but the
// ticket, which is good for one offer (spec §4.4).
type client struct {
	Mode      string  `json:"mode"`
	OfferURL  string  `json:"offer_url"`
	MockURL   *string `json:"mock_url,omitempty"`
	Notice    *string `json:"notice,omitempty"`
	Ticket    string  `json:"ticket"`
	ExpiresAt string  `json:"expires_at"`
}

type created struct {
	ID         string         `json:"id"`
	Status     session.Status `json:"status"`
	Model      string         `json:"model"`
	Mock       bool           `json:"mock"`
	Notice     *string        `json:"notice,omitempty"`
	Client     client         `json:"client"`
	ControlURL string         `json:"control_url"`
}

const notice = "The app is in mock mode: a canned voice answers, billed at sandbox prices."

// caller returns who asks, or 401, 403.
func (h *Handler) caller(r *http.Request) (*callers.Caller, error) {
	who, err := h.Callers.Resolve(r)
	if err != nil {
		return nil, err
	}
	web.Log(r.Context(), slog.String("connection_id", who.ConnectionID), slog.String("app_id", who.App.ID))
	return who, nil
}

func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	who, err := h.caller(r)
	if err != nil {
		return err
	}
	if err := who.CheckAllowed(); err != nil {
		return err
	}
	raw, err := web.ReadBody(r, "application/json", maxBody)
	if err != nil {
		return err
	}
	c, err := parseCreation(raw)
	if err != nil {
		return err
	}
	state, b, err := h.plan(&c, who)
	if err != nil {
		return err
	}
	h.mu.Lock()
	stopping := h.stopping
	h.mu.Unlock()
	if stopping {
		return stopsNow()
	}
	ticket, err := h.open(r.Context(), &state, &b)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusCreated, h.created(&state, ticket))
}

// open stores a new session and makes its first reply's hold; a session whose hold
// does not fit never was.
func (h *Handler) open(ctx context.Context, s *session.State, b *book) (ticket string, err error) {
	now := h.Now()
	s.ID, s.CreatedUS, s.TicketExpiresUS = id.New(id.Voice, now), now.UnixMicro(), now.Add(ticketLife).UnixMicro()
	ticket = "rtt_" + id.NewSecret()
	next, todo := session.Step(*s, session.Tick{}, now) // which wants the hold
	*s = next
	rw := row{
		ID: s.ID, ConnectionID: b.ConnectionID, AccountID: b.AccountID, AppID: b.AppID, Feature: b.Feature, Model: b.Model, Mock: s.Mock,
		TicketUntilUS: s.TicketExpiresUS, State: string(mustJSON(saved{State: *s, Book: *b})), MaxDurationS: int64(s.MaxDuration / time.Second), MaxCostMC: s.MaxCostMC, CreatedUS: s.CreatedUS,
	}
	ok, err := insert(ctx, h.DB, &rw, id.Hash(ticket))
	if err != nil {
		return "", err
	}
	if !ok {
		e := apierr.TooManySessions.On(b.ConnectionID, "this connection has 2 pending or live voice sessions; end one first")
		e.RetryAfter = 10 * time.Second // a ticket may run out
		return "", e
	}
	for _, a := range todo {
		if hold, ok := a.(session.Hold); ok {
			if err := h.first(context.WithoutCancel(ctx), s, b, hold); err != nil {
				if _, refused := errors.AsType[*apierr.Error](err); !refused {
					return "", err // whether it is held is not known: the session ends with its ticket, and gives back what is
				}
				if gone := forget(context.WithoutCancel(ctx), h.DB, s.ID); gone != nil {
					h.Log.ErrorContext(ctx, "a refused voice session was not removed; it ends with its ticket", "session_id", s.ID, "error", gone)
				}
				return "", err
			}
		}
	}
	return ticket, nil
}

// first makes the first reply's hold, and says at whose key's cost.
func (h *Handler) first(ctx context.Context, s *session.State, b *book, a session.Hold) error {
	app, err := h.app(ctx, b)
	if err != nil {
		return err
	}
	requestID, err := h.addReply(s.ID, a.N)
	if err != nil {
		return err
	}
	c, err := b.call(s.ID, a.N, requestID, a.TextTokens, a.AudioTokens)
	if err != nil {
		return err
	}
	d, err := h.demand(b, &app, c, a.TextTokens, a.AudioTokens, h.Now())
	if err != nil {
		return err
	}
	if !s.Mock && app.Tier == tiers.Sandbox && h.Own != nil {
		_, d.HasProviderKey = h.Own(ctx, app.OwnerID)
	}
	res, err := h.Ledger.Do(ctx, d)
	if err != nil {
		return err
	}
	held, _ := session.Step(*s, session.HoldMade{N: a.N, AmountMC: res.Call.HoldMC}, h.Now())
	*s, b.OwnKey = held, res.UseProviderKey
	_, err = h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET state = $1, own_key = $2 WHERE id = $3`, string(mustJSON(saved{*s, *b, &res.Call})), bit(b.OwnKey), s.ID)
	if err != nil { // the row does not know what is held: given back now, or else when the session ends
		_, gone := h.Ledger.Do(ctx, rules.Release{Call: res.Call, Attempt: 1})
		return errors.Join(err, gone)
	}
	return nil
}

func (h *Handler) created(s *session.State, ticket string) created {
	at := h.PublicURL + "/v1/realtime/sessions/" + s.ID
	socket := "ws" + strings.TrimPrefix(at, "http")
	out := created{
		ID: s.ID, Status: session.Pending, Model: s.Config.Model, Mock: s.Mock, ControlURL: socket + "/control",
		Client: client{Mode: "live", OfferURL: at + "/offer", Ticket: ticket, ExpiresAt: timestamp.Format(s.TicketExpiresUS)},
	}
	if s.Mock {
		say, mock := notice, socket+"/mock"
		out.Notice, out.Client.Notice, out.Client.Mode, out.Client.MockURL = &say, &say, "mock", &mock
	}
	return out
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	who, err := h.caller(r)
	if err != nil {
		return err
	}
	s, err := h.Get(r.Context(), who.ConnectionID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, s)
}

// end asks a session to end. Whichever node runs it reads that from its row.
func (h *Handler) end(w http.ResponseWriter, r *http.Request) error {
	who, err := h.caller(r)
	if err != nil {
		return err
	}
	var body struct {
		When string `json:"when"`
	}
	if r.ContentLength != 0 {
		if err := web.ReadJSON(r, &body); err != nil {
			return err
		}
	}
	if body.When == "" {
		body.When = session.AfterHeard
	}
	if body.When != session.AfterHeard && body.When != session.Immediate {
		return invalid("when: must be after_heard or immediate")
	}
	sessionID := r.PathValue("id")
	if _, err := h.Get(r.Context(), who.ConnectionID, sessionID); err != nil {
		return err
	}
	if err := h.End(r.Context(), sessionID, body.When); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusAccepted, map[string]any{"id": sessionID, "ending": true})
}

// End leaves word that a session is to end, AfterHeard or Immediate, and does it at
// once if it can.
func (h *Handler) End(ctx context.Context, sessionID, when string) error {
	r, taken, err := h.askEnd(ctx, sessionID, when)
	if err != nil || r == nil {
		return err
	}
	if !taken {
		r.post(session.EndRequested{Immediate: when == session.Immediate})
		return nil
	}
	select { // it was pending: it ends before this answer
	case <-r.over:
	case <-ctx.Done():
	}
	return nil
}

// askEnd leaves word, and returns the session if this node runs it: taken says that
// nobody did before. Meanwhile the watch can't take it, having read the word first.
func (h *Handler) askEnd(ctx context.Context, sessionID, when string) (r *running, taken bool, err error) {
	h.adopting.Lock()
	defer h.adopting.Unlock()
	if _, err := h.DB.ExecContext(ctx, `UPDATE realtime_sessions SET end_asked = $1 WHERE id = $2 AND status <> 'ended' AND (end_asked IS NULL OR $1 = 'immediate')`, when, sessionID); err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	r = h.sessions[sessionID]
	h.mu.Unlock()
	if r != nil {
		return r, false, nil
	}
	r, err = h.adopt(ctx, sessionID)
	return r, true, err
}

func stopsNow() error {
	e := apierr.Unavailable.Errorf("this node is stopping; try again")
	e.RetryAfter = time.Second
	return e
}

// cors opens the offer, and nothing else, to any origin, without credentials.
func cors(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	h.Set("Access-Control-Allow-Methods", "POST")
	h.Set("Access-Control-Max-Age", "600")
}

func preflight(w http.ResponseWriter, _ *http.Request) error {
	cors(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func invalidTicket() error {
	e := apierr.InvalidTicket.Errorf("the ticket is wrong, expired or used; create a new session")
	e.Challenge = `Bearer realm="purser", error="invalid_token"`
	return e
}

// offer exchanges the browser's SDP offer for the provider's answer, and begins to
// watch the call.
func (h *Handler) offer(w http.ResponseWriter, r *http.Request) error {
	cors(w)
	ticket, err := web.Bearer(r)
	if err != nil {
		return invalidTicket()
	}
	sdp, err := web.ReadBody(r, "application/sdp", maxOffer)
	if err != nil {
		return err
	}
	rw, err := h.ticketed(r.Context(), r.PathValue("id"), ticket)
	if err != nil {
		return err
	}
	if rw.Mock {
		return invalid("this is a mock session: its ticket is for mock_url, not for a WebRTC offer")
	}
	if err := checkOffer(sdp); err != nil {
		return err
	}
	s, err := h.take(r.Context(), rw.ID, ticket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), session.AnswerTimeout)
	defer cancel()
	answer, callID, err := h.call(ctx, &s.book, sdp, s.config)
	if err == nil {
		err = h.called(ctx, rw.ID, callID)
		if err != nil { // nobody else would ever know of the call
			h.work.Go(func() { h.hangUpUnknown(&s.book, rw.ID, callID) })
		}
	}
	if err != nil {
		h.Log.WarnContext(ctx, "the provider rejected the offer", "session_id", rw.ID, "error", err)
		s.post(session.CallRefused{})
		return apierr.ProviderError.Errorf("the provider did not answer the offer; create a new session").WithCause(err)
	}
	s.post(session.CallAnswered{CallID: callID})
	select { // what is said before somebody watches is not billed, so the browser hears a moment later
	case <-s.first:
	case <-s.over:
	case <-time.After(watchIn): // this provider shows a call only when the browser is there
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(answer)
	return web.AlreadyReported(err)
}

// ticketed returns the session of a ticket that may still be used, or 401.
func (h *Handler) ticketed(ctx context.Context, sessionID, ticket string) (row, error) {
	var n int
	err := h.DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM realtime_sessions WHERE id = $1 AND ticket_hash = $2 AND status = 'pending' AND ticket_used_us IS NULL AND ticket_until_us > $3`,
		sessionID, id.Hash(ticket), h.Now().UnixMicro()).Scan(&n)
	if err != nil {
		return row{}, err
	}
	if n == 0 {
		return row{}, invalidTicket()
	}
	return getRow(ctx, h.DB, sessionID)
}

// take spends a ticket and runs its session here.
func (h *Handler) take(ctx context.Context, sessionID, ticket string) (*running, error) {
	h.mu.Lock()
	stopping := h.stopping
	h.mu.Unlock()
	if stopping {
		return nil, stopsNow()
	}
	ok, err := h.useTicket(ctx, sessionID, id.Hash(ticket))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalidTicket()
	}
	s, err := h.load(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	r := h.start(s)
	r.post(session.TicketUsed{})
	return r, nil
}

// checkOffer refuses what is no SDP offer of a call (spec §4.4).
func checkOffer(sdp []byte) error {
	text := strings.ReplaceAll(string(sdp), "\r\n", "\n")
	switch {
	case !strings.HasPrefix(text, "v=0\n"):
		return invalid("body: must be an SDP offer, which begins with v=0")
	case !strings.Contains(text, "\nm=audio "):
		return invalid("body: the offer has no audio; add a microphone track or a receive-only audio transceiver before it is made")
	case !strings.Contains(text, "\nm=application "):
		return invalid("body: the offer has no data channel; make one named oai-events before it is made")
	}
	return nil
}

// mock serves the canned voice (decisions, Voice).
func (h *Handler) mock(w http.ResponseWriter, r *http.Request) error {
	if !upgrade(r) {
		return invalid("this address is a WebSocket")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query: must be well-formed")
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // any page may speak, with a ticket
	if err != nil {
		return web.AlreadyReported(err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxEvent)
	var s *running
	rw, err := h.ticketed(r.Context(), r.PathValue("id"), query.Get("ticket"))
	if err == nil && !rw.Mock {
		return closing(ws, 4001, "this session is not a mock session")
	}
	if err == nil {
		s, err = h.take(r.Context(), rw.ID, query.Get("ticket"))
	}
	if err != nil {
		return h.closeTicket(r.Context(), ws, r.PathValue("id"), err)
	}
	h.serveMock(ws, s)
	return nil
}

// closeTicket says why a mock socket is not served: 4001 bad ticket, 4004 no such
// session, 4009 not to be used any longer.
func (h *Handler) closeTicket(ctx context.Context, ws *websocket.Conn, sessionID string, err error) error {
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.InvalidTicket {
		return closing(ws, websocket.StatusTryAgainLater, "try again")
	}
	rw, err := getRow(ctx, h.DB, sessionID)
	switch {
	case err != nil:
		return closing(ws, 4004, "session not found")
	case rw.Status != session.Pending:
		return closing(ws, 4009, "session is "+string(rw.Status))
	}
	return closing(ws, 4001, "invalid ticket")
}

func closing(ws *websocket.Conn, code websocket.StatusCode, why string) error {
	_ = ws.Close(code, why) // it goes either way
	return nil
}

// serveMock runs the mock voice of a session until the browser or the session ends it.
func (h *Handler) serveMock(ws *websocket.Conn, s *running) {
	call := mock.NewCall(ws, s.config, s.hear)
	defer call.Close()
	s.post(session.CallAnswered{}) // live as soon as the socket is accepted
	s.connect(&line{
		send:  call.Send,
		close: func() { go func() { _ = ws.Close(websocket.StatusNormalClosure, "the session has ended") }() },
	})
	s.post(session.SidebandUp{})
	call.Serve()
	s.post(session.SidebandDown{Gone: true})
}

// upgrade says whether a request asks for a WebSocket.
func upgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}
