package voice

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	maxSDPBytes     = 256 << 10       // of an offer or an answer
	maxEventBytes   = 4 << 20         // far above any event of the provider
	providerTimeout = 5 * time.Second // of a request, a dial or a write, but for an offer
)

// A Provider is the realtime provider (OpenAI): where its calls are made, and by which key.
type Provider struct {
	BaseURL      string
	PlatformKeys []string // none = only apps with a provider key have live sessions
	// ChooseKey returns the platform key for a new session of a model; nil = the first one.
	ChooseKey func(model string) string
	// DeveloperKey returns an account's own provider key; "" = it has none. Nil: no account has one.
	DeveloperKey func(ctx context.Context, accountID string) (key string, err error)
	// MakeRefusal reads an error answer to a request by a key, of which its texts say nothing.
	MakeRefusal func(key string, status int, h http.Header, body []byte) *provider.Error
	// Transport sends the requests; nil = http.DefaultTransport. No redirect is followed: it would take our key along.
	Transport   http.RoundTripper
	Identifiers accounts.SafetyIdentifiers
}

// errNoProviderKey says that there is no key for the provider.
var errNoProviderKey = errors.New("voice: the provider is not configured")

// nameKey names a platform key in the state of a session, without telling it.
func nameKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// chooseKey returns the name of the platform key for a new session, which stays with its key: another account could not
// hang up its call.
func (p *Provider) chooseKey(model string) string {
	switch {
	case len(p.PlatformKeys) == 0:
		return ""
	case p.ChooseKey == nil || len(p.PlatformKeys) == 1:
		return nameKey(p.PlatformKeys[0])
	}
	return nameKey(p.ChooseKey(model))
}

// findKey returns the platform key of a name, or the first one if the operator has removed it; "" = there is none.
func (p *Provider) findKey(name string) string {
	for _, key := range p.PlatformKeys {
		if name != "" && nameKey(key) == name {
			return key
		}
	}
	if len(p.PlatformKeys) == 0 {
		return ""
	}
	return p.PlatformKeys[0]
}

// keyFor returns the provider key that serves a session.
func (p *Provider) keyFor(ctx context.Context, t *billingTerms) (string, error) {
	key := p.findKey(t.PlatformKey)
	if t.DeveloperKey {
		var err error
		if key, err = p.DeveloperKey(ctx, t.OwnerID); err != nil {
			return "", err
		}
	}
	if key == "" {
		return "", errNoProviderKey
	}
	return key, nil
}

// isSameKey reports whether the key that serves a session now is the one that it began with. Another one may be of
// another account of the provider, which knows no call of the session, whether or not the call goes on.
func (p *Provider) isSameKey(ctx context.Context, t *billingTerms) bool {
	name := t.PlatformKey
	if t.DeveloperKey {
		name = t.OwnKey
	}
	key, err := p.keyFor(ctx, t)
	return err == nil && (name == "" || nameKey(key) == name) // sessions of before had no name
}

// postRequest sends a request for a session to the provider, by this key. The caller closes the response.
func (p *Provider) postRequest(
	ctx context.Context, t *billingTerms, key, path, contentType string, body io.Reader,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.BaseURL+path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, values := range p.makeHeader(t, key) {
		req.Header[name] = values
	}
	return p.client().Do(req)
}

// client returns the client of a request to the provider.
func (p *Provider) client() *http.Client {
	return &http.Client{
		Transport:     p.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// makeHeader returns the header of a request for a session. It names the account for the provider's abuse control.
func (p *Provider) makeHeader(t *billingTerms, key string) http.Header {
	return http.Header{
		"Authorization":            {"Bearer " + key},
		"Openai-Safety-Identifier": {p.Identifiers.Identify(t.AccountID)},
	}
}

// createCall makes a call of the browser's offer (provider notes D.1). It returns the provider's
// answer and its id of the call. A refusal is a *provider.Error.
func (p *Provider) createCall(
	ctx context.Context, t *billingTerms, offer []byte, c session.Config,
) (answer []byte, callID string, err error) {
	body, contentType, err := encodeOffer(offer, c)
	if err != nil {
		return nil, "", err
	}
	key, err := p.keyFor(ctx, t)
	if err != nil {
		return nil, "", err
	}
	resp, err := p.postRequest(ctx, t, key, "/realtime/calls", contentType, body)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxSDPBytes))
	if err != nil {
		return nil, "", err
	}
	location := resp.Header.Get("Location")
	callID = location[strings.LastIndexByte(location, '/')+1:]
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, "", p.MakeRefusal(key, resp.StatusCode, resp.Header, answer)
	}
	if resp.StatusCode != http.StatusCreated || callID == "" {
		return nil, "", upstream.NewFailure(resp.StatusCode,
			fmt.Errorf("the answer of a call has no address: %s", upstream.Describe(answer)))
	}
	return answer, callID, nil
}

// encodeOffer renders an offer and the session that it is for as a multipart form.
func encodeOffer(offer []byte, c session.Config) (body *bytes.Buffer, contentType string, err error) {
	body = &bytes.Buffer{}
	form := multipart.NewWriter(body)
	for _, part := range []struct {
		name, contentType string
		data              []byte
	}{
		{"sdp", "application/sdp", offer},
		{"session", "application/json", mustJSON(c.RealtimeSession(true))},
	} {
		w, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf(`form-data; name=%q`, part.name)},
			"Content-Type":        {part.contentType},
		})
		if err != nil {
			return nil, "", err
		}
		if _, err := w.Write(part.data); err != nil {
			return nil, "", err
		}
	}
	return body, form.FormDataContentType(), form.Close()
}

// attachSideband opens the sideband of a call. Gone says that the provider does not know the call.
func (p *Provider) attachSideband(
	ctx context.Context, t *billingTerms, callID string,
) (ws *websocket.Conn, gone bool, err error) {
	key, err := p.keyFor(ctx, t)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, p.BaseURL+"/realtime?call_id="+url.QueryEscape(callID), &websocket.DialOptions{
		HTTPClient: p.client(),
		HTTPHeader: p.makeHeader(t, key),
	})
	if err != nil {
		return nil, resp != nil && resp.StatusCode == http.StatusNotFound && p.isSameKey(ctx, t), err
	}
	ws.SetReadLimit(maxEventBytes)
	return ws, false, nil
}

// errUnknownCall says that the provider knows no such call. One that had a sideband is over. One that had none may not
// have begun: the provider may find a call only when its browser has connected (provider notes D.2).
var errUnknownCall = errors.New("voice: the provider knows no such call")

// errOtherKey says that a key does not find a call that another key has made.
var errOtherKey = errors.New("voice: the key that made the call is not there, and another one does not find it")

// hangUp ends a call. The error may be errUnknownCall or errOtherKey.
func (p *Provider) hangUp(ctx context.Context, t *billingTerms, callID string) error {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	key, err := p.keyFor(ctx, t)
	if err != nil {
		return err
	}
	resp, err := p.postRequest(ctx, t, key, "/realtime/calls/"+url.PathEscape(callID)+"/hangup", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		if !p.isSameKey(ctx, t) {
			return errOtherKey
		}
		return errUnknownCall
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("voice: the provider answered a hang-up with %d", resp.StatusCode)
	}
	return nil
}
