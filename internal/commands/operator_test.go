package commands

import (
	"fmt"
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

// TestOperatorReconcile waits for the end of a comparison with Stripe, shows how far it is, and fails if something
// could not be booked.
func TestOperatorReconcile(t *testing.T) {
	t.Parallel()
	for _, unbooked := range []int{0, 2} {
		asked := 0
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			switch asked++; r.Method + " " + r.URL.Path {
			case "POST /v1/operator/reconciliations":
				if string(body) != `{"since":"2026-11-01T00:00:00Z"}` {
					t.Errorf("%s", body)
				}
			case "GET /v1/operator/reconciliations/rcn_1":
			default:
				t.Errorf("%s %s", r.Method, r.URL)
			}
			status := map[bool]string{true: "ended", false: "open"}[asked == 3]
			_, _ = fmt.Fprintf(w, `{"id":"rcn_1","status":%q,"stage":"refunds","compared":7,"booked":1,"unbooked":%d}`,
				status, unbooked)
		}))
		t.Cleanup(api.Close)
		code, out, text := command([]string{"PURSER_OPERATOR_TOKEN=x"}, "operator", "--url", api.URL, "reconcile",
			"--since", "2026-11-01")
		want := exitOK
		if unbooked > 0 {
			want = exitFailed
		}
		if code != want || !strings.Contains(out, `"status": "ended"`) ||
			strings.Count(text, "refunds: 7 compared, 1 booked") != 1 ||
			strings.Contains(text, "2 objects of Stripe could not be booked") != (unbooked > 0) {
			t.Errorf("exit %d\n%s%s", code, out, text)
		}
	}
}
