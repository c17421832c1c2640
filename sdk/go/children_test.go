package purser

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestChildIsRepeated makes and ends a child, each with an answer 500 first, and sends the same key and body again. The
// child's token is that of a client, and a list of children goes on where its pages end.
func TestChildIsRepeated(t *testing.T) {
	t.Parallel()
	var seen []string
	failed := map[string]bool{}
	client, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Authorization"), " ",
			r.Header.Get("Idempotency-Key"), " ", string(body)))
		switch {
		case r.Method == http.MethodPost && !failed[r.URL.Path]:
			failed[r.URL.Path] = true
			w.WriteHeader(http.StatusInternalServerError)
		case r.Method == http.MethodGet && r.URL.Query().Get("starting_after") == "":
			w.Header().Set("Link", `</v1/connection/children?limit=1&starting_after=chd_2>; rel="next"`)
			io.WriteString(w, `[{"id": "chd_2"}]`)
		case r.Method == http.MethodGet:
			io.WriteString(w, `[{"id": "chd_1"}]`)
		default:
			io.WriteString(w, `{"id": "chd_1", "status": "active", "remaining_mc": 50, "token": "cht_1"}`)
		}
	})
	c, key := client.WithToken("token"), "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	child, err := c.CreateChild(t.Context(), NewChild{AmountMC: 50, ExpiresIn: time.Hour, Label: "Researcher",
		Models: []string{"gpt-6-luna"}, IdempotencyKey: key})
	if err != nil || child.ID != "chd_1" || child.RemainingMC != 50 {
		t.Fatalf("CreateChild = %+v, %v", child, err)
	}
	if _, err := client.WithToken(child.Token).EndChild(t.Context(), "chd_1"); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for child, err := range c.Children(t.Context(), ListOptions{PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, child.ID)
	}
	if !slices.Equal(ids, []string{"chd_2", "chd_1"}) {
		t.Errorf("children %q", ids)
	}
	made := "POST /v1/connection/children Bearer token " + key +
		` {"amount_mc":50,"expires_in":3600,"label":"Researcher","models":["gpt-6-luna"]}`
	ended := "POST /v1/connection/children/chd_1/end Bearer cht_1  "
	list := "GET /v1/connection/children Bearer token  "
	if want := []string{made, made, ended, ended, list, list}; !slices.Equal(seen, want) {
		t.Errorf("requests %q, want %q", seen, want)
	}
}
