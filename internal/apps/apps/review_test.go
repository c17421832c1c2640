package apps

import (
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

func set[T any](v T) web.Field[T] { return web.Field[T]{Set: true, Value: v} }

// Table of what a change of a live app holds back: what users trust it by, and nothing else.
func TestChangesOfLiveAppsWaitForReview(t *testing.T) {
	t.Parallel()
	const home, other = "https://notes.example/cb", "https://evil.example/cb"
	live := App{Tier: LimitedLive, Name: "Notes", RedirectURIs: []string{home}, Profile: Profile{
		DeveloperName: "Notes Ltd", Domain: "notes.example", DomainVerifiedUS: 7, WebsiteURL: "https://notes.example/"}}
	waiting := live
	earlier := "Better Notes"
	waiting.Proposed = Proposal{Name: &earlier, RedirectURIs: []string{home, other}}
	profile := func(c ProfileChange) Change { return Change{ProfileChange: c} }
	for _, c := range []struct {
		what   string
		before App
		change Change
		waits  string
		is     string // of the members that users see, after the change
	}{
		{"a name", live, Change{Name: set("Your Bank")}, "name", "Notes"},
		{"the same name", live, Change{Name: set("Notes")}, "", "Notes"},
		{"the name of before", waiting, Change{Name: set("Notes")}, "redirect_uris", "Notes"},
		{"another name", waiting, Change{Name: set("Bank")}, "name redirect_uris", "Notes"},
		{"something else", waiting, Change{PromptCache: set(true)}, "name redirect_uris", "Notes"},
		{"a developer", live, profile(ProfileChange{DeveloperName: set("OpenAI")}), "developer_name", "Notes Ltd"},
		{"no developer", live, profile(ProfileChange{DeveloperName: web.Field[string]{Set: true, Null: true}}), "", ""},
		{"a domain", live, profile(ProfileChange{Domain: set("bank.example")}), "domain", "notes.example"},
		{"no domain", live, profile(ProfileChange{Domain: set("")}), "", ""},
		{"a website", live, profile(ProfileChange{WebsiteURL: set("https://x.example/")}), "", "https://x.example/"},
		{"another path", live, Change{RedirectURIs: set([]string{home, home + "2"})}, "", home + "2"},
		{"another port", live, Change{RedirectURIs: set([]string{"https://NOTES.example:8443/"})}, "", "8443"},
		{"another host", live, Change{RedirectURIs: set([]string{home, other})}, "redirect_uris", home},
		{"no host", waiting, Change{RedirectURIs: set([]string{})}, "name", "Notes"},
		{"the host of before", waiting, Change{RedirectURIs: set([]string{home})}, "name", home},
		{"a host of a sandbox app", App{Name: "Notes", Tier: Sandbox},
			Change{Name: set("N"), RedirectURIs: set([]string{other})}, "", other},
	} {
		after, err := c.change.applyTo(c.before, rules{offered: func(string) bool { return true }})
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		after = c.change.hold(c.before, after)
		p := after.Profile
		shown := append([]string{after.Name, p.DeveloperName, p.VerifiedDomain(), p.WebsiteURL}, after.RedirectURIs...)
		got := strings.Join(after.Proposed.Members(), " ")
		if got != c.waits || !strings.Contains(strings.Join(shown, " "), c.is) {
			t.Errorf("%s: %q wait, and users see %q", c.what, got, shown)
		}
	}
	// What is approved is what was proposed, and a domain is verified again.
	change := Change{Name: set("Bank"), RedirectURIs: set([]string{other}),
		ProfileChange: ProfileChange{Domain: set("bank.example"), DeveloperName: set("A Bank")}}
	after, err := change.applyTo(live, rules{})
	if err != nil {
		t.Fatal(err)
	}
	is := change.hold(live, after).AsProposed()
	if is.Name != "Bank" || is.Profile.DeveloperName != "A Bank" || is.Profile.Domain != "bank.example" ||
		is.Profile.VerifiedDomain() != "" || !slices.Equal(is.RedirectURIs, []string{other}) {
		t.Errorf("approved: %+v", is)
	}
}
