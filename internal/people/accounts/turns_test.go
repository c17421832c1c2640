package accounts

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

// TestDownloadsInTurn: while a download of an account is being made, its next one is 429; while the node makes as many
// as it may, those of others are 503. Both say when to try again, and do so without waiting. What has ended makes room.
func TestDownloadsInTurn(t *testing.T) {
	t.Parallel()
	var s Sessions
	begun, end := make(chan struct{}), make(chan struct{})
	download := s.InTurn(func(w http.ResponseWriter, r *http.Request, _ Account) error {
		if r.URL.Query().Has("slow") {
			begun <- struct{}{}
			<-end
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	router := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	router.HandlePage("GET /download", func(w http.ResponseWriter, r *http.Request) error {
		return download(w, r, Account{ID: r.URL.Query().Get("account")})
	})
	get := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/download?account="+query, nil))
		return w
	}
	slow := make(chan int, 2)
	expect := func(account string, status int) {
		t.Helper()
		w, refused := get(account), status != http.StatusNoContent
		if w.Code != status || refused != (w.Header().Get("Retry-After") == "5") {
			t.Errorf("the download of %s is answered by %d, Retry-After %q, want %d", account, w.Code,
				w.Header().Get("Retry-After"), status)
		}
	}
	for n, account := range []string{"a", "b"} {
		go func() { slow <- get(account + "&slow").Code }()
		<-begun
		expect(account, http.StatusTooManyRequests)
		expect("c", []int{http.StatusNoContent, http.StatusServiceUnavailable}[n])
	}
	close(end)
	for range 2 {
		if code := <-slow; code != http.StatusNoContent {
			t.Errorf("a download that was let through is answered by %d", code)
		}
	}
	for _, account := range []string{"a", "b", "c"} {
		expect(account, http.StatusNoContent)
	}
}
