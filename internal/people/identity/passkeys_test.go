package identity_test

import (
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	vw "github.com/descope/virtualwebauthn"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// party is the relying party of the site.
var party = vw.RelyingParty{ID: "purser.example", Name: "Purser", Origin: "http://purser.example"}

// A device is an authenticator with one key.
type device struct {
	auth vw.Authenticator
	key  vw.Credential
}

var optionsOf = regexp.MustCompile(`data-options="([^"]*)"`)

// options are what a page passes to the browser.
func options(t *testing.T, a answer) string {
	t.Helper()
	found := optionsOf.FindStringSubmatch(a.page)
	if a.status != 200 || found == nil {
		t.Fatalf("%d to %q, and nothing is asked\n%s", a.status, a.to, a.page)
	}
	return html.UnescapeString(found[1])
}

// newKey returns a key without leading zeros in its coordinates, which the library would drop and
// authenticators do not.
func newKey() vw.Credential {
	for {
		if k := vw.NewCredential(vw.KeyTypeEC2); len(k.Key.AttestationData()) == 77 {
			return k
		}
	}
}

// made returns the attestation response to a page.
func made(t *testing.T, asked string) (*device, string) {
	t.Helper()
	o, err := vw.ParseAttestationOptions(asked)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{vw.NewAuthenticatorWithOptions(vw.AuthenticatorOptions{UserHandle: []byte(o.UserID)}), newKey()}
	return d, vw.CreateAttestationResponse(party, d.auth, d.key, *o)
}

// sign returns the assertion response to a page.
func (d *device) sign(t *testing.T, at vw.RelyingParty, asked string) string {
	t.Helper()
	o, err := vw.ParseAssertionOptions(asked)
	if err != nil {
		t.Fatal(err)
	}
	d.key.Counter++
	return vw.CreateAssertionResponse(at, d.auth, d.key, *o)
}

// beginKey starts a registration and returns its options.
func (s *site) beginKey(session, name string) string {
	s.t.Helper()
	s.post("/settings/passkeys/new", session, "present", password, "name", name).want(s.t, 303,
		"/settings/passkeys/make")
	return options(s.t, s.get("/settings/passkeys/make", session))
}

// addKey adds a first passkey and returns the new session.
func (s *site) addKey(session, name string) (*device, answer) {
	s.t.Helper()
	d, response := made(s.t, s.beginKey(session, name))
	a := s.post("/settings/passkeys/make", session, "answer", response)
	if a.status != 200 && a.status != 303 {
		s.t.Fatalf("the key was not added: %d %s", a.status, a.page)
	}
	return d, a
}

// beginPasskey starts a sign-in and returns its cookie and options.
func (s *site) beginPasskey(cookie string) (string, string) {
	s.t.Helper()
	a := s.post("/sign-in/passkey", cookie, "next", "/settings").want(s.t, 303, "/sign-in/passkey?next=%2Fsettings")
	if a.cookie != "" {
		cookie = a.cookie
	}
	return cookie, options(s.t, s.get("/sign-in/passkey?next=/settings", cookie))
}

func (s *site) answer(cookie, response string) answer {
	s.t.Helper()
	return s.post("/sign-in/passkey/answer", cookie, "next", "/settings", "answer", response)
}

// fresh returns a new browser's challenge and the right response of d.
func (s *site) withKey(d *device) answer {
	s.t.Helper()
	cookie, asked := s.beginPasskey("")
	return s.answer(cookie, d.sign(s.t, party, asked))
}

var recovery = regexp.MustCompile(`<code>([a-z2-7-]{19})</code>`)

// A passkey is registered, signs in alone and as the second step, counts as two factors, and is
// removed.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		other := s.signIn(password).cookie
		s.post("/settings/passkeys/new", session, "present", "not the password", "name", "Laptop").want(t, 401, "")
		for _, name := range []string{"", " ", strings.Repeat("x", 41), "\u202eevil"} {
			s.post("/settings/passkeys/new", session, "present", password, "name", name).want(t, 400, "")
		}
		s.get("/settings/passkeys/make", session).want(t, 303, "/settings/passkeys/new")
		s.pass(time.Second)
		laptop, a := s.addKey(session, "Laptop <i>")
		codes := recovery.FindAllStringSubmatch(a.page, -1)
		if len(codes) != 10 {
			t.Fatalf("%d recovery codes with the first second factor", len(codes))
		}
		if subject, to, _ := s.mail(); subject != "A passkey was added" || to != person {
			t.Errorf("the owner reads %q at %s", subject, to)
		}
		for _, old := range []string{session, other} {
			s.get("/settings", old).want(t, 303, "/sign-in?next=%2Fsettings")
		}
		session = a.cookie
		s.get("/operator", session).want(t, 200, "")

		alone := s.withKey(laptop).want(t, 303, "/settings").cookie
		s.get("/operator", alone).want(t, 200, "")

		half := s.signIn(password).want(t, 303, "/sign-in/code?next=%2F").cookie
		if page := s.get("/sign-in/code", half).page; !strings.Contains(page, "Use a passkey") ||
			!strings.Contains(page, "Recovery code") {
			t.Error("the second step offers no passkey")
		}
		_, asked := s.beginPasskey(half)
		both := s.answer(half, laptop.sign(t, party, asked)).want(t, 303, "/settings").cookie
		s.get("/operator", both).want(t, 200, "")
		half = s.signIn(password).cookie
		s.post("/sign-in/code", half, "code", codes[0][1]).want(t, 303, "/")

		s.pass(time.Second)
		checkOptions(t, s.beginKey(session, "Phone"))
		phone, a := s.addKey(session, "Phone")
		a.want(t, 303, "/settings/security?done=passkey") // session and codes stay
		s.withKey(phone).want(t, 303, "/settings")
		page := s.get("/settings/security", session).want(t, 200, "").page
		for _, want := range []string{"Laptop &lt;i&gt;", "Phone", "9 recovery codes are left", "Passkey added",
			"Two-step verification turned on", "Add a passkey"} {
			if !strings.Contains(page, want) {
				t.Errorf("the security page lacks %q", want)
			}
		}
		links := regexp.MustCompile(`/settings/passkeys/pky_\w+`).FindAllString(page, -1)
		if len(links) != 2 {
			t.Fatalf("%d keys are listed", len(links))
		}
		s.post(links[1], session, "present", "not the password").want(t, 401, "")
		s.post(links[1], session, "present", password).want(t, 303, "/settings/security?done=passkey-off")
		s.post(links[1], session, "present", password).want(t, 404, "")
		s.withKey(phone).want(t, 401, "")
		s.pass(time.Second)
		off := s.post(links[0], session, "present", password).want(t, 303,
			"/settings/security?done=two-step-off").cookie
		if subject, _, _ := s.mail(); subject != "A passkey was removed" {
			t.Errorf("the owner reads %q", subject)
		}
		s.get("/settings", session).want(t, 303, "/sign-in?next=%2Fsettings")
		s.get("/operator", off).want(t, 403, "")
		s.withKey(laptop).want(t, 401, "")
		s.signIn(password).want(t, 303, "/")
	})
}

// checkOptions requires a discoverable key with user verification, and excludes the account's
// existing one.
func checkOptions(t *testing.T, asked string) {
	t.Helper()
	var o struct {
		RP                     struct{ ID string }
		AuthenticatorSelection struct{ ResidentKey, UserVerification string }
		ExcludeCredentials     []struct{ ID string }
		Timeout                int
	}
	if err := json.Unmarshal([]byte(asked), &o); err != nil {
		t.Fatal(err)
	}
	if o.RP.ID != party.ID || o.AuthenticatorSelection.ResidentKey != "required" ||
		o.AuthenticatorSelection.UserVerification != "required" || len(o.ExcludeCredentials) != 1 ||
		o.Timeout != 300_000 {
		t.Errorf("%+v", o)
	}
}

// An account may have passkeys and an authenticator app: two-step verification ends with the last
// of them.
func TestPasskeyBesideApp(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		_, a := s.addKey(s.join(person), "Key")
		session := a.cookie
		s.post("/settings/two-step", session, "present", password).want(t, 303, "/settings/two-step/setup")
		shown := regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(s.get("/settings/two-step/setup",
			session).page)
		if shown == nil {
			t.Fatal("no secret")
		}
		secret := strings.ReplaceAll(shown[1], "-", "")
		s.post("/settings/two-step/setup", session, "code", s.code(secret)).want(t, 303, "/settings/security?done=app")
		session = s.step(secret)
		if page := s.get("/settings/security", session).page; !strings.Contains(page, "10 recovery codes are left") {
			t.Error("the recovery codes were touched")
		}
		s.post("/settings/two-step/off", session, "present", password).want(t, 303, "/settings/security?done=app-off")
		s.get("/operator", session).want(t, 200, "")
		s.get("/settings/two-step/off", session).want(t, 303, "/settings/security")
		s.signIn(password).want(t, 303, "/sign-in/code?next=%2F")
	})
}

// An assertion is valid once, for five minutes, in the browser with the challenge, from our own
// pages, with a key of the account and user verification.
func TestPasskeyAttacks(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		mine, a := s.addKey(s.join(person), "Mine")
		session := a.cookie
		s.pass(time.Second)
		theirs, a := s.addKey(s.join("stranger@example.com"), "Theirs")
		stranger := a.cookie
		refused := func(what string, a answer) {
			t.Helper()
			if a.status != 401 || a.cookie != "" && !strings.HasPrefix(a.cookie, "purser-visit=") {
				t.Errorf("%s: %d to %q, cookie %q", what, a.status, a.to, a.cookie)
			}
		}

		cookie, asked := s.beginPasskey("")
		response := mine.sign(t, party, asked)
		refused("another browser", s.answer("", response))
		elsewhere, _ := s.beginPasskey("")
		refused("another browser's challenge", s.answer(elsewhere, response))
		s.answer(cookie, response).want(t, 303, "/settings")
		refused("a replay", s.answer(cookie, response))
		refused("a replay of a newer count", s.answer(cookie, mine.sign(t, party, asked)))

		cookie, asked = s.beginPasskey("")
		refused("rubbish", s.answer(cookie, "rubbish"))
		refused("a second try with one challenge", s.answer(cookie, mine.sign(t, party, asked)))

		cookie, _ = s.beginPasskey("")
		_, newer := s.beginPasskey(cookie) // without a session each challenge has its own cookie
		refused("the answer to another question", s.answer(cookie, mine.sign(t, party, newer)))

		cookie, asked = s.beginPasskey("")
		s.pass(5 * time.Minute)
		refused("too late", s.answer(cookie, mine.sign(t, party, asked)))

		for _, at := range []vw.RelyingParty{
			{ID: party.ID, Origin: "http://evil.example"},
			{ID: party.ID, Origin: "http://sub.purser.example"},
			{ID: "evil.example", Origin: party.Origin},
		} {
			cookie, asked = s.beginPasskey("")
			refused("from "+at.Origin+" for "+at.ID, s.answer(cookie, mine.sign(t, at, asked)))
		}

		cookie, asked = s.beginPasskey("")
		mixed := *theirs
		mixed.auth.Options.UserHandle = mine.auth.Options.UserHandle
		refused("their key in my name", s.answer(cookie, mixed.sign(t, party, asked)))
		for _, handle := range []string{"wac_nobody", "\x00", "\xff", ""} {
			cookie, asked = s.beginPasskey("")
			mixed.auth.Options.UserHandle = []byte(handle)
			refused("in nobody's name", s.answer(cookie, mixed.sign(t, party, asked)))
		}
		forged := *mine
		forged.key.Key = theirs.key.Key
		cookie, asked = s.beginPasskey("")
		refused("another key's signature", s.answer(cookie, forged.sign(t, party, asked)))

		lazy := *mine
		lazy.auth.Options.UserNotVerified = true
		cookie, asked = s.beginPasskey("")
		refused("an unverified user", s.answer(cookie, lazy.sign(t, party, asked)))

		half := s.signIn(password).cookie
		_, asked = s.beginPasskey(half)
		refused("their key as my second step", s.answer(half, theirs.sign(t, party, asked)))
		s.get("/settings", half).want(t, 303, "/sign-in?next=%2Fsettings")
		_, asked = s.beginPasskey("")
		refused("a sign-in's answer as a second step", s.answer(half, mine.sign(t, party, asked)))
		_, asked = s.beginPasskey(half)
		s.pass(time.Second)
		s.answer(half, mine.sign(t, party, asked)).want(t, 303, "/settings")

		// A key is registered by the browser with the challenge, and belongs to one account.
		asked = s.beginKey(session, "Another")
		_, response = made(t, asked)
		s.post("/settings/passkeys/make", stranger, "answer", response).want(t, 401, "")
		s.post("/settings/passkeys/make", session, "answer", response).want(t, 303, "/settings/security?done=passkey")
		s.post("/settings/passkeys/make", session, "answer", response).want(t, 401, "")
		o, err := vw.ParseAttestationOptions(s.beginKey(session, "Taken"))
		if err != nil {
			t.Fatal(err)
		}
		s.post("/settings/passkeys/make", session, "answer",
			vw.CreateAttestationResponse(party, theirs.auth, theirs.key, *o)).want(t, 400, "")
		o, err = vw.ParseAttestationOptions(s.beginKey(session, "Elsewhere"))
		if err != nil {
			t.Fatal(err)
		}
		evil := vw.RelyingParty{ID: party.ID, Origin: "http://evil.example"}
		s.post("/settings/passkeys/make", session, "answer",
			vw.CreateAttestationResponse(evil, mine.auth, newKey(), *o)).want(t, 401, "")

		link := regexp.MustCompile(`/settings/passkeys/pky_\w+`).FindString(s.get("/settings/security", session).page)
		s.get(link, session).want(t, 200, "")
		s.get(link, stranger).want(t, 404, "")
		s.post(link, stranger, "present", password).want(t, 404, "")
		if in := s.atOnce(mine); in != 1 {
			t.Errorf("of 6 who come with one answer, %d got in", in)
		}
		foreign := s.do("POST", "/sign-in/passkey", "", url.Values{}, "Sec-Fetch-Site", "cross-site")
		if foreign.status != 403 {
			t.Errorf("a form of another site: %d", foreign.status)
		}
	})
}

// atOnce sends one right response concurrently and returns how many were accepted.
func (s *site) atOnce(d *device) (in int) {
	s.t.Helper()
	cookie, asked := s.beginPasskey("")
	response := d.sign(s.t, party, asked)
	statuses := make([]int, 6)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() { statuses[i] = s.answer(cookie, response).status })
	}
	wg.Wait()
	for _, status := range statuses {
		if status == 303 {
			in++
		} else if status != 401 {
			s.t.Errorf("status %d", status)
		}
	}
	return in
}

// A counter that went backwards means that the key was copied.
func TestCopiedPasskey(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		key, a := s.addKey(s.join(person), "Key")
		s.pass(time.Second)
		theft := *key
		s.withKey(key).want(t, 303, "/settings")
		s.withKey(key).want(t, 303, "/settings")
		s.withKey(&theft).want(t, 401, "")
		s.withKey(&theft).want(t, 401, "") // the same counter value
		if page := s.get("/settings/security", a.cookie).page; strings.Count(page,
			"it may have been copied") != 2 {
			t.Error("the owner is not told")
		}
		s.withKey(key).want(t, 303, "/settings")
		if subject, to, _ := s.mail(); subject != "We blocked a sign-in with your passkey" || to != person {
			t.Errorf("the owner reads %q at %s", subject, to)
		}
	})
}

// An operator cannot remove the last second factor.
func TestOperatorKeepsSecondStep(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		_, a := s.addKey(s.join(person), "Key")
		session := a.cookie
		s.pass(time.Second)
		s.join("stranger@example.com")
		app := s.twoStepOf("stranger@example.com")
		if _, err := d.ExecContext(t.Context(), `UPDATE accounts SET operator = 1`); err != nil {
			t.Fatal(err)
		}
		link := regexp.MustCompile(`/settings/passkeys/pky_\w+`).FindString(s.get("/settings/security", session).page)
		mails := s.mailCount()
		if a := s.post(link, session, "present", password).want(t, 400, ""); !strings.Contains(a.page,
			"Operators need a second step") {
			t.Errorf("it says %s", a.page)
		}
		s.post("/settings/two-step/off", app, "present", password).want(t, 400, "")
		if s.mailCount() != mails {
			t.Error("somebody was told of what did not happen")
		}
		s.get("/operator", session).want(t, 200, "")
		if n := len(regexp.MustCompile(`/settings/passkeys/pky_\w+`).FindAllString(s.get("/settings/security",
			session).page, -1)); n != 1 {
			t.Errorf("%d keys are left", n)
		}
		s.addKey(session, "Spare")
		s.post(link, session, "present", password).want(t, 303, "/settings/security?done=passkey-off")
	})
}

// twoStepOf sets up an authenticator app and returns the new session.
func (s *site) twoStepOf(email string) string {
	s.t.Helper()
	session := s.post("/sign-in", "", "email", email, "password", password).cookie
	s.post("/settings/two-step", session, "present", password).want(s.t, 303, "/settings/two-step/setup")
	shown := regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(s.get("/settings/two-step/setup",
		session).page)
	if shown == nil {
		s.t.Fatal("no secret")
	}
	return s.post("/settings/two-step/setup", session, "code", s.code(strings.ReplaceAll(shown[1], "-", ""))).want(s.t,
		200, "").cookie
}

// Passkeys need host names.
func TestParty(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ auth, dashboard, party, home string }{
		{"https://purser.example.com", "https://purser.example.com", "purser.example.com",
			"https://purser.example.com"},
		{"https://auth.example.com:8443", "https://My.example.com", "example.com", "https://my.example.com"},
		{"https://example.com", "https://my.example.com/", "example.com", "https://my.example.com"},
		{"https://auth.one.com", "https://my.two.com", "", ""},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080", "localhost", "http://localhost:8080"},
		{"http://[::1]:8080", "http://localhost:8080", "localhost", "http://localhost:8080"},
		{"https://192.0.2.1", "https://192.0.2.1", "", ""},
		{"", "", "", ""},
	} {
		p, err := identity.NewPasskeyParty(c.auth, c.dashboard)
		if err != nil {
			t.Errorf("%s and %s: %v", c.auth, c.dashboard, err)
			continue
		}
		if got := p.PageData(); got.Party != c.party || got.Home != c.home {
			t.Errorf("%s and %s: %+v, want %s at %s", c.auth, c.dashboard, got, c.party, c.home)
		}
	}
}
