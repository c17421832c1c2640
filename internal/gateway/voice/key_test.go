package voice

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/people/accounts"
)

// TestCallOfAnotherKey: a provider that answers 404 to a key which did not make the call has not said that the call is
// gone. Neither a platform key that the operator replaced nor a developer's ends the hanging up.
func TestCallOfAnotherKey(t *testing.T) {
	t.Parallel()
	ids, err := accounts.NewSafetyIdentifiers(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	own := "own 1"
	p := &Provider{
		BaseURL:      srv.URL,
		PlatformKeys: []string{"platform 1"},
		DeveloperKey: func(context.Context, string) (string, error) { return own, nil },
		Identifiers:  ids,
	}
	platform := &billingTerms{AccountID: "wac_1", PlatformKey: p.chooseKey("m")}
	developer := &billingTerms{AccountID: "wac_1", DeveloperKey: true, OwnKey: nameKey(own)}
	before := &billingTerms{AccountID: "wac_1"} // of a version that named no key
	wants := func(what string, terms *billingTerms, isGone bool) {
		t.Helper()
		want := errOtherKey
		if isGone {
			want = errUnknownCall
		}
		if err := p.hangUp(t.Context(), terms, "rtc_1"); !errors.Is(err, want) {
			t.Errorf("%s, hang-up: %v, want %v", what, err, want)
		}
		if _, gone, err := p.attachSideband(t.Context(), terms, "rtc_1"); err == nil || gone != isGone {
			t.Errorf("%s, sideband: gone %t, %v", what, gone, err)
		}
	}
	wants("the operator's key", platform, true)
	wants("the developer's key", developer, true)
	p.PlatformKeys = []string{"platform 2", "platform 3"}
	own = "own 2"
	wants("another key of the operator", platform, false)
	wants("another key of the developer", developer, false)
	wants("a session of before", before, true)
	p.PlatformKeys = append(p.PlatformKeys, "platform 1") // it is back
	wants("the operator's key again", platform, true)
}
