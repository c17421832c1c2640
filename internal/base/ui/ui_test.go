package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

const hostile = `"><script>alert(1)</script><i>'`

var hostileFunds = Funds{
	AppID:       hostile,
	App:         hostile,
	Sandbox:     true,
	Status:      hostile,
	Why:         hostile,
	Cap:         hostile,
	Used:        hostile,
	Held:        hostile,
	Remaining:   hostile,
	Logo:        hostile,
	PausedSince: Moment{hostile, hostile},
}

var hostileCards = []ConnectionCard{
	{
		Funds:         hostileFunds,
		ID:            hostile,
		From:          hostile,
		Request:       hostile,
		RequestTarget: hostile,
		Week:          []int64{1, 2},
		WeekSpent:     Amount{hostile, hostile},
	},
	{Funds: Funds{App: hostile, Status: "frozen"}, ID: hostile, Resumable: true},
	{Funds: Funds{App: hostile, Status: "frozen"}, ID: hostile},
	{Funds: Funds{App: hostile, Status: "revoked"}, ID: hostile},
}

var hostileDays = []ActivityDay{{hostile, hostile, Amount{hostile, hostile}, Amount{hostile, hostile}, true,
	[]ActivityGroup{
		{hostile, hostile, hostile, hostile, Amount{hostile, hostile}, []Row{hostileRow, hostileRow}},
		{hostile, hostile, "", hostile, Amount{hostile, hostile}, []Row{hostileRow}},
	}}}

var hostileRow = Row{hostile, "javascript:alert(1)", hostile, hostile, hostile, hostile, hostile, hostile, hostile,
	hostile, Amount{hostile, hostile}, false}

// every page, filled with text that would like to be markup.
func hostilePages() []Page {
	problems := []Problem{{"spend_cap", hostile}, {"email", hostile}, {"test_account", hostile}}
	return []Page{
		SignIn{Next: "/" + hostile, Email: hostile},
		SignIn{Next: "/" + hostile, Passkeys: Passkeys{hostile, hostile, true}},
		SignIn{Next: "/", Email: hostile, Errors: problems},
		Consent{
			Email:      hostile,
			App:        hostile,
			Logo:       hostile,
			Sandbox:    true,
			Public:     true,
			UserCode:   hostile,
			Purposes:   slices.Repeat([]Purpose{{hostile, hostile, hostile}}, 9),
			Choices:    []Choice{{hostile, hostile, hostile, true}},
			Live:       &Live{hostile, hostile, hostile, true},
			Behind:     Behind{hostile, hostile, "javascript:alert(1)", "javascript:alert(2)", "javascript:alert(3)"},
			Asked:      hostile,
			Available:  hostile,
			OfYour:     true,
			Amounts:    []AmountChoice{{hostile, hostile, hostile, true, hostile, hostile, hostile}},
			SpendCap:   hostile,
			CapHint:    hostile,
			DailyLimit: hostile,
			DailyHint:  hostile,
			Models:     []string{hostile, hostile},
			Providers:  hostile,
			Price:      hostile,
			Dashboard:  hostile,
			ReturnHost: hostile,
			ReturnTo:   "https://a.example.com/",
			Action:     "/oauth/authorize?" + url.QueryEscape(hostile),
			Errors:     problems,
		},
		Status{
			State:       hostile,
			Unreachable: true,
			At:          Moment{hostile, hostile},
			Groups: []StatusGroup{{hostile, []StatusService{{
				Name:   hostile,
				Title:  hostile,
				State:  hostile,
				Uptime: hostile,
				Hours:  []StatusHour{{hostile, "bad", hostile}, {hostile, hostile, hostile}},
			}}}},
			Incidents: []StatusIncident{
				{hostile, hostile, hostile, hostile, Moment{hostile, hostile}, nil},
				{hostile, hostile, hostile, hostile, Moment{hostile, hostile}, &Moment{hostile, hostile}},
			},
		},
		Consent{
			Email:     hostile,
			App:       hostile,
			Asked:     hostile,
			Available: hostile,
			OfYour:    true,
			Purposes:  []Purpose{{hostile, hostile, hostile}},
			Amounts:   []AmountChoice{{hostile, hostile, hostile, true, hostile, "", "1"}},
			ReturnTo:  "https://a.example.com/",
		},
		ConnectDevice{Email: hostile, UserCode: hostile, Errors: append(problems, Problem{"user_code", hostile})},
		Message{
			Heading: hostile,
			Text:    hostile,
			Detail:  hostile,
			Switch:  hostile,
			Link:    &Link{"javascript:alert(1)", hostile},
		},
		Home{
			Shell:      Shell{Email: hostile},
			BaseURL:    "https://a.example.com",
			AuthURL:    hostile,
			Dev:        true,
			ConnectURL: "javascript:alert(1)",
		},
		Connections{
			Person: Person{Shell{Email: hostile, Developer: true, Operator: true, Section: hostile}, hostile, hostile},
			Live:   hostileCards,
			Ended:  hostileCards,
			Tabs:   []Tab{{"javascript:alert(1)", hostile, true}},
			More:   true,
			Done:   hostile,
		},
		Connections{},
		Approval{
			Person:    Person{Shell{Email: hostile, Developer: true, Operator: true, Section: Connected}, hostile, "/"},
			Funds:     hostileFunds,
			Status:    "pending",
			Reason:    hostile,
			Asked:     hostile,
			Target:    hostile,
			Needs:     hostile,
			Left:      hostile,
			Available: hostile,
			Change:    []CapRow{{hostile, hostile, hostile, hostile, hostile, hostile, 10, 5}},
			Errors:    problems,
		},
		Approval{Funds: hostileFunds, Status: "pending", ConnectionID: hostile, Missing: hostile},
		Approval{Funds: hostileFunds, Status: "denied", Decided: hostile, From: hostile, Again: true},
		Increase{
			Person: Person{Shell{
				Email:     hostile,
				Developer: true,
				Operator:  true,
				Section:   Connected,
			}, hostile, "/"},
			Funds:         hostileFunds,
			ConnectionID:  hostile,
			Request:       hostile,
			RequestTarget: hostile,
			SpendCap:      hostile,
			DailyLimit:    hostile,
			CapHint:       hostile,
			Saved:         true,
			Errors:        problems,
		},
		Increase{Funds: Funds{App: hostile, Status: "revoked"}},
		Increase{
			Funds:   hostileFunds,
			Caps:    []Tab{{hostile, hostile, true}},
			Change:  []CapRow{{Name: hostile, Cap: hostile, Used: hostile, Held: hostile, Left: hostile}},
			Preview: []Difference{{hostile, hostile, hostile}},
			Missing: hostile,
		},
		Review{
			Person: Person{Shell{Email: hostile, Developer: true, Operator: true, Section: Connected}, hostile, "/"},
			Funds:  Funds{App: hostile, Status: "frozen", Sandbox: true},
			Today:  hostile,
			Calls:  []Spent{{hostile, hostile, hostile, hostile, hostile, true, true}},
			Speeds: []Choice{{hostile, hostile, hostile, true}},
			Errors: problems,
		},
		Review{Funds: Funds{App: hostile, Status: "active"}, ConnectionID: hostile, Done: "resume"},
		Review{Funds: Funds{App: hostile, Status: "revoked"}},
		Dashboard{
			Shell:     Shell{Email: hostile},
			Available: Amount{hostile, hostile},
			Open:      2,
			Active:    1,
			Done:      "pause",
			Cards:     hostileCards,
			Compared:  hostile,
			Summary:   []SummaryLine{{hostile, Link{"javascript:alert(1)", hostile}}},
			Pace:      Pace{hostile, hostile, 7},
			AutoTopUp: hostile,
			Tasks:     []Task{{hostile, hostile, false, &Link{"javascript:alert(1)", hostile}}},
			Running: []RunningCall{
				{
					ID:       hostile,
					StopPath: hostile,
					App:      hostile,
					Model:    hostile,
					Feature:  hostile,
					When:     hostile,
					Shown:    hostile,
					Held:     Amount{hostile, hostile},
				},
				{App: hostile, Voice: true},
			},
			Chart: Chart{
				ID:    hostile,
				Title: hostile,
				Desc:  hostile,
				Bars: []Bar{{
					Label:  hostile,
					Value:  5,
					Note:   hostile,
					Parts:  []int64{4, 1},
					Before: 3,
					Href:   "javascript:alert(1)",
				}},
				Heads:   [3]string{hostile, hostile, hostile},
				Series:  []string{hostile, hostile},
				Compare: true,
			},
			Sandbox: true,
			Shares: []Shares{{
				hostile, hostile, []Share{{hostile, Amount{hostile, hostile}, hostile, 5, hostile}}, 3,
			}},
			Concerns: []Concern{{hostile, hostile, hostile, "javascript:alert(1)", hostile}},
			Recent:   hostileDays,
		},
		Dashboard{Shell: Shell{Email: hostile}, NewHere: true, AutoTopUpOff: hostile},
		Activity{
			Shell: Shell{Email: hostile},
			List: List{
				Path:   "javascript:alert(1)",
				Label:  hostile,
				Filter: []ListFilter{{Name: hostile, Label: hostile, Chosen: hostile, Problem: hostile}},
				Search: &ListSearch{hostile, hostile, hostile, hostile, hostile, "javascript:alert(1)", nil},
				Days:   hostileDays,
				Older:  "javascript:alert(1)",
				Newest: "javascript:alert(1)",
				CSV:    "javascript:alert(1)",
			},
			StatementHref: "javascript:alert(1)",
			Errors:        problems,
		},
		Activity{
			List: List{CSV: "javascript:alert(1)", Empty: hostile},
			Statement: &Statement{
				Month:    hostile,
				ByApp:    []Share{{hostile, Amount{hostile, hostile}, hostile, 3, ""}},
				Spent:    Amount{hostile, hostile},
				Calls:    hostile,
				Previous: &Link{"javascript:alert(1)", hostile},
				Next:     &Link{"javascript:alert(1)", hostile},
				File:     "javascript:alert(1)",
			},
		},
		Activity{},
		Proof{
			Shell:    Shell{Email: hostile},
			Path:     "javascript:alert(1)",
			For:      hostile,
			Entry:    hostile,
			When:     hostile,
			ID:       hostile,
			Back:     "javascript:alert(1)",
			File:     "javascript:alert(1)",
			Key:      hostile,
			Position: 7,
		},
		Receipt{
			Shell:       Shell{Email: hostile},
			Path:        "javascript:alert(1)",
			For:         hostile,
			Heading:     hostile,
			Badge:       hostile,
			Status:      hostile,
			Explanation: []string{hostile},
			ID:          hostile,
			When:        hostile,
			App:         hostile,
			Connection:  hostile,
			Model:       hostile,
			Feature:     hostile,
			Lines:       []ReceiptLine{{hostile, hostile, hostile, hostile}},
			Sum: []Step{
				{hostile, hostile, Amount{hostile, hostile}, false},
				{hostile, hostile, Amount{hostile, hostile}, true},
			},
			Facts: []Fact{{hostile, hostile}},
			Links: []Link{{"javascript:alert(1)", hostile}},
		},
		Connection{
			Person: Person{Shell{
				Email:     hostile,
				Developer: true,
				Operator:  true,
				Section:   Connected,
			}, hostile, hostile},
			Funds:         hostileFunds,
			ConnectionID:  hostile,
			Daily:         hostile,
			Today:         hostile,
			Since:         hostile,
			Calls:         hostile,
			Request:       hostile,
			RequestTarget: hostile,
			Rows:          []Row{hostileRow},
			Done:          "freeze",
			Children: []Child{{hostile, hostile, 2, Amount{hostile, hostile}, Amount{hostile, hostile},
				Amount{hostile, hostile}, Moment{hostile, hostile}}},
		},
		Pause{
			Shell: Shell{
				Email:     hostile,
				Developer: true,
				Operator:  true,
				Section:   Overview,
			},
			Apps:    []string{hostile},
			Running: 2,
		},
		Revoke{
			Person: Person{Shell{
				Email:     hostile,
				Developer: true,
				Operator:  true,
				Section:   Connected,
			}, hostile, hostile},
			Funds:        hostileFunds,
			ConnectionID: hostile,
		},
		Callback{Code: hostile, State: hostile, Issuer: hostile, Curl: hostile},
		Callback{Denied: hostile, Description: hostile},
		Callback{},
		Outbox{},
		Outbox{Mails: []OutboxRow{{"javascript:alert(1)", hostile, hostile, hostile}}},
		OutboxMail{
			To:          hostile,
			Subject:     hostile,
			Created:     hostile,
			Text:        hostile,
			HTML:        hostile,
			Unsubscribe: "javascript:alert(1)",
			Links:       []string{"javascript:alert(1)"},
			Path:        "javascript:alert(1)",
			View:        "html",
		},
		OutboxMail{To: hostile, Subject: hostile, Text: hostile, HTML: hostile, View: "source"},
		Form{
			Shell:   Shell{Email: hostile},
			Heading: hostile,
			Lead:    hostile,
			Note:    hostile,
			Action:  "/a",
			Next:    hostile,
			Button:  hostile,
			Danger:  true,
			Errors:  problems,
			Fields: []Input{{
				Name:     "email",
				Label:    hostile,
				Type:     "text",
				Complete: "off",
				Value:    hostile,
				Hint:     hostile,
				Code:     true,
			}},
			Links: []Link{{"javascript:alert(1)", hostile}},
		},
		Search{
			Shell:   Shell{Email: hostile},
			Query:   hostile,
			Results: []Found{{"javascript:alert(1)", hostile, hostile, "search"}},
		},
		SettingsIndex{Shell: Shell{Email: hostile, Developer: true}, Saved: hostile, TwoStep: true},
		Security{
			Shell:    Shell{Email: hostile},
			Saved:    hostile,
			TwoStep:  true,
			Sessions: []Device{{ID: hostile, Name: hostile, Started: hostile, Seen: hostile}},
			Events:   []SecurityEvent{{hostile, hostile, hostile, hostile, hostile, true}},
		},
		Security{
			Shell:    Shell{Email: hostile},
			Passkeys: Passkeys{hostile, "javascript:alert(1)//", false},
			Keys:     []Key{{hostile, hostile, hostile, hostile}},
		},
		Passkey{
			Passkeys: Passkeys{hostile, "javascript:alert(1)//", false},
			Heading:  hostile,
			Lead:     hostile,
			Action:   "/a",
			Next:     hostile,
			Options:  hostile,
			Button:   hostile,
			Cancel:   hostile,
			Back:     "javascript:alert(1)",
		},
		TwoStepSetup{Shell: Shell{Email: hostile}, Secret: hostile, Size: 33, Path: hostile, Errors: problems},
		YourData{Shell: Shell{Email: hostile}, Errors: problems},
		CloseAccount{
			Shell:     Shell{Email: hostile},
			Password:  true,
			Obstacles: []Obstacle{{hostile, &Link{"javascript:alert(1)", hostile}}},
		},
		CloseAccount{
			Shell:        Shell{Email: hostile},
			Password:     true,
			Connections:  1,
			Apps:         2,
			TestAccounts: 3,
			Notes:        []Obstacle{{hostile, &Link{"javascript:alert(1)", hostile}}},
			Rest:         hostile,
			Typed:        hostile,
			Errors:       []Problem{{"confirm", hostile}, {"present", hostile}},
		},
		RecoveryCodes{Shell: Shell{Email: hostile}, Codes: []string{hostile}},
		Notices{Shell: Shell{Email: hostile}, On: true, Saved: true, TestAccount: true},
		Unsubscribe{Action: "javascript:alert(1)"},
		filled[CardRefund](),
		filled[Payouts](),
		filled[TopUpForm](), filled[TopUpAuto](), filled[TopUpList](), filled[TopUpReceipt](), filled[Report](),
		filled[Forbidden](), filled[MemberList](), changeable[MemberList](), filled[Invitation](),
		changeable[AppSettings](), changeable[FeatureList](), changeable[EndpointList](),
		changeable[EndpointPage](), changeable[DeliveryPage](), changeable[GoLive](),
		filled[Developer](), filled[Enable](), filled[FormPage](), filled[Secret](), filled[Confirm](),
		filled[AppOverview](),
		filled[AppSettings](), filled[FeatureList](), filled[TestAccounts](),
		filled[ProviderKeys](), filled[EndpointList](), filled[EndpointPage](), filled[DeliveryPage](), filled[EventCatalogue](),
		filled[Analytics](),
		filled[RequestLog](), filled[CallPage](), filled[GoLive](), filled[Playground](),
		filled[Voice](), talkable(filled[Voice]()), rendered(filled[Guide]()), filled[DocsSearch](),
		filled[Reference](), filled[ModelList](),
	}
}

// talkable is the page with its script.
func talkable(v Voice) Voice { v.Why = ""; return v }

// rendered is the guide with a body that is HTML already.
func rendered(g Guide) Guide { g.Body = "<p>Text.</p>"; return g }

// filled is a page whose every text, in lists and parts of it, too, is hostile.
func filled[P Page]() (p P) {
	fill(reflect.ValueOf(&p).Elem())
	return p
}

// changeable is filled for an account that can change everything on the page.
func changeable[P Page]() (p P) {
	v := reflect.ValueOf(&p).Elem()
	fill(v)
	for _, name := range []string{"Only", "OnlySecret", "OnlySwitch"} {
		if f := v.FieldByName(name); f.IsValid() {
			f.SetString("")
		}
	}
	return p
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() { // a page fills the others itself
				fill(v.Field(i))
			}
		}
	}
}

// No page is left out.
func TestEveryPageIsFilled(t *testing.T) {
	t.Parallel()
	left := maps.Clone(pages)
	for _, p := range hostilePages() {
		delete(left, p.name())
	}
	for name := range left {
		t.Errorf("hostilePages lacks %s", name)
	}
}

var (
	ours = regexp.MustCompile(
		`<script src="/assets/(?:passkeys\.[0-9a-f]{12}\.js" integrity="sha256-[^"]+" data-party="[^"]*"|[a-z]+\.[0-9a-f]{12}\.js" integrity="sha256-[^"]+") defer></script>`)
	active = regexp.MustCompile(`(?i)<script|<i>|\sstyle=|\son[a-z]+=|href="javascript:`)
	inputs = regexp.MustCompile(`<input[^>]*>`)
	idOf   = regexp.MustCompile(`\sid="([^"]+)"`)
)

// No page runs what it was told, each has one heading and a way past the header,
// and every field has its label.
func TestPagesAreSafeAndLabelled(t *testing.T) {
	t.Parallel()
	for _, p := range hostilePages() {
		w := httptest.NewRecorder()
		if err := Render(w, http.StatusTeapot, p); err != nil {
			t.Fatal(err)
		}
		page, what := ours.ReplaceAllString(w.Body.String(), ""), fmt.Sprintf("%T", p)
		if w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			w.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
		if found := active.FindString(page); found != "" {
			t.Errorf("%s: holds %q", what, found)
		}
		policy := w.Header().Get("Content-Security-Policy")
		_, talks := p.(Voice) // to which its handler allows the script (web.AllowVoice)
		if scripted := strings.Contains(w.Body.String(), "<script src="); !talks &&
			scripted != strings.Contains(policy, "script-src 'self';") {
			t.Errorf("%s: scripts %t, policy %q", what, scripted, policy)
		}
		for element, want := range map[string]int{
			"<h1>":                              1,
			"<main id=\"main\"":                 1,
			"<a class=\"skip\" href=\"#main\">": 1,
			"\n  <title>":                       1,
			"<html lang=\"en\">":                1,
		} {
			if got := strings.Count(page, element); got != want {
				t.Errorf("%s: %d times %s, want %d", what, got, element, want)
			}
		}
		for _, input := range inputs.FindAllString(page, -1) {
			// the last two stand inside of their label
			if strings.Contains(input, `type="hidden"`) || strings.Contains(input, `type="radio"`) ||
				strings.Contains(input, `type="checkbox"`) {
				continue
			}
			id := idOf.FindStringSubmatch(input)
			if id == nil || !strings.Contains(page, ` for="`+id[1]+`">`) {
				t.Errorf("%s: no label for %s", what, input)
			}
		}
	}
}

// A form's redirects may go to the app and where it sends people on, over https
// unless the app registered plain http.
func TestConsentFormMayReachTheApp(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"https://app.example.com/cb": "form-action 'self' https:",
		"http://127.0.0.1:3000/cb":   "form-action 'self' https: http:",
	} {
		rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		rt.HandlePage("GET /", func(w http.ResponseWriter, _ *http.Request) error {
			return Render(w, 200, Consent{ReturnTo: to})
		})
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("Content-Security-Policy"); !strings.HasSuffix(got, "; "+want) {
			t.Errorf("%s: policy %q, want %q at its end", to, got, want)
		}
	}
}

// Only a page with a live part runs a script, and only from us.
func TestLivePages(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		"active":  "script-src 'self'; connect-src 'self'; default-src 'none'; style-src 'self';",
		"revoked": "default-src 'none'; style-src 'self';",
	} {
		rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		Mount(rt)
		rt.HandlePage("GET /", func(w http.ResponseWriter, _ *http.Request) error {
			return Render(w, 200, Connection{Funds: Funds{Status: status}})
		})
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		policy, src := w.Header().Get("Content-Security-Policy"),
			regexp.MustCompile(`<script src="([^"]+)" integrity="sha256-[^"]+" defer></script>`).FindStringSubmatch(
				w.Body.String())
		if !strings.HasPrefix(policy, want) || strings.Contains(policy, "unsafe") ||
			(src != nil) != (status == "active") {
			t.Errorf("%s: script %v under %q", status, src, policy)
		}
		if src == nil {
			continue
		}
		w = httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest("GET", src[1], nil))
		if w.Code != 200 || w.Header().Get("Content-Type") != "text/javascript; charset=utf-8" ||
			w.Body.Len() < 10_000 {
			t.Errorf("%s: %d %v", src[1], w.Code, w.Header())
		}
	}
}

// The style sheet that pages name is there, and may be kept for good.
func TestAssets(t *testing.T) {
	t.Parallel()
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(RenderError)
	Mount(rt)
	rt.HandlePage("GET /", func(w http.ResponseWriter, _ *http.Request) error { return Render(w, 200, Home{}) })
	rt.HandlePage("GET /sign-in", func(w http.ResponseWriter, _ *http.Request) error {
		return Render(w, 200, SignIn{Passkeys: Passkeys{Party: "purser.example"}})
	})
	rt.HandlePage("GET /voice", func(w http.ResponseWriter, _ *http.Request) error {
		return Render(w, 200, Voice{Console: Console{App: &ConsoleApp{}}})
	})
	rt.HandlePage("GET /broken", func(http.ResponseWriter, *http.Request) error { return errors.New("a secret cause") })
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	links := regexp.MustCompile(`<link rel="(?:stylesheet|icon)" href="([^"]+)"`).FindAllStringSubmatch(
		get("/").Body.String(), -1)
	if len(links) != 2 {
		t.Fatalf("the page names %d assets, want 2", len(links))
	}
	for i, kind := range []string{"text/css; charset=utf-8", "image/svg+xml"} {
		w := get(links[i][1])
		if w.Code != 200 || w.Header().Get("Content-Type") != kind ||
			w.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", links[i][1], w.Code, w.Header())
		}
	}
	for _, page := range []string{"/sign-in", "/voice"} {
		tag := regexp.MustCompile(`<script src="([^"]+)" integrity="([^"]+)"`).FindStringSubmatch(
			html.UnescapeString(get(page).Body.String()))
		if tag == nil {
			t.Fatalf("%s names no script", page)
		}
		js := get(tag[1])
		if sum := sha256.Sum256(js.Body.Bytes()); js.Code != 200 ||
			tag[2] != "sha256-"+base64.StdEncoding.EncodeToString(sum[:]) ||
			js.Header().Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("%s: %d %v, not %s", tag[1], js.Code, js.Header(), tag[2])
		}
	}
	w := get("/broken")
	if page := w.Body.String(); w.Code != 500 || strings.Contains(page, "secret cause") ||
		!strings.Contains(page, "Request req_") || !strings.Contains(page, "<h1>") {
		t.Errorf("the page of an unknown error: %d %s", w.Code, page)
	}
}

// The pair of the sample link fits, and the command survives a shell whatever the
// address holds.
func TestDevCallback(t *testing.T) {
	t.Parallel()
	d := Dev{
		BaseURL:      "http://127.0.0.1:1",
		AuthURL:      "http://127.0.0.1:1",
		DashboardURL: "http://127.0.0.1:1",
		ClientID:     "cid_1",
		ClientSecret: "s'$(false)",
	}
	u, err := url.Parse(d.ConnectURL())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	sum := sha256.Sum256([]byte(devVerifier))
	if q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		q.Get("redirect_uri") != d.RedirectURI() {
		t.Errorf("the sample link does not fit the command: %v", q)
	}
	nasty := `c'; echo "broken" $(echo out) #`
	command := d.curl(nasty, q.Get("state"))
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c",
		`curl() { for a; do printf '%s\n' "$a"; done; }; `+command).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-s", "-u", "cid_1:s'$(false)", "-d", "grant_type=authorization_code", "--data-urlencode",
		"code=" + nasty,
		"--data-urlencode", "redirect_uri=" + d.RedirectURI(), "-d", "code_verifier=" + devVerifier,
		"http://127.0.0.1:1/oauth/token"}
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); strings.Join(got, "\n") != strings.Join(want,
		"\n") {
		t.Errorf("the shell sees %q, want %q", got, want)
	}
	if strings.Contains(d.curl("c", "another state"), devVerifier) {
		t.Error("the sample verifier is shown for a request that did not use it")
	}
}
