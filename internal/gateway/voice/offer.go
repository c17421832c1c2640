package voice

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// maxAnswerDelay is how long the SDP answer waits for the sideband. It cannot wait until then in any
// case: the provider may find the call only when the browser has connected.
const maxAnswerDelay = 2 * time.Second

// allowAnyOrigin opens the offer, and no other route, to pages of any origin, without credentials. Pages may read the
// headers of the answer: clients of OpenAI take the name of the call from its Location.
func allowAnyOrigin(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Location, Retry-After, Svc-Version, X-Request-Id, X-Should-Retry")
}

// preflightOffer serves OPTIONS /v1/realtime/sessions/{id}/offer. A page may send any header: clients add their own,
// such as X-OpenAI-Agents-SDK or traceparent.
func preflightOffer(w http.ResponseWriter, r *http.Request) error {
	allowAnyOrigin(w)
	h := w.Header()
	h.Set("Access-Control-Allow-Headers",
		strings.Join(append([]string{"Authorization", "Content-Type"}, askedHeaders(r)...), ", "))
	h.Set("Access-Control-Allow-Methods", "POST")
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Bounds of the names that the answer of a preflight repeats.
const (
	maxAskedHeaders = 32
	maxHeaderName   = 64 // bytes

	// headerChars are those of a header's name (RFC 9110, section 5.6.2).
	headerChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
)

// askedHeaders returns the names of the headers that a preflight asks for. A browser sends nothing else.
func askedHeaders(r *http.Request) (names []string) {
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Access-Control-Request-Headers"), ","), ",") {
		name = strings.TrimSpace(name)
		if isName := name != "" && len(name) <= maxHeaderName && strings.Trim(name, headerChars) == ""; isName &&
			len(names) < maxAskedHeaders {
			names = append(names, name)
		}
	}
	return names
}

// exchangeOffer serves POST /v1/realtime/sessions/{id}/offer: it exchanges the browser's SDP offer for
// the provider's answer.
func (h *Handler) exchangeOffer(w http.ResponseWriter, r *http.Request) error {
	allowAnyOrigin(w)
	ticket, err := web.Bearer(r)
	if err != nil {
		return invalidTicket()
	}
	offer, err := web.ReadBody(r, "application/sdp", maxSDPBytes)
	if err != nil {
		return err
	}
	saved, err := h.checkTicket(r.Context(), r.PathValue("id"), ticket)
	if err != nil {
		return err
	}
	if saved.Mock {
		return invalid("this is a mock session: its ticket is for mock_url, not for a WebRTC offer")
	}
	if err := checkOffer(offer); err != nil {
		return err
	}
	run, err := h.Supervisor.startByTicket(r.Context(), saved.ID, ticket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), session.AnswerTimeout)
	defer cancel()
	answer, err := run.placeCall(ctx, offer)
	if err != nil {
		return err
	}
	select { // audio before the sideband is attached is not metered
	case <-run.attached:
	case <-run.stopped:
	case <-time.After(maxAnswerDelay):
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Location", "/v1/realtime/sessions/"+saved.ID)
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(answer)
	return web.AlreadyReported(err)
}

// checkTicket returns the session of a ticket that may still be used, or 401.
func (h *Handler) checkTicket(ctx context.Context, sessionID, ticket string) (row, error) {
	usable, err := h.Supervisor.isTicketUsable(ctx, sessionID, id.Hash(ticket))
	if err != nil {
		return row{}, err
	}
	if !usable {
		return row{}, invalidTicket()
	}
	reason, err := h.Supervisor.haltReason(ctx, sessionID)
	if err != nil {
		return row{}, err
	}
	if reason != "" {
		e := invalidTicket()
		e.Message = "the session can no longer start: " + reason
		return row{}, e
	}
	return getRow(ctx, h.Supervisor.DB, sessionID)
}

// checkOffer refuses what is no SDP offer of a call (contract §4.4).
func checkOffer(sdp []byte) error {
	text := strings.ReplaceAll(string(sdp), "\r\n", "\n")
	switch {
	case !strings.HasPrefix(text, "v=0\n"):
		return invalid("body: must be an SDP offer, which begins with v=0")
	case !strings.Contains(text, "\nm=audio "):
		return invalid("body: the offer has no audio; " +
			"add a microphone track or a receive-only audio transceiver before it is made")
	case !strings.Contains(text, "\nm=application "):
		return invalid("body: the offer has no data channel; make one named oai-events before it is made")
	}
	return nil
}
