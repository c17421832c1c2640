package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/config"
)

// TestPagesAreAtTheirHost asks each of three hosts for pages and for the API: the API's own host has no pages of users,
// and sends visitors to where they are. A service with one host has everything there.
func TestPagesAreAtTheirHost(t *testing.T) {
	t.Parallel()
	three := config.Config{
		BaseURL:      "https://api.example.com",
		AuthURL:      "https://auth.example.com",
		DashboardURL: "https://my.example.com",
	}
	one := config.Config{BaseURL: "https://x.example", AuthURL: "https://x.example", DashboardURL: "https://x.example"}
	for _, tt := range []struct {
		c            config.Config
		target, want string
	}{
		{three, "https://api.example.com/dashboard?days=7", "https://my.example.com/dashboard?days=7"},
		{three, "https://API.example.com/sign-in?next=%2Factivity", "https://my.example.com/sign-in?next=%2Factivity"},
		{three, "https://api.example.com/operator", "https://my.example.com/operator"},
		{three, "https://api.example.com/oauth/authorize?a=b", "https://auth.example.com/oauth/authorize?a=b"},
		{three, "https://api.example.com/device?user_code=B", "https://auth.example.com/device?user_code=B"},
		{three, "https://api.example.com/", ""},
		{three, "https://api.example.com/docs/quickstart", ""},
		{three, "https://api.example.com/status.json", ""},
		{three, "https://api.example.com/statuses", "https://my.example.com/statuses"},
		{three, "https://my.example.com/dashboard", ""},
		{three, "https://auth.example.com/oauth/authorize", ""},
		{three, "https://10.0.0.7:8080/dashboard", ""}, // a node's own address
	} {
		if got := pageHome(tt.c)(httptest.NewRequest(http.MethodGet, tt.target, nil)); got != tt.want {
			t.Errorf("%s is at %q, want %q", tt.target, got, tt.want)
		}
	}
	if pageHome(one) != nil {
		t.Error("one host has no other one to send visitors to")
	}
}
