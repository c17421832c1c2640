package golive_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/apitest"
)

// A PKCE verifier and the challenge that is made of it (RFC 7636, appendix B).
const (
	verifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// post sends a form with an app's credentials and returns the status.
func post(t *testing.T, address, form string, c apitest.Client) int {
	req, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(form))
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(c.User, c.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}
