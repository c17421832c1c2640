package identity_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/oidctest"
)

func init() { accounts.HashLightly() }

const (
	person   = "person@example.com"
	password = "correct horse battery"
	another  = "a staple, another one"
)

// site serves the pages of this package and of accounts.
type site struct {
	*httptest.Server
	t     *testing.T
	d     *db.DB
	mails *mail.Store
	login *oidctest.Provider // nil = none
	store *identity.Store

	alarms []string // of the relying party

	mu sync.Mutex
	at time.Time
}

func (s *site) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *site) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// serve starts the pages, with a provider if it has users.
func serve(t *testing.T, d *db.DB, known ...oidctest.Person) *site {
	t.Helper()
	s := &site{t: t, d: d, at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	people := accounts.NewStore(d, s.now)
	s.mails = &mail.Store{DB: d, Now: s.now}
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	party, err := identity.NewPasskeyParty("http://purser.example", "http://purser.example")
	if err != nil {
		t.Fatal(err)
	}
	sessions := accounts.NewSessions(people, false)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	s.Server = httptest.NewUnstartedServer(rt)
	here, openID := "http://"+s.Listener.Addr().String(), identity.OpenIDConfig{}
	if len(known) > 0 {
		s.login = oidctest.Start(t, s.now, known...)
		s.login.AllowRedirect(here + "/sign-in/provider/callback")
		openID = identity.OpenIDConfig{
			Name:         "Acme",
			Issuer:       s.login.URL,
			ClientID:     oidctest.ClientID,
			ClientSecret: oidctest.ClientSecret,
		}
	}
	(&accounts.Handler{Store: people, Sessions: sessions, Provider: openID.Name, Passkeys: party.PageData()}).Mount(rt)
	provider := identity.NewOpenIDClient(openID, s.now, here, "http://purser.example")
	if provider != nil {
		provider.RaiseAlarm = func(alarm, _ string) { s.alarms = append(s.alarms, alarm) }
	}
	s.store = identity.NewStore(d, people, s.mails, box, s.now, "http://purser.example", party)
	(&identity.Handler{
		Store:    s.store,
		Accounts: people,
		Sessions: sessions,
		Provider: provider,
	}).Mount(rt)
	rt.HandlePage("GET /operator", sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		if !accounts.HasMFA(r) {
			w.WriteHeader(http.StatusForbidden)
		}
		return nil
	}))
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// An answer is a response as a browser sees it.
type answer struct {
	status     int
	to, page   string
	cookie     string
	retryAfter string
}

func (s *site) do(method, path, cookie string, form url.Values, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{
		status:     resp.StatusCode,
		to:         resp.Header.Get("Location"),
		page:       string(body),
		retryAfter: resp.Header.Get("Retry-After"),
	}
	for _, c := range resp.Cookies() {
		a.cookie = c.Name + "=" + c.Value
	}
	return a
}

func (s *site) get(path, cookie string) answer { s.t.Helper(); return s.do("GET", path, cookie, nil) }

// post sends a form of pairs.
func (s *site) post(path, cookie string, pairs ...string) answer {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return s.do("POST", path, cookie, form)
}

func (a answer) want(t *testing.T, status int, to string) answer {
	t.Helper()
	if a.status != status || a.to != to {
		t.Fatalf("%d to %q, want %d to %q\n%s", a.status, a.to, status, to, a.page)
	}
	return a
}

// mail returns the newest mail's subject, recipient, and the path of its link.
func (s *site) mail() (subject, to, path string) {
	s.t.Helper()
	list, err := s.mails.ListNewest(s.t.Context(), 1)
	if err != nil || len(list) != 1 {
		s.t.Fatalf("mail: %v, %v", list, err)
	}
	path = regexp.MustCompile(`http://purser\.example(/\S*)`).FindString(list[0].Text)
	return list[0].Subject, list[0].To, strings.TrimPrefix(path, "http://purser.example")
}

func (s *site) mailCount() (n int) {
	s.t.Helper()
	if err := s.d.QueryRowContext(s.t.Context(), `SELECT COUNT(*) FROM mails`).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// join creates a confirmed account and returns its session.
func (s *site) join(email string) string {
	s.t.Helper()
	s.post("/sign-up", "", "email", email, "password", password, "next", "/oauth/authorize?a=b").want(s.t, 200, "")
	_, _, link := s.mail()
	s.pass(time.Second) // mail ids are ordered by time
	return s.post(link, "", "password", password).want(s.t, 303, "/oauth/authorize?a=b").cookie
}

func (s *site) signIn(password string) answer {
	s.t.Helper()
	return s.post("/sign-in", "", "email", person, "password", password)
}

func TestSignUp(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		s.post("/sign-up", "", "email", person, "password", password, "next", "/oauth/authorize?a=b").want(t, 200, "")
		_, _, link := s.mail()
		s.signIn(password).want(t, 401, "")
		s.get(link, "").want(t, 200, "")
		s.signIn(password).want(t, 401, "") // opening the link changed nothing
		s.post(link, "", "password", another).want(t, 401, "")

		// A second sign-up with the same email: each link works with its own password only.
		s.pass(time.Second)
		s.post("/sign-up", "", "email", person, "password", another).want(t, 200, "")
		_, _, theirs := s.mail()
		s.post(theirs, "", "password", password).want(t, 401, "")

		session := s.post(link, "", "password", password).want(t, 303, "/oauth/authorize?a=b").cookie
		s.get("/settings", session).want(t, 200, "")
		s.signIn(password).want(t, 303, "/")
		s.get(link, "").want(t, 404, "")
		s.post(link, "", "password", password).want(t, 404, "")
		s.post(theirs, "", "password", another).want(t, 404, "")
		s.post("/reset/"+strings.TrimPrefix(link, "/sign-up/confirm/"), "", "password", another).want(t, 404, "")

		s.post("/sign-up", "", "email", "late@example.com", "password", password).want(t, 200, "")
		_, _, late := s.mail()
		s.pass(24 * time.Hour)
		s.post(late, "", "password", password).want(t, 404, "")
	})
}

// Taken, free and unknown emails differ in nothing but the mail.
func TestAnswersTellNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		s.join(person)
		taken := s.post("/sign-up", "", "email", person, "password", another).want(t, 200, "")
		subject, to, _ := s.mail()
		if subject != "You already have an account" || to != person {
			t.Errorf("the owner of a taken address reads %q at %s", subject, to)
		}
		s.signIn(another).want(t, 401, "")
		if free := s.post("/sign-up", "", "email", "free@example.com", "password", another); free != taken {
			t.Errorf("sign-up: %v and %v", free, taken)
		}
		mails := s.mailCount()
		known, unknown := s.post("/forgot", "", "email", person), s.post("/forgot", "", "email", "unknown@example.com")
		if known != unknown || known.status != 200 {
			t.Errorf("forgot: %v and %v", known, unknown)
		}
		if got := s.mailCount(); got != mails+1 {
			t.Errorf("%d mails were sent, want 1", got-mails)
		}
		for range 5 { // throttled alike
			known, unknown = s.post("/forgot", "", "email", person),
				s.post("/forgot", "", "email", "unknown@example.com")
			if known.status == 429 {
				break
			}
			s.pass(time.Minute)
		}
		s.pass(time.Minute)
		for range 4 {
			unknown = s.post("/forgot", "", "email", "unknown@example.com")
		}
		if known.status != 429 || unknown.status != 429 {
			t.Errorf("too many mails: %d for a known address, %d for another", known.status, unknown.status)
		}
	})
}

// A reset ends all sessions and links, and does not skip the second step.
func TestReset(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		secret := s.twoStep(session)
		session = s.step(secret)
		s.post("/forgot", "", "email", person).want(t, 200, "")
		_, _, older := s.mail()
		s.pass(time.Second)
		s.post("/forgot", "", "email", person).want(t, 200, "")
		_, _, link := s.mail()
		s.get(link, "").want(t, 200, "")
		s.get("/settings", session).want(t, 200, "")
		s.post(link, "", "password", "short").want(t, 400, "")
		s.post(link, "", "password", another).want(t, 200, "")
		for _, used := range []string{link, older} {
			s.post(used, "", "password", password).want(t, 404, "")
		}
		s.get("/settings", session).want(t, 303, "/sign-in?next=%2Fsettings")
		s.signIn(password).want(t, 401, "")
		s.signIn(another).want(t, 303, "/sign-in/code?next=%2F")

		s.pass(time.Second)
		s.post("/forgot", "", "email", person).want(t, 200, "")
		_, _, late := s.mail()
		s.pass(time.Hour)
		s.post(late, "", "password", password).want(t, 404, "")
	})
}

// twoStep turns two-step verification on and returns the secret.
func (s *site) twoStep(session string) string {
	s.t.Helper()
	s.post("/settings/two-step", session, "present", "not the password").want(s.t, 401, "")
	s.post("/settings/two-step", session, "present", password).want(s.t, 303, "/settings/two-step/setup")
	page := s.get("/settings/two-step/setup", session).want(s.t, 200, "").page
	shown := regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(page)
	if shown == nil || !strings.Contains(page, `<path d="M4 4h1v1h-1z`) {
		s.t.Fatalf("no secret or no QR code on %s", page)
	}
	secret := strings.ReplaceAll(shown[1], "-", "")
	if a := s.post("/settings/two-step/setup", session, "code", "000000"); a.status != 401 {
		s.t.Fatalf("a wrong first code: %d", a.status)
	}
	a := s.post("/settings/two-step/setup", session, "code", s.code(secret)).want(s.t, 200, "")
	s.get("/settings/two-step/setup", a.cookie).want(s.t, 303, "/settings/two-step") // never shown again
	return secret
}

func (s *site) code(secret string) string {
	s.t.Helper()
	code, err := totp.GenerateCode(secret, s.now())
	if err != nil {
		s.t.Fatal(err)
	}
	return code
}

// step signs in by password and code.
func (s *site) step(secret string) string {
	s.t.Helper()
	s.pass(time.Minute)
	half := s.signIn(password).want(s.t, 303, "/sign-in/code?next=%2F").cookie
	return s.post("/sign-in/code", half, "code", s.code(secret), "next", "//elsewhere.example").want(s.t, 303,
		"/").cookie
}

func TestTwoSteps(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		first := s.join(person)
		other := s.signIn(password).cookie
		s.get("/operator", first).want(t, 403, "")
		secret := s.twoStep(first)
		for _, old := range []string{first, other} {
			s.get("/settings", old).want(t, 303, "/sign-in?next=%2Fsettings")
		}

		s.pass(time.Minute)
		half := s.signIn(password).want(t, 303, "/sign-in/code?next=%2F").cookie
		// not accessible
		for _, path := range []string{"/settings", "/settings/security", "/settings/two-step/off",
			"/settings/password"} {
			s.get(path, half).want(t, 303, "/sign-in?next="+url.QueryEscape(path))
		}
		s.get("/operator", half).want(t, 403, "")
		s.post("/settings/two-step/off", half, "present", password).want(t, 303,
			"/sign-in?next=%2Fsettings%2Ftwo-step%2Foff")
		code := s.code(secret)
		session := s.post("/sign-in/code", half, "code", code[:3]+" "+code[3:]).want(t, 303, "/").cookie
		s.get("/operator", session).want(t, 200, "")
		if session == half {
			t.Error("the token of before the second step goes on")
		}
		s.get("/sign-in/code", half).want(t, 303, "/sign-in?next=%2F")
		half = s.signIn(password).cookie
		s.post("/sign-in/code", half, "code", code).want(t, 401, "") // used

		codes := regexp.MustCompile(`<code>([a-z2-7-]{19})</code>`).FindAllStringSubmatch(
			s.post("/settings/two-step/codes", session, "present", password).want(t, 200, "").page, -1)
		if len(codes) != 10 {
			t.Fatalf("%d recovery codes", len(codes))
		}
		s.post("/sign-in/code", half, "code", strings.ToUpper(codes[3][1])).want(t, 303, "/")
		half = s.signIn(password).cookie
		s.post("/sign-in/code", half, "code", codes[3][1]).want(t, 401, "")
		s.pass(10 * time.Minute)
		s.get("/sign-in/code", half).want(t, 303, "/sign-in?next=%2F")

		page := s.get("/settings/security", session).want(t, 200, "").page
		for _, want := range []string{"9 recovery codes are left", "Recovery code used",
			"Two-step verification turned on",
			"Incorrect code", "This browser"} {
			if !strings.Contains(page, want) {
				t.Errorf("the security page lacks %q", want)
			}
		}
		off := s.post("/settings/two-step/off", session, "present", password).want(t, 303,
			"/settings/security?done=two-step-off").cookie
		s.get("/settings", session).want(t, 303, "/sign-in?next=%2Fsettings")
		s.get("/operator", off).want(t, 403, "")
		s.signIn(password).want(t, 303, "/")
	})
}

// The last form of a set-up, sent twice, adds one app; whoever reads the second answer learns how to get codes.
func TestSetupSentTwice(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		s.post("/settings/two-step", session, "present", password).want(t, 303, "/settings/two-step/setup")
		page := s.get("/settings/two-step/setup", session).page
		shown := regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(page)
		secret := strings.ReplaceAll(shown[1], "-", "")
		pages := make(chan answer, 2)
		for range 2 {
			go func() { pages <- s.post("/settings/two-step/setup", session, "code", s.code(secret)) }()
		}
		codes := 0
		for range 2 {
			switch a := <-pages; {
			case a.status == 200 && strings.Contains(a.page, "Recovery codes"):
				codes++
			case a.status == 409 && strings.Contains(a.page, "create new ones under Security"):
			case a.status == 303 && strings.HasPrefix(a.to, "/sign-in?"): // its session had ended before it began
			default:
				t.Errorf("%d to %q\n%s", a.status, a.to, a.page)
			}
		}
		if codes != 1 {
			t.Errorf("%d answers have recovery codes", codes)
		}
	})
}

// Codes cannot be guessed by sequential or concurrent attempts.
func TestCodesAreThrottled(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		secret := s.twoStep(s.join(person)) // includes one wrong code
		s.pass(time.Minute)
		half := s.signIn(password).cookie
		statuses := make([]int, 12)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() { statuses[i] = s.post("/sign-in/code", half, "code", "000000").status })
		}
		wg.Wait()
		tried := 0
		for _, status := range statuses {
			if status == 401 {
				tried++
			} else if status != 429 {
				t.Errorf("status %d", status)
			}
		}
		if tried != 4 {
			t.Errorf("%d of 12 wrong codes were looked at, want 4 after the one before", tried)
		}
		if a := s.post("/sign-in/code", half, "code", s.code(secret)); a.status != 429 || a.retryAfter == "" {
			t.Errorf("the right code after too many wrong ones: %d", a.status)
		}
		s.pass(5 * time.Minute)
		s.post("/sign-in/code", half, "code", s.code(secret)).want(t, 303, "/")
	})
}

// TestManySessions lists those that were used last, this one among them, and says that there are others.
func TestManySessions(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		add := func(from, to int) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL
				SELECT i + 1 FROM n WHERE i < $2) INSERT INTO sessions (token_hash, account_id, data, agent, started_us,
				seen_us, expires_us) SELECT 'hash' || i, s.account_id, s.data, 'agent', i, i, s.expires_us
				FROM n JOIN (SELECT * FROM sessions LIMIT 1) AS s ON 1 = 1`, from, to); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			from, to   int
			has, lacks string // of what is listed
		}{
			{1, 99, `"hash1"`, "that were used last"},
			{100, 150, "These are the 100 that were used last", `"hash51"`},
			{151, 151, `"hash53"`, `"hash52"`},
		} {
			add(c.from, c.to)
			page := s.get("/settings/security", session).want(t, 200, "").page
			if !strings.Contains(page, "This browser") || !strings.Contains(page, c.has) ||
				strings.Contains(page, c.lacks) {
				t.Errorf("with %d others: %s", c.to, page)
			}
		}
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session, other := s.join(person), s.signIn(password).cookie
		stranger := s.join("stranger@example.com")

		id := regexp.MustCompile(`name="session" value="([^"]+)"`).FindStringSubmatch(s.get("/settings/security",
			session).page)
		if id == nil {
			t.Fatal("the other session is not listed")
		}
		s.post("/settings/security/sessions", stranger, "session", id[1]).want(t, 303,
			"/settings/security?done=session")
		s.get("/settings", other).want(t, 200, "")
		s.post("/settings/security/sessions", session, "session", id[1]).want(t, 303, "/settings/security?done=session")
		s.get("/settings", other).want(t, 303, "/sign-in?next=%2Fsettings")

		other = s.signIn(password).cookie
		s.post("/settings/password", session, "present", "not the password", "password", another).want(t, 401, "")
		changed := s.post("/settings/password", session, "present", password, "password", another).want(t, 303,
			"/settings?done=password").cookie
		for _, old := range []string{session, other} {
			s.get("/settings", old).want(t, 303, "/sign-in?next=%2Fsettings")
		}
		s.pass(time.Second)

		s.post("/settings/email", changed, "email", "stranger@example.com", "present", another).want(t, 200, "")
		if subject, _, _ := s.mail(); subject != "You already have an account" {
			t.Errorf("a taken address reads %q", subject)
		}
		s.pass(time.Second)
		s.post("/settings/email", changed, "email", "new@example.com", "present", another).want(t, 200, "")
		_, to, link := s.mail()
		s.get(link, "").want(t, 200, "")
		s.signIn(another).want(t, 303, "/")
		s.pass(time.Second)
		s.post(link, "").want(t, 200, "")
		s.signIn(another).want(t, 401, "")
		s.post("/sign-in", "", "email", "new@example.com", "password", another).want(t, 303, "/")
		if told := s.recipients("Your email address was changed"); to != "new@example.com" ||
			!slices.Equal(told, []string{person}) {
			t.Errorf("the link went to %s, the news to %s", to, told)
		}
		s.post(link, "").want(t, 404, "")

		s.post("/settings/developer", changed).want(t, 303, "/developer")
		if page := s.get("/settings", changed).page; !strings.Contains(page, `href="/developer"`) {
			t.Error("the developer's pages are not there")
		}
		foreign := s.do("POST", "/settings/developer", stranger, nil, "Sec-Fetch-Site", "cross-site")
		if foreign.status != 403 {
			t.Errorf("a form of another site: %d", foreign.status)
		}
	})
}
