package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOperatorAccount shows an account by its safety identifier, and says why there is none.
func TestOperatorAccount(t *testing.T) {
	t.Parallel()
	identifier, token := strings.Repeat("a1", 32), strings.Repeat("t", 32)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%s %s with %q", r.Method, r.URL, r.Header.Get("Authorization"))
		}
		text := `{"account_id":"wac_1","connections":[]}`
		if r.URL.Path != "/v1/operator/accounts/"+identifier {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error":{"code":"not_found","message":"no such account"}}`
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
	}))
	defer api.Close()
	environ := []string{"PURSER_OPERATOR_TOKEN=" + token}
	code, out, text := command(environ, "operator", "--url", api.URL, "account", identifier)
	if code != exitOK || out != "{\n  \"account_id\": \"wac_1\",\n  \"connections\": []\n}\n" || text != "" {
		t.Errorf("exit %d\n%s%s", code, out, text)
	}
	code, out, text = command(environ, "operator", "--url", api.URL, "account", "../log")
	if code == exitOK || out != "" || !strings.Contains(text, "no such account") {
		t.Errorf("unknown: exit %d\n%s%s", code, out, text)
	}
	if code, _, text = command(nil, "operator", "account", identifier); code != exitUsage ||
		!strings.Contains(text, "set PURSER_OPERATOR_TOKEN") {
		t.Errorf("without a token: exit %d\n%s", code, text)
	}
}
