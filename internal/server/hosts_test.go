package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/config"
)

// TestPagesAreAtTheirHost asks each host for pages: each has its own alone, and sends visitors to where the others are.
// What is for everybody is at each, and so is everything at a node's own address, or where one host is all of them.
func TestPagesAreAtTheirHost(t *testing.T) {
	t.Parallel()
	three := config.Config{
		BaseURL:      "https://api.example.com",
		AuthURL:      "https://auth.example.com",
		DashboardURL: "https://My.example.com",
	}
	two := config.Config{BaseURL: "https://x.example", AuthURL: "https://x.example", DashboardURL: "https://my.example"}
	api := config.Config{BaseURL: "https://a.example", AuthURL: "https://x.example", DashboardURL: "https://x.example"}
	one := two
	one.DashboardURL = one.BaseURL
	for _, tt := range []struct {
		c            config.Config
		target, want string
	}{
		{three, "https://api.example.com/dashboard?days=7", "https://My.example.com/dashboard?days=7"},
		{three, "https://API.example.com/sign-in?next=%2Factivity", "https://My.example.com/sign-in?next=%2Factivity"},
		{three, "https://api.example.com/operator", "https://My.example.com/operator"},
		{three, "https://api.example.com/oauth/authorize?a=b", "https://auth.example.com/oauth/authorize?a=b"},
		{three, "https://api.example.com/device?user_code=B", "https://auth.example.com/device?user_code=B"},
		{three, "https://api.example.com/", ""},
		{three, "https://api.example.com/docs/quickstart", ""},
		{three, "https://api.example.com/status.json", ""},
		{three, "https://api.example.com/statuses", "https://My.example.com/statuses"},
		{three, "https://my.example.com/dashboard", ""},
		{three, "https://my.example.com/sign-in", ""},
		{three, "https://my.example.com/docs", ""},
		{three, "https://my.example.com/oauth/authorize?a=b", "https://auth.example.com/oauth/authorize?a=b"},
		{three, "https://auth.example.com/oauth/authorize", ""},
		{three, "https://auth.example.com/sign-up/confirm/token", ""},
		{three, "https://auth.example.com/reset/token", ""},
		{three, "https://auth.example.com/dashboard", "https://My.example.com/dashboard"},
		{three, "https://auth.example.com/operator/apps", "https://My.example.com/operator/apps"},
		{three, "https://auth.example.com/status", ""},
		{three, "https://10.0.0.7:8080/dashboard", ""}, // a node's own address
		{two, "https://x.example/activity", "https://my.example/activity"},
		{two, "https://x.example/sign-in", ""},
		{two, "https://x.example/device", ""},
		{two, "https://my.example/device", "https://x.example/device"},
		{api, "https://a.example/device", "https://x.example/device"},
		{api, "https://x.example/dashboard", ""},
		{api, "https://x.example/device", ""},
	} {
		if got := pageHome(tt.c)(httptest.NewRequest(http.MethodGet, tt.target, nil)); got != tt.want {
			t.Errorf("%s is at %q, want %q", tt.target, got, tt.want)
		}
	}
	if pageHome(one) != nil {
		t.Error("one host has no other one to send visitors to")
	}
}
