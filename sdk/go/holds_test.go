package purser

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
)

// TestHoldIsRepeated sends a hold, its capture and its release again after a 500, with the same key and body, and
// decodes what comes back.
func TestHoldIsRepeated(t *testing.T) {
	t.Parallel()
	var seen []string
	failed := map[string]bool{}
	client, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprint(r.URL.Path, " ", r.Header.Get("Idempotency-Key"), " ",
			r.Header.Get("X-Svc-Feature"), " ", string(body)))
		if !failed[r.URL.Path] {
			failed[r.URL.Path] = true
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		io.WriteString(w, `{"id": "req_1", "status": "captured", "amount_mc": 50, "captured_mc": 30}`)
	})
	c, key := client.WithToken("token"), "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	hold, err := c.Hold(t.Context(), NewHold{AmountMC: 50, Description: "Search", Feature: "chat", IdempotencyKey: key})
	if err != nil || hold.ID != "req_1" || hold.CapturedMC == nil || *hold.CapturedMC != 30 {
		t.Fatalf("Hold = %+v, %v", hold, err)
	}
	if _, err := c.CaptureHold(t.Context(), "req_1", 30); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Holds.Release(t.Context(), "req_1"); err != nil {
		t.Fatal(err)
	}
	first, capture := "/v1/holds "+key+` chat {"amount_mc":50,"description":"Search"}`,
		`/v1/holds/req_1/capture   {"amount_mc":30}`
	release := "/v1/holds/req_1/release   "
	if want := []string{first, first, capture, capture, release, release}; !slices.Equal(seen, want) {
		t.Errorf("requests %q, want %q", seen, want)
	}
}
