package identity_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/oidctest"
)

// The users at the provider.
var (
	proved   = oidctest.Person{Subject: "1", Email: person, Verified: true}
	unproved = oidctest.Person{Subject: "2", Email: person}
	impostor = oidctest.Person{Subject: "3", Email: person, Verified: true}
	other    = oidctest.Person{Subject: "4", Email: "other@example.com", Verified: true}
	nameless = oidctest.Person{Subject: "5"}
)

// A browser keeps cookies, follows pages with a Refresh header, and stops at redirects.
type browser struct {
	*http.Client
	s *site
}

func (s *site) browser() *browser {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, s}
}

// ask sends a request to one of our pages or to the provider.
func (b *browser) ask(method, address string, pairs ...string) (answer, http.Header) {
	b.s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	if strings.HasPrefix(address, "/") {
		address = b.s.URL + address
	}
	req, err := http.NewRequestWithContext(b.s.t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		b.s.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.Do(req)
	if err != nil {
		b.s.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		b.s.t.Fatal(err)
	}
	return answer{
		status:     resp.StatusCode,
		to:         resp.Header.Get("Location"),
		page:       string(body),
		retryAfter: resp.Header.Get("Retry-After"),
	}, resp.Header
}

func (b *browser) get(path string) answer {
	b.s.t.Helper()
	a, _ := b.ask("GET", path)
	return a
}

func (b *browser) post(path string, pairs ...string) answer {
	b.s.t.Helper()
	a, _ := b.ask("POST", path, pairs...)
	return a
}

// leave starts the sign-in and returns the URL at the provider.
func (b *browser) leave(path string, pairs ...string) string {
	b.s.t.Helper()
	a, h := b.ask("POST", path, pairs...)
	to, ok := strings.CutPrefix(h.Get("Refresh"), "0; url=")
	if !ok || a.status != 200 {
		b.s.t.Fatalf("%s: %d, to %q\n%s", path, a.status, to, a.page)
	}
	return to
}

// choose signs in at the provider and returns the callback URL.
func (b *browser) choose(at string, who oidctest.Person) string {
	b.s.t.Helper()
	a := b.post(at, "sub", who.Subject)
	if a.status != 303 {
		b.s.t.Fatalf("the provider says %d: %s", a.status, a.page)
	}
	return a.to
}

// enter signs in by the provider, from the sign-in page on.
func (b *browser) enter(who oidctest.Person) answer {
	b.s.t.Helper()
	return b.get(b.choose(b.leave("/sign-in/provider", "next", "/settings"), who))
}

func (b *browser) signedIn() bool {
	b.s.t.Helper()
	return b.get("/settings").status == 200
}

func TestNewcomerByProvider(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved, unproved, impostor, nameless)
		for _, path := range []string{"/sign-in", "/sign-up"} {
			if !strings.Contains(s.get(path, "").page, "Continue with Acme") {
				t.Errorf("%s has no button", path)
			}
		}
		for _, who := range []oidctest.Person{unproved, nameless} {
			b := s.browser()
			if a := b.enter(who); a.status != 403 || !strings.Contains(a.page, "hasn’t confirmed your address") ||
				b.signedIn() {
				t.Errorf("%+v: %d\n%s", who, a.status, a.page)
			}
		}
		if n := s.count("accounts"); n != 0 {
			t.Errorf("%d accounts were made of no address", n)
		}
		b := s.browser()
		b.enter(proved).want(t, 303, "/settings")
		if !b.signedIn() {
			t.Error("not signed in")
		}
		subject, to, _ := s.mail()
		if subject != "Welcome to Purser" || to != person {
			t.Errorf("%q to %s", subject, to)
		}
		security := b.get("/settings/security").page
		for _, said := range []string{"Provider login linked", "Email address confirmed", "Signed in",
			"Set a password"} {
			if !strings.Contains(security, said) {
				t.Errorf("no %q under Security", said)
			}
		}
		// In another browser: the same account, and neither password nor another login opens it.
		s.browser().enter(proved).want(t, 303, "/settings")
		s.signIn("").want(t, 401, "")
		if a := s.browser().enter(impostor); a.status != 403 {
			t.Errorf("another login with the address: %d", a.status)
		}
		if n := s.count("accounts"); n != 1 {
			t.Errorf("%d accounts, want 1", n)
		}
		// The login is the only sign-in method: pages about sign-in methods ask for a password
		// first.
		for _, path := range []string{"/settings/provider", "/settings/password"} {
			if a := b.get(path); !strings.Contains(a.page, "Set a password first") {
				t.Errorf("%s: %d\n%s", path, a.status, a.page)
			}
		}
		b.post("/settings/provider/unlink", "present", "").want(t, 401, "")
		s.pass(time.Second)
		b.post("/forgot", "email", person).want(t, 200, "")
		_, _, link := s.mail()
		b.post(link, "password", password).want(t, 200, "")
		b.post("/sign-in", "email", person, "password", password).want(t, 303, "/")
		b.post("/settings/provider/unlink", "present", password).want(t, 303,
			"/settings/security?done=provider-unlinked")
		if a := s.browser().enter(proved); a.status != 403 {
			t.Errorf("an unlinked login: %d", a.status)
		}
	})
}

// An account without a password confirms by a sign-in of the last ten minutes in this browser,
// however the session was used since then.
func TestConfirmingWithoutPassword(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved)
		b := s.browser()
		again := func(what string, b *browser) {
			t.Helper()
			for _, path := range []string{"/settings/email", "/settings/two-step", "/settings/two-step/codes",
				"/settings/two-step/off", "/settings/passkeys/new", "/settings/passkeys/psk_x"} {
				for _, method := range []string{"GET", "POST"} {
					a, _ := b.ask(method, path, "email", "thief@example.com", "present", "", "name", "Mine")
					if a.status != 401 || !strings.Contains(a.page, "Sign in again") ||
						!strings.Contains(a.page, `name="next" value="`+path+`"`) {
						t.Errorf("%s: %s %s: %d to %q", what, method, path, a.status, a.to)
					}
				}
			}
			if n := s.count("totp_seeds") + s.count("passkey_challenges"); n != 0 {
				t.Errorf("%s: %d factors were begun", what, n)
			}
		}
		b.enter(proved).want(t, 303, "/settings")
		for _, path := range []string{"/settings/email", "/settings/two-step", "/settings/passkeys/new"} {
			if a := b.get(path); a.status != 200 || strings.Contains(a.page, `type="password"`) {
				t.Errorf("just signed in, and %s: %d\n%s", path, a.status, a.page)
			}
		}
		for range 3 { // the session is in use
			s.pass(3*time.Minute + 20*time.Second)
			b.get("/settings")
		}
		again("ten minutes later", b)
		newer := s.browser()
		newer.enter(proved).want(t, 303, "/settings")
		again("after another browser's sign-in", b)
		b.post("/sign-out", "next", "/settings/two-step").want(t, 303, "/sign-in?next=%2Fsettings%2Ftwo-step")
		b.get(b.choose(b.leave("/sign-in/provider", "next", "/settings/two-step"), proved)).want(t, 303,
			"/settings/two-step")
		s.pass(10*time.Minute - time.Second)
		b.post("/settings/two-step").want(t, 303, "/settings/two-step/setup")

		// A change that ends all sessions starts another, with the start time of this one.
		setup := b.get("/settings/two-step/setup").page
		secret := strings.ReplaceAll(regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(setup)[1], "-",
			"")
		code, err := totp.GenerateCode(secret, s.now())
		if err != nil {
			t.Fatal(err)
		}
		b.post("/settings/two-step/setup", "code", code).want(t, 200, "")
		b.get("/settings/two-step/off").want(t, 200, "")
		s.pass(time.Second)
		if a := b.get("/settings/two-step/off"); a.status != 401 || !b.signedIn() || newer.signedIn() {
			t.Errorf("a second later: %d; here %t, elsewhere %t", a.status, b.signedIn(), newer.signedIn())
		}

		// The provider without the second step does not sign in.
		half := s.browser()
		half.enter(proved).want(t, 303, "/sign-in/code?next=%2Fsettings")
		half.post("/settings/two-step/off").want(t, 303, "/sign-in?next=%2Fsettings%2Ftwo-step%2Foff")
	})
}

// A session that an attacker planted in a browser is not signed in, and a sign-in does not renew
// it.
func TestPlantedSessionConfirmsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	thief, victim := s.browser(), s.browser()
	thief.enter(proved).want(t, 303, "/settings") // the same account: the thief has its session
	s.pass(10 * time.Minute)
	here, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	planted := thief.Jar.Cookies(here)
	victim.Jar.SetCookies(here, planted)
	victim.enter(proved).want(t, 303, "/settings")
	// The provider knew the browser, and asked for nothing.
	victim.get("/settings/email").want(t, 401, "")
	thief.get("/settings/email").want(t, 303, "/sign-in?next=%2Fsettings%2Femail") // ended by it
	for _, c := range victim.Jar.Cookies(here) {
		if c.Name == "purser" && slices.ContainsFunc(planted, func(p *http.Cookie) bool { return p.Value == c.Value }) {
			t.Error("the planted cookie is signed in")
		}
	}
}

func (s *site) count(table string) (n int) {
	s.t.Helper()
	if err := s.d.QueryRowContext(s.t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// A verified email opens no existing account; its owner links the login.
func TestLinking(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved, other, impostor)
		s.join(person)
		s.join("other@example.com")
		b := s.browser()
		a := b.enter(proved)
		if a.status != 403 || !strings.Contains(a.page, "Sign in with your password first") || b.signedIn() {
			t.Fatalf("%d\n%s", a.status, a.page)
		}
		b.post("/sign-in", "email", person, "password", password).want(t, 303, "/")
		if page := b.get("/settings/security").page; !strings.Contains(page, "rejected: not linked") {
			t.Errorf("the owner reads nothing of it:\n%s", page)
		}
		b.post("/settings/provider", "present", another).want(t, 401, "")
		mails := s.mailCount()
		b.get(b.choose(b.leave("/settings/provider", "present", password), proved)).want(t, 303,
			"/settings/security?done=provider-linked")
		if got := s.mailCount(); got != mails+1 {
			t.Errorf("%d mails tell of it", got-mails)
		}
		elsewhere := s.browser()
		elsewhere.enter(proved).want(t, 303, "/settings")

		// A login belongs to one account, and an account has one login.
		if a := b.get(b.choose(b.leave("/settings/provider", "present", password), impostor)); a.status != 409 ||
			!strings.Contains(a.page, "Another login is already linked") {
			t.Errorf("a second login: %d", a.status)
		}
		o := s.browser()
		o.post("/sign-in", "email", "other@example.com", "password", password).want(t, 303, "/")
		if a := o.get(o.choose(o.leave("/settings/provider", "present", password), proved)); a.status != 409 ||
			!strings.Contains(a.page, "another account") {
			t.Errorf("somebody else's login: %d", a.status)
		}

		b.post("/settings/provider/unlink", "present", another).want(t, 401, "")
		b.post("/settings/provider/unlink", "present", password).want(t, 303,
			"/settings/security?done=provider-unlinked")
		if !b.signedIn() || elsewhere.signedIn() {
			t.Errorf("unlinked: here %t, elsewhere %t", b.signedIn(), elsewhere.signedIn())
		}
		if a := elsewhere.enter(proved); a.status != 403 {
			t.Errorf("an unlinked login: %d", a.status)
		}
		o.get(o.choose(o.leave("/settings/provider", "present", password), proved)).want(t, 303,
			"/settings/security?done=provider-linked")
	})
}

// A request to link ends in the session where it began, or not at all.
func TestLinkingBelongsToTheSession(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	s.join(person)
	s.join("other@example.com")
	for name, meanwhile := range map[string]func(b *browser){
		"signed out": func(b *browser) { b.post("/sign-out") },
		"somebody else": func(b *browser) {
			b.post("/sign-in", "email", "other@example.com", "password", password)
		},
		"password changed": func(b *browser) {
			b.post("/settings/password", "present", password, "password", password)
		},
	} {
		s.pass(time.Minute)
		b := s.browser()
		b.post("/sign-in", "email", person, "password", password).want(t, 303, "/")
		back := b.choose(b.leave("/settings/provider", "present", password), proved)
		meanwhile(b)
		if a := b.get(back); a.status != 400 {
			t.Errorf("%s: %d to %q", name, a.status, a.to)
		}
	}
	if n := s.count("openid_logins"); n != 0 {
		t.Errorf("%d logins are linked", n)
	}
}

// An attacker who signed up with a stranger's email gains nothing.
func TestNobodyWaitsForANewcomer(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved)
		s.post("/sign-up", "", "email", person, "password", another).want(t, 200, "")
		_, _, link := s.mail()
		b := s.browser()
		b.enter(proved).want(t, 303, "/settings")
		if !b.signedIn() {
			t.Error("not signed in")
		}
		s.signIn(another).want(t, 401, "")
		s.post(link, "", "password", another).want(t, 404, "")
		s.signIn(another).want(t, 401, "")
	})
}

// Concurrent first sign-ins create one account.
func TestNewcomersAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved)
		backs, browsers := make([]string, 4), make([]*browser, 4)
		for i := range backs {
			browsers[i] = s.browser()
			backs[i] = browsers[i].choose(browsers[i].leave("/sign-in/provider", "next", "/settings"), proved)
		}
		var wg sync.WaitGroup
		answers := make([]answer, len(backs))
		for i := range backs {
			wg.Go(func() { answers[i] = browsers[i].get(backs[i]) })
		}
		wg.Wait()
		for _, a := range answers {
			a.want(t, 303, "/settings")
		}
		if n := s.count("accounts"); n != 1 {
			t.Errorf("%d accounts", n)
		}
	})
}

// The provider is one of two steps.
func TestProviderSkipsNoSecondStep(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	session := s.join(person)
	s.twoStep(session)
	b := s.browser()
	b.enter(proved)
	if b.signedIn() {
		t.Fatal("signed in without a link")
	}
	if _, err := s.d.ExecContext(t.Context(), `INSERT INTO openid_logins SELECT $1, '1', id, email, 0 FROM accounts`,
		s.login.URL); err != nil {
		t.Fatal(err)
	}
	b.enter(proved).want(t, 303, "/sign-in/code?next=%2Fsettings")
	if b.signedIn() {
		t.Error("signed in by one step")
	}
	if a := b.get("/operator"); a.status != 403 {
		t.Errorf("an operator by one step: %d", a.status)
	}
}

// A click at a provider that still knows the browser signs in and confirms nothing: who signs in again is asked for
// credentials there, and the provider has to say so.
func TestSigningInAgainIsAProofOfNow(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved)
		b := s.browser()
		const page = "/settings/email"
		b.enter(proved).want(t, 303, "/settings")
		b.get(page).want(t, 200, "")
		s.pass(11 * time.Minute)
		to := b.leave("/sign-in/provider", "next", page)
		if strings.Contains(to, "prompt=") || strings.Contains(to, "max_age=") {
			t.Errorf("an ordinary sign-in asks for credentials: %s", to)
		}
		b.get(b.choose(to, proved)).want(t, 303, page) // a click
		for _, stepUp := range []string{page, "/settings/two-step", "/settings/passkeys/new"} {
			for _, method := range []string{"GET", "POST"} {
				if a, _ := b.ask(method, stepUp, "email", "new@example.com", "name", "key"); a.status != 401 ||
					!b.signedIn() {
					t.Errorf("a click confirms %s %s: %d", method, stepUp, a.status)
				}
			}
		}
		b.post("/sign-out", "next", page).want(t, 303, "/sign-in?next=%2Fsettings%2Femail")
		to = b.leave("/sign-in/provider", "next", page)
		if !strings.Contains(to, "prompt=login") || !strings.Contains(to, "max_age=0") {
			t.Errorf("the provider is not told to ask: %s", to)
		}
		b.get(b.choose(to, proved)).want(t, 303, page)
		b.get(page).want(t, 200, "")

		// A provider that does not ask, or does not say so, confirms nothing.
		for what, claims := range map[string]func(map[string]any){
			"an old proof":     func(c map[string]any) { c["auth_time"] = s.now().Add(-11 * time.Minute).Unix() },
			"no proof":         func(c map[string]any) { delete(c, "auth_time") },
			"a proof to come":  func(c map[string]any) { c["auth_time"] = s.now().Add(time.Hour).Unix() },
			"a negative proof": func(c map[string]any) { c["auth_time"] = -1 },
		} {
			s.login.Misbehave(oidctest.Wrong{Claims: claims})
			b.post("/sign-out", "next", page).want(t, 303, "/sign-in?next=%2Fsettings%2Femail")
			if a := b.get(b.choose(b.leave("/sign-in/provider", "next", page), proved)); a.status != 403 ||
				!strings.Contains(a.page, "didn’t ask who you are") || b.signedIn() {
				t.Errorf("%s: %d", what, a.status)
			}
			other := s.browser()
			other.enter(proved).want(t, 303, "/settings")
			if a := other.get(page); a.status != 401 {
				t.Errorf("an ordinary sign-in with %s confirms: %d", what, a.status)
			}
		}
	})
}

// Who signs in at the provider to an account that is suspended reads that it is.
func TestSuspendedAtTheProvider(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	s.browser().enter(proved).want(t, 303, "/settings")
	err := s.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		a, err := accounts.GetAccountByEmail(ctx, tx, person)
		if err != nil {
			return err
		}
		return s.store.SuspendAccount(ctx, tx, a, "abuse", 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	b := s.browser()
	if a := b.enter(proved); a.status != 403 || !strings.Contains(a.page, "This account is suspended") || b.signedIn() {
		t.Errorf("%d: %s", a.status, a.page)
	}
}

// A sign-in belongs to one browser, once, for ten minutes.
func TestTripsAreNotTransferable(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, proved, other)
		refused := func(what string, a answer) {
			t.Helper()
			if a.status != 400 || !strings.Contains(a.page, "Please start over") {
				t.Errorf("%s: %d to %q", what, a.status, a.to)
			}
		}
		b := s.browser()
		back := b.choose(b.leave("/sign-in/provider"), proved)
		victim := s.browser()
		refused("in a browser that asked for nothing", victim.get(back))
		victim.leave("/sign-in/provider")
		refused("in a browser that asked, too", victim.get(back))
		u, err := url.Parse(back)
		if err != nil {
			t.Fatal(err)
		}
		swapped := u.Query()
		state, letter := swapped.Get("state"), "A"
		if state[:1] == letter { // a state is random
			letter = "B"
		}
		swapped.Set("state", letter+state[1:])
		refused("with another state", b.get(u.Path+"?"+swapped.Encode()))
		refused("without a state", b.get("/sign-in/provider/callback?code=x"))
		b.get(back).want(t, 303, "/")
		refused("again", b.get(back))
		first, second := b.choose(b.leave("/sign-in/provider"), proved), b.choose(b.leave("/sign-in/provider"), proved)
		b.get(second).want(t, 303, "/") // from two windows
		b.get(first).want(t, 303, "/")
		if victim.signedIn() {
			t.Error("the victim is signed in as somebody else")
		}
		s.pass(time.Minute)
		late := b.choose(b.leave("/sign-in/provider"), proved)
		s.pass(10 * time.Minute)
		refused("too late", b.get(late))

		// Another user's code in one's own request: PKCE and the nonce reject it.
		mine, theirs := b.choose(b.leave("/sign-in/provider"), proved),
			victim.choose(victim.leave("/sign-in/provider"), other)
		code := regexp.MustCompile(`code=\w+`)
		if a := b.get(code.ReplaceAllString(mine, code.FindString(theirs))); a.status != 400 {
			t.Errorf("an injected code: %d", a.status)
		}
	})
}

// An invalid response never signs in.
func TestAnswersToDistrust(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	set := func(name string, value any) oidctest.Wrong {
		return oidctest.Wrong{Claims: func(c map[string]any) { c[name] = value }}
	}
	for name, wrong := range map[string]oidctest.Wrong{
		"issuer in the address":  {Iss: "https://evil.example"},
		"issuer":                 set("iss", "https://evil.example"),
		"audience":               set("aud", "another client"),
		"one audience of two":    set("aud", []string{oidctest.ClientID, "another client"}),
		"authorized party":       set("azp", "another client"),
		"nonce":                  set("nonce", "replayed"),
		"no nonce":               set("nonce", ""),
		"no subject":             set("sub", ""),
		"expired":                set("exp", s.now().Add(-time.Second).Unix()),
		"not yet valid":          set("nbf", s.now().Add(time.Hour).Unix()),
		"alg none":               {Header: map[string]string{"alg": "none"}},
		"alg HS256":              {Header: map[string]string{"alg": "HS256", "kid": "1"}},
		"another key":            {Unkeyed: true},
		"another key of no name": {Unkeyed: true, Header: map[string]string{"alg": "ES256"}},
		"userinfo of someone":    {Thin: true, Info: func(c map[string]any) { c["sub"] = "9" }},
	} {
		s.pass(time.Minute) // allow more starts
		s.login.Misbehave(wrong)
		b := s.browser()
		if a := b.enter(proved); a.status != 400 || !strings.Contains(a.page, "We couldn’t verify the response") ||
			b.signedIn() {
			t.Errorf("%s: %d\n%s", name, a.status, a.page)
		}
	}
	s.login.Misbehave(oidctest.Wrong{})
	b := s.browser()
	back := b.choose(b.leave("/sign-in/provider"), proved)
	if a := b.get(regexp.MustCompile(`&?iss=[^&]*`).ReplaceAllString(back, "")); a.status != 400 {
		t.Errorf("no issuer in the address: %d", a.status)
	}
	s.pass(time.Minute)
	a := b.get(b.choose(b.leave("/sign-in/provider"), oidctest.Person{}))
	if a.status != 403 || strings.Contains(a.page, "555") || !strings.Contains(a.page, "didn’t sign you in") {
		t.Errorf("declined: %d\n%s", a.status, a.page)
	}
	if n := s.count("accounts"); n != 0 {
		t.Errorf("%d accounts were made", n)
	}
	// Variants that the standard allows.
	for name, right := range map[string]oidctest.Wrong{
		"address by userinfo only": {Thin: true},
		"email_verified as a text": set("email_verified", "true"),
		"more than one audience": {Claims: func(c map[string]any) {
			c["aud"], c["azp"] = []string{"x", oidctest.ClientID}, oidctest.ClientID
		}},
	} {
		s.pass(time.Minute)
		s.login.Misbehave(right)
		if a := s.browser().enter(proved); a.status != 303 {
			t.Errorf("%s: %d\n%s", name, a.status, a.page)
		}
	}
}

// TestExpiredSecret: a provider that refuses our client blames no user, and is an alarm; a code that it refuses is not.
func TestExpiredSecret(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	b := s.browser()
	back := b.choose(b.leave("/sign-in/provider"), proved)
	s.login.Misbehave(oidctest.Wrong{Expired: true})
	if a := b.get(back); a.status != 503 || !strings.Contains(a.page, "Signing in with Acme isn’t working") ||
		!strings.Contains(a.page, "/forgot") || strings.Contains(a.page, "couldn’t verify") {
		t.Errorf("an expired secret: %d\n%s", a.status, a.page)
	}
	if len(s.alarms) != 1 || s.alarms[0] != "the sign-in client is refused" {
		t.Errorf("alarms: %q", s.alarms)
	}
	s.login.Misbehave(oidctest.Wrong{})
	s.pass(time.Minute)
	b = s.browser()
	back = b.choose(b.leave("/sign-in/provider"), proved)
	if a := b.get(regexp.MustCompile(`code=[^&]*`).ReplaceAllString(back, "code=stale")); a.status != 400 ||
		!strings.Contains(a.page, "That didn’t work") {
		t.Errorf("a stale code: %d\n%s", a.status, a.page)
	}
	for reason, says := range map[string]string{
		"access_denied": "perhaps because you cancelled", "temporarily_unavailable": "isn’t working right now",
		"unauthorized_client": "isn’t working right now",
	} {
		s.pass(time.Minute)
		b := s.browser()
		back := b.choose(b.leave("/sign-in/provider"), proved)
		back = regexp.MustCompile(`code=[^&]*`).ReplaceAllString(back, "error="+reason)
		if a := b.get(back); a.status != 403 || !strings.Contains(a.page, says) {
			t.Errorf("%s: %d\n%s", reason, a.status, a.page)
		}
	}
	if len(s.alarms) != 1 { // strangers raise none
		t.Errorf("alarms: %q", s.alarms)
	}
}

// A provider that is down delays nothing, and is asked again.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	for _, down := range []oidctest.Wrong{{Down: true}, {Issuer: "https://evil.example"}} {
		s.login.Misbehave(down)
		for range 3 {
			if a := s.browser().post("/sign-in/provider"); a.status != 503 || a.retryAfter == "" ||
				!strings.Contains(a.page, "Acme isn’t responding") {
				t.Errorf("%+v: %d\n%s", down, a.status, a.page)
			}
		}
		s.pass(time.Minute)
	}
	if n := s.login.Asked(); n != 1 { // none while it was down
		t.Errorf("asked %d times", n)
	}
	s.login.Misbehave(oidctest.Wrong{InForm: true})
	b := s.browser()
	b.enter(proved).want(t, 303, "/settings")
	back := b.choose(b.leave("/sign-in/provider"), proved)
	s.login.Misbehave(oidctest.Wrong{Down: true})
	if a := b.get(back); a.status != 503 {
		t.Errorf("away when people come back: %d", a.status)
	}
	s.pass(2 * time.Hour) // outdated metadata is still used
	s.login.Misbehave(oidctest.Wrong{Down: true})
	b.leave("/sign-in/provider")
	if n := s.count("openid_attempts"); n != 1 {
		t.Errorf("%d sign-ins are kept, want the last", n)
	}
}

// Redirects stay local, and requests are bounded.
func TestWaysOutAreOurs(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), proved)
	b := s.browser()
	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "/..//evil.example"} {
		s.pass(time.Minute)
		b.get(b.choose(b.leave("/sign-in/provider", "next", next), proved)).want(t, 303, "/")
	}
	s.pass(time.Minute)
	a := s.do("POST", "/sign-in/provider", "", nil, "Host", "evil.example", "X-Forwarded-Host", "evil.example")
	if a.status != 200 || strings.Contains(a.page, "evil") ||
		!strings.Contains(a.page, "redirect_uri=http%3A%2F%2Fpurser.example%2F") {
		t.Errorf("%d\n%s", a.status, a.page)
	}
	if a := s.do("POST", "/sign-in/provider", "", nil, "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("started by another site: %d", a.status)
	}
	for range 30 {
		a = b.post("/sign-in/provider")
	}
	if a.status != 429 || a.retryAfter == "" {
		t.Errorf("the 31st at once: %d", a.status)
	}
}

// Without a provider its pages do not exist.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite))
	session := s.join(person)
	for _, path := range []string{"/sign-in", "/sign-up"} {
		if strings.Contains(s.get(path, "").page, "Continue with") {
			t.Errorf("%s has a button", path)
		}
	}
	s.post("/sign-in/provider", "").want(t, 404, "")
	s.get("/sign-in/provider/callback?state=x", "").want(t, 404, "")
	s.get("/settings/provider", session).want(t, 404, "")
	s.post("/settings/provider", session).want(t, 404, "")
}
