package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
)

// A recorder is the response to a request that the server answers without a connection.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// serve answers a request by the server's own router.
func (m *Maker) serve(r *http.Request) *recorder {
	r.RemoteAddr, r.RequestURI = "127.0.0.1:1", r.URL.RequestURI()
	r.URL.Scheme, r.URL.Host = "", "" // as net/http leaves them
	answer := &recorder{header: http.Header{}}
	m.handler.ServeHTTP(answer, r)
	return answer
}

// newRequest returns a request to the server with a JSON body; nil = none.
func (m *Maker) newRequest(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var text io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, m.Server.Config.BaseURL+path, text)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// call sends a request with the credentials that sign sets, and decodes the response into into. An error response is an
// error.
func (m *Maker) call(ctx context.Context, method, path string, body any, sign func(*http.Request), into any) error {
	r, err := m.newRequest(ctx, method, path, body)
	if err != nil {
		return err
	}
	sign(r)
	answer := m.serve(r)
	if answer.status >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, answer.status, answer.body.Bytes())
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.body.Bytes(), into)
}

// asOperator signs a request with the token of the operator's API.
func (m *Maker) asOperator(r *http.Request) {
	r.Header.Set("Authorization", "Bearer "+m.Server.Config.OperatorTokens[0])
}

// sign signs a request with the app's credentials.
func (a *app) sign(r *http.Request) { r.SetBasicAuth(a.ClientID, a.secret) }

// submit posts a form of the pages in a user's session, and returns where it leads.
func (m *Maker) submit(ctx context.Context, session *http.Cookie, path string, form url.Values) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Server.Config.DashboardURL+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(session)
	answer := m.serve(r)
	if answer.status != http.StatusSeeOther {
		return "", fmt.Errorf("POST %s: %d", path, answer.status)
	}
	return answer.header.Get("Location"), nil
}

// infer makes a call on a connection. It returns the id of the request, or "" if the call was
// refused, which the server has recorded.
func (m *Maker) infer(ctx context.Context, token string, c call) (requestID string, err error) {
	r, err := m.newRequest(ctx, http.MethodPost, "/v1/ai/"+c.model, map[string]any{
		"max_tokens": c.maxTokens,
		"messages":   []map[string]string{{"role": "user", "content": c.text}},
	})
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", id.NewUUID())
	r.Header.Set("X-Svc-Feature", c.feature)
	answer := m.serve(r)
	if answer.status >= 500 || answer.status == http.StatusUnauthorized || answer.status == http.StatusBadRequest {
		return "", fmt.Errorf("%s: %d %s", c.model, answer.status, answer.body.Bytes())
	}
	if answer.status >= 300 {
		return "", nil
	}
	return answer.header.Get("X-Request-Id"), nil
}
