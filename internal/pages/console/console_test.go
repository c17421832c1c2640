package console_test

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const hidden = `<dd><code>([A-Za-z0-9_-]{43})</code></dd>`

// TestNoAppOfAClosedAccount makes no app for a developer whose account is closed meanwhile.
func TestNoAppOfAClosedAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		answer := make(chan apitest.Page, 1)
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := accounts.Lock(ctx, tx, w.developer.ID); err != nil {
				return err
			}
			go func() {
				answer <- b.Post("/developer/apps",
					url.Values{"name": {"Late"}, "redirect_uris": {"https://a.example.com/cb"}})
			}()
			dbtest.AwaitLock(t, d)
			return w.people.CloseAccount(ctx, tx, w.developer.ID)
		}); err != nil {
			t.Fatal(err)
		}
		page := <-answer
		if d.Engine == db.Postgres { // on SQLite the session may have ended before
			page.Want(t, 422, "closed or suspended in the meantime")
		}
		list, err := apps.ListOwned(t.Context(), d, w.developer.ID)
		if err != nil || slices.ContainsFunc(list, func(a apps.App) bool { return a.Name == "Late" }) {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestCreateAndRotate(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get("/developer").Want(t, 200, "My &lt;b&gt;App&lt;/b&gt;", "$0.00").Lacks(t, "Foreign")
		b.Post("/developer/apps",
			url.Values{"name": {"A\u202eB"}, "redirect_uris": {
				"https://a.example.com/cb\r\n\r\nhttp://b.example.com/cb",
			}}).
			Want(t, 422, "Name: must not hold characters that turn the direction of text.", `aria-invalid="true"`,
				"http://b.example.com/cb</textarea>")
		b.Post("/developer/apps",
			url.Values{"name": {"New"}, "redirect_uris": {"https://a.example.com/cb\nhttp://b.example.com/cb"}}).Want(t,
			422, "Redirect URLs, line 2: must begin with https://")
		page := b.Post("/developer/apps",
			url.Values{"name": {"New"}, "redirect_uris": {"https://a.example.com/cb"}}).Want(t, 200, "You won’t see")
		secret, path := page.Found(t, hidden), page.Found(t, `href="(/developer/apps/app_[0-9a-z]+)">Continue`)
		b.Get(path).Want(t, 200, "Mock (free, canned answers)", "https://auth.example.com/oauth/authorize",
			"CLIENT_SECRET").Lacks(t, secret)
		var err error
		if w.app, err = w.apps.Get(t.Context(), strings.TrimPrefix(path, "/developer/apps/")); err != nil ||
			w.app.Tier != apps.Sandbox || w.app.OwnerID != w.developer.ID || !w.authenticates(secret) ||
			w.app.DefaultMaxTokens == nil || *w.app.DefaultMaxTokens != apps.SuggestedMaxTokens || w.app.Fit {
			t.Errorf("%+v, %v", w.app, err)
		}
		next := b.Post(path+"/secret", url.Values{"when": {"now"}, "present": {apitest.Password}}).
			Want(t, 200, "no longer works").Found(t, hidden)
		if w.authenticates(secret) || !w.authenticates(next) {
			t.Error("the old secret still works, or the new one does not")
		}
		b.Get(path+"/settings").Want(t, 200).Lacks(t, next)
	})
}

// U25: what cannot be undone asks once more, on a page that changes nothing. Secrets need the password.
func TestDestructiveButtonsAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, other := w.signedIn("developer"), w.signedIn("other")
	b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/"}}).Want(t, 200)
	endpoint := b.Get(w.mine("/webhooks")).Found(t, `href="(`+w.mine("/webhooks/")+`[^"]+)"`)
	b.Post("/developer/keys", url.Values{"provider": {"openai"}, "key": {"sk-good-0123456789-abcd"}}).Want(t, 303)
	tester := "/developer/test-accounts/" + w.tester.ID + "/delete"
	spent := w.spend(w.connect(w.tester.ID, true), "", "", money.Cent, 0)
	call := w.mine("/requests/" + id.ReplacePrefix(spent.ID, id.Ledger, id.Request))
	before := w.everything()
	for _, c := range []struct {
		from, ask, button, back string
		secret                  bool
	}{
		{w.mine("/settings"), w.mine("/secret"), "Replace client secret", w.mine("/settings"), true},
		{w.mine("/settings"), w.mine("/client-type"), "Change where it runs", w.mine("/settings"), true},
		{w.mine("/settings"), w.mine("/switch"), "Disable app", w.mine("/settings"), false},
		{endpoint, endpoint + "/rotate", "Replace webhook secret", endpoint, true},
		{endpoint, endpoint + "/delete", "Delete endpoint", endpoint, false},
		{"/developer/test-accounts", tester, "Delete test account", "/developer/test-accounts", false},
		{call, call + "/refund", "Refund $0.01", call, false},
		{"/developer/keys", "/developer/keys/openai/delete", "Delete key", "/developer/keys", false},
	} {
		if c.ask != w.mine("/switch") { // enabling is done by a button with the same address
			b.Get(c.from).Want(t, 200, `href="`+c.ask+`"`).Lacks(t, `action="`+c.ask+`"`)
		}
		page := b.Get(c.ask).Want(t, 200, `<form id="form" method="post" action="`+c.ask+`"`,
			`<button class="danger" type="submit">`+c.button+`</button>`,
			`<a class="button" href="`+c.back+`">Cancel</a>`)
		if got := strings.Contains(page.Body, `name="present" type="password"`); got != c.secret {
			t.Errorf("%s asks for the password: %t", c.ask, got)
		}
		other.Get(c.ask).Want(t, 404)
		if !c.secret {
			continue
		}
		for _, wrong := range []string{"", "wrong"} {
			b.Post(c.ask, url.Values{"when": {"now"}, "present": {wrong}}).Want(t, 401, "Incorrect password.",
				`aria-describedby="present-error"`, c.button)
		}
	}
	b.Post(w.mine("/secret"), url.Values{"when": {"later"}, "present": {apitest.Password}}).Want(t, 400)
	if after := w.everything(); after != before {
		t.Errorf("asking changed %s to %s", before, after)
	}
	b.Post(w.mine("/switch"), url.Values{"to": {"off"}}).Want(t, 303)
	b.Get(w.mine("/switch")).Leads(t, w.mine("/settings"))
	b.Get(w.mine("/settings")).Want(t, 200, "Enable app").Lacks(t, `href="`+w.mine("/switch")+`"`)
}

// Decision 038: a replaced client secret works for 24 more hours unless the developer ends it.
func TestReplacedSecretOverlaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("developer")
	form := url.Values{"when": {"overlap"}, "present": {apitest.Password}}
	b.Get(w.mine("/secret")).Want(t, 200, `value="overlap" checked`, "Works for 24 more hours")
	first := b.Post(w.mine("/secret"), form).Want(t, 200, "The old one works until").Found(t, hidden)
	second := b.Post(w.mine("/secret"), form).Want(t, 200).Found(t, hidden)
	if !w.authenticates(first) || !w.authenticates(second) {
		t.Error("the secrets do not overlap")
	}
	b.Get(w.mine("/settings")).Want(t, 200, "The previous client secret works until")
	form.Set("when", "now")
	third := b.Post(w.mine("/secret"), form).Want(t, 200, "The old one no longer works").Found(t, hidden)
	if w.authenticates(first) || w.authenticates(second) || !w.authenticates(third) {
		t.Error("a secret outlives its end")
	}
	b.Get(w.mine("/settings")).Want(t, 200).Lacks(t, "The previous client secret")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get(w.mine("/settings")).Want(t, 200, `value="My &lt;b&gt;App&lt;/b&gt;"`, "https://app.example.com/cb",
			"gpt-5.6-terra", `value="0"`)
		form := func(more ...string) url.Values {
			f := url.Values{
				"name":                {"Renamed"},
				"redirect_uris":       {"https://x.example.com/cb\r\nhttps://y.example.com/cb"},
				"model.gpt-5.6-terra": {"on"},
				"default_max_tokens":  {"512"},
				"fit":                 {"on"},
				"fit_min_tokens":      {"64"},
				"dev_margin_rate":     {"12.5"},
				"provider_mode":       {"live"},
				"test_allowlist":      {"A@example.com\nb@example.com"},
			}
			for i := 0; i+1 < len(more); i += 2 {
				f.Set(more[i], more[i+1])
			}
			return f
		}
		for _, c := range [][3]string{
			{"name", " ", "Name: must have 1 to 80 characters."},
			{"default_max_tokens", "many", "Default output limit: enter a whole number"},
			{"default_max_tokens", "0", "must be an integer from 1"},
			{"fit", "maybe", "Choose one of the options."},
			{"fit_min_tokens", "0", "Lowest output limit (tokens, optional): must be an integer from 1"},
			{"dev_margin_rate", "1000.0001", "enter a percentage"},
			{"dev_margin_rate", "0.00001", "enter a percentage"},
			{"provider_mode", "fast", "Mode: must be mock or live."},
			{"client_type", "public", "Owners change where the app runs on another page now"},
			{"test_allowlist", "a@example.com\nnobody", "line 2: must be an address"},
			{"redirect_uris", "https://x.example.com/#a", "must have no fragment"},
		} {
			b.Post(w.mine("/settings"), form(c[0], c[1])).Want(t, 422, c[2], `role="alert"`,
				`name="model.gpt-5.6-terra" value="on" checked`)
		}
		if a := w.is(); a.Name != "My <b>App</b>" {
			t.Errorf("a refused change was made: %+v", a)
		}
		b.Post(w.mine("/settings"), form()).Leads(t, w.mine("/settings?done=saved"))
		b.Get(w.mine("/settings?done=saved")).Want(t, 200, "Saved.", `value="12.5"`,
			`name="model.gpt-5.6-terra" value="on" checked`, "a@example.com\nb@example.com")
		if a := w.is(); a.Name != "Renamed" || len(a.RedirectURIs) != 2 || a.DevMargin != money.One/8 ||
			*a.DefaultMaxTokens != 512 || !a.Fit || a.FitMinTokens != 64 || a.ProviderMode != apps.Live ||
			len(a.TestAllowlist) != 2 || a.ClientType != apps.Confidential ||
			len(a.AllowedModels) != 1 {
			t.Errorf("saved: %+v", a)
		}
		b.Post(w.mine("/settings"), form("fit", "off", "fit_min_tokens", "")).Leads(t, w.mine("/settings?done=saved"))
		if a := w.is(); a.Fit || a.FitMinTokens != apps.DefaultFitMinTokens {
			t.Errorf("switched off: %+v", a)
		}
		b.Get(w.mine("/settings?done=<b>")).Lacks(t, "role=\"status\">")
		b.Post(w.mine("/switch"), url.Values{"to": {"off"}}).Leads(t, w.mine("/settings?done=off"))
		b.Get(w.mine("")).Want(t, 200, "You disabled this app")
		b.Post(w.mine("/switch"), url.Values{"to": {"on"}}).Leads(t, w.mine("/settings?done=on"))
		w.exec(`UPDATE apps SET suspension_by = 'operator', suspension_reason = 'spam <b>', suspension_us = 1 WHERE id = $1`, w.app.ID)
		b.Get(w.mine("/settings")).Want(t, 200, "Spam &lt;b&gt;.")
		b.Post(w.mine("/switch"), url.Values{"to": {"on"}}).Want(t, 422, "only the operator can lift")
	})
}

// TestClientType: an app becomes one that needs no secret only by its owner's password.
func TestClientType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, coder := w.signedIn("developer"), w.join("coder", apps.Developer)
	choose := func(clientType string) url.Values {
		return url.Values{"when": {clientType}, "present": {apitest.Password}}
	}
	b.Get(w.mine("/settings")).Want(t, 200, "<dt>Where it runs</dt><dd>On your server")
	b.Get(w.mine("/client-type")).Want(t, 200, `value="confidential" checked`)
	coder.Get(w.mine("/client-type")).Want(t, 403)
	coder.Post(w.mine("/client-type"), choose("public")).Want(t, 403)
	coder.Post(w.mine("/settings"), url.Values{"client_type": {"public"}}).Want(t, 422, "another page now")
	if a := w.is(); a.ClientType != apps.Confidential {
		t.Error("a developer made the secret unnecessary")
	}
	b.Post(w.mine("/client-type"), choose("native")).Want(t, 422, "Where it runs: must be confidential or public.",
		`name="present"`)
	b.Post(w.mine("/client-type"), choose("public")).Leads(t, w.mine("/settings?done=saved"))
	b.Get(w.mine("/settings")).Want(t, 200, "<dt>Where it runs</dt><dd>On users’ devices")
	if a := w.is(); a.ClientType != apps.Public {
		t.Errorf("it is %s", a.ClientType)
	}
	b.Post(w.mine("/client-type"), choose("confidential")).Leads(t, w.mine("/settings?done=saved"))
}

// picture is a PNG of one colour.
func picture(t *testing.T, shade uint8) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 40, 30))
	draw.Draw(m, m.Bounds(), image.NewUniform(color.Gray{Y: shade}), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A logo is drawn by us, has an address of its own for each picture, and goes with
// its removal. Nobody else sets or removes it.
func TestLogo(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b, other := w.signedIn("developer"), w.signedIn("other")
		const address = `<img class="app-logo" src="(/assets/logos/[0-9a-f]{32}\.png)" alt=""`
		b.Get(w.mine("/settings")).Want(t, 200, `enctype="multipart/form-data"`).Lacks(t, "<img", "Remove logo")
		for says, file := range map[string][]byte{
			"Logo: choose a file.":                          nil,
			"SVG isn’t supported":                           []byte(`<svg onload="alert(1)">`),
			"Logo: must be a PNG, JPEG, WebP or GIF image.": []byte("GIF8 or so"),
			"Logo: must be at most 1024 kB.":                make([]byte, 1<<20+1),
			"must be at most 2,048 pixels":                  hugePNG,
		} {
			w.upload(b, w.mine("/logo"), "logo", file).Want(t, 422, says, `aria-invalid="true"`,
				`href="#logo"`).Lacks(t, "<img", "alert(1)")
		}
		w.upload(b, w.mine("/logo"), "other", picture(t, 1)).Want(t, 422, "must be a form with the file logo")
		w.upload(other, w.mine("/logo"), "logo", picture(t, 1)).Want(t, 404)
		w.upload(b, w.mine("/logo"), "logo", picture(t, 1), "Sec-Fetch-Site", "cross-site").Want(t, 403)
		if a := w.is(); a.LogoHash != "" || a.LogoPath() != "" {
			t.Fatalf("a refused file has become the logo %s", a.LogoHash)
		}
		w.upload(b, w.mine("/logo"), "logo", picture(t, 1)).Leads(t, w.mine("/settings?done=logo"))
		first := b.Get(w.mine("/settings?done=logo")).Want(t, 200, "Logo saved", "Remove logo").Found(t, address)
		b.Get("/developer").Want(t, 200, first)
		resp, err := http.Get(w.URL + first)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		served, err := png.Decode(resp.Body)
		if err != nil || served.Bounds().Dx() != 256 {
			t.Errorf("served: %v %v", err, served)
		}
		for name, want := range map[string]string{
			"Content-Type":            "image/png",
			"X-Content-Type-Options":  "nosniff",
			"Cache-Control":           "public, max-age=31536000, immutable",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		w.upload(b, w.mine("/logo"), "logo", picture(t, 200)).Leads(t, w.mine("/settings?done=logo"))
		second := b.Get(w.mine("/settings")).Found(t, address)
		if second == first {
			t.Error("another picture has the same address")
		}
		b.Get(first).Want(t, 404)
		w.upload(other, "/developer/apps/"+w.foreign.ID+"/logo", "logo", picture(t, 200)).Want(t, 303)
		other.Post(w.mine("/logo/delete"), nil).Want(t, 404)
		b.Get(second).Want(t, 200)
		b.Post(w.mine("/logo/delete"), nil).Leads(t, w.mine("/settings?done=no-logo"))
		b.Get(w.mine("/settings")).Want(t, 200).Lacks(t, "<img")
		b.Get(second).Want(t, 200) // the other app has the same
		for _, none := range []string{"/assets/logos/x.png", "/assets/logos/" + strings.Repeat("0", 32),
			"/assets/logos/%27%20OR%201.png"} {
			b.Get(none).Want(t, 404)
		}
	})
}

// hugePNG says that it has 60,000 × 1,000 pixels.
var hugePNG = []byte(
	"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\xea\x60\x00\x00\x03\xe8\x08\x00\x00\x00\x00\xc1\x62\x5f\xef")

func TestFeatures(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get(w.mine("/features")).Want(t, 200, "No features yet")
		form := url.Values{
			"slug":                 {"chat"},
			"display_name":         {"Chat <i>"},
			"description":          {"Answers."},
			"max_cost_per_call_mc": {"0.05"},
			"max_tokens":           {""},
			"fit":                  {"on"},
			"rate_limit":           {"60"},
			"default_model":        {"gpt-5.6-terra"},
			"dev_margin_rate":      {"25"},
		}
		form.Set("max_cost_per_call_mc", "cheap")
		b.Post(w.mine("/features"), form).Want(t, 422, "enter an amount in dollars", `value="cheap"`, `value="chat"`)
		form.Set("max_cost_per_call_mc", "0.05")
		b.Post(w.mine("/features"), form).Leads(t, w.mine("/features?done=feature"))
		b.Post(w.mine("/features"), form).Want(t, 422, "already exists")
		b.Get(w.mine("/features")).Want(t, 200, "Chat &lt;i&gt;",
			"at most $0.05 per call · lowered until it fits · 60 calls per minute · gpt-5.6-terra by default · margin 25%")
		b.Get(w.mine("/features/chat")).Want(t, 200, `value="0.05"`, `value="25"`,
			`<option value="gpt-5.6-terra" selected>`, `<option value="on" selected>`).Lacks(t, `name="slug"`)
		form.Set("fit", "")
		form.Set("dev_margin_rate", "")
		form.Set("display_name", "")
		b.Post(w.mine("/features/chat"), form).Want(t, 422, "Name: must have 1 to 80 characters.")
		form.Set("display_name", "Talk")
		b.Post(w.mine("/features/chat"), form).Leads(t, w.mine("/features/chat?done=saved"))
		b.Get(w.mine("/features")).Want(t, 200, "Talk").Lacks(t, "margin 25", "lowered until")
		b.Get(w.mine("/features/none")).Want(t, 404)
		b.Get(w.mine("")).Want(t, 200, "X-Svc-Feature: chat")
	})
}

func TestTestAccountsAndKeys(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get("/developer/test-accounts").Want(t, 200, "tester@example.com", "$100.00 available")
		page := b.Post("/developer/test-accounts", nil).Want(t, 200, "@test.invalid", "$1,000.00")
		secret := page.Found(t, `<dd><code>([A-Za-z0-9_-]{20})</code></dd>`)
		b.Get("/developer/test-accounts").Want(t, 200, "@test.invalid").Lacks(t, secret)
		fund := "/developer/test-accounts/" + w.tester.ID + "/fund"
		for _, wrong := range []string{"", "0", "-1", "a lot"} {
			b.Post(fund, url.Values{"amount": {wrong}}).Want(t, 422, "Enter an amount in dollars")
		}
		b.Post(fund, url.Values{"amount": {"12.50"}}).Leads(t, "/developer/test-accounts?done=funded")
		b.Get("/developer/test-accounts").Want(t, 200, "$112.50 available")
		other := w.signedIn("other")
		other.Post(fund, url.Values{"amount": {"1"}}).Want(t, 404)
		other.Post("/developer/test-accounts/"+w.tester.ID+"/delete", nil).Want(t, 404)
		b.Post("/developer/test-accounts/"+w.tester.ID+"/delete", nil).Leads(t, "/developer/test-accounts?done=deleted")
		b.Get("/developer/test-accounts").Want(t, 200).Lacks(t, "tester@example.com")

		b.Get("/developer/keys").Want(t, 200, "No keys yet")
		b.Post("/developer/keys", url.Values{"provider": {"openai"}, "key": {"sk-bad-0123456789-abcdefg"}}).Want(t, 422,
			"Key: the provider refuses it").Lacks(t, "sk-bad")
		b.Post("/developer/keys", url.Values{"provider": {"nobody"}, "key": {"x"}}).Want(t, 404)
		b.Post("/developer/keys", url.Values{"provider": {"openai"}, "key": {"sk-good-0123456789-abcd"}}).Leads(t,
			"/developer/keys?done=key")
		b.Get("/developer/keys").Want(t, 200, "<code>abcd</code>").Lacks(t, "sk-good")
		other.Get("/developer/keys").Lacks(t, "abcd")
		other.Post("/developer/keys/openai/delete", nil).Want(t, 404)
		b.Post("/developer/keys/openai/delete", nil).Leads(t, "/developer/keys?done=deleted")
	})
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Post(w.mine("/webhooks"),
			url.Values{"url": {"http://hooks.example.com/"}, "event.request.settled": {"on"}}).Want(t, 422,
			"URL: must begin with https://", `name="event.request.settled" value="on" checked`)
		page := b.Post(w.mine("/webhooks"),
			url.Values{"url": {"https://hooks.example.com/"}, "event.request.settled": {"on"}}).Want(t, 200,
			"You won’t see")
		secret, path := page.Found(t, `<code>(whsec_[^<]+)</code>`),
			page.Found(t, `href="(/developer/apps/[^"]+)">Continue`)
		b.Get(path).Want(t, 200, "No deliveries yet", `name="event.request.settled" value="on" checked`).Lacks(t,
			secret)
		b.Post(path, url.Values{"url": {"https://hooks.example.com/2"}, "status": {"disabled"}}).Leads(t,
			path+"?done=saved")
		b.Get(w.mine("/webhooks")).Want(t, 200, "https://hooks.example.com/2", "Disabled", "All events")
		password := url.Values{"present": {apitest.Password}}
		next := b.Post(path+"/rotate", password).Want(t, 200).Found(t, `<code>(whsec_[^<]+)</code>`)
		if next == secret {
			t.Error("the secret has not changed")
		}
		b.Post(path+"/test", url.Values{"type": {"nothing"}}).Want(t, 400)
		b.Post(path+"/test", url.Values{"type": {"connection.frozen"}}).Leads(t, path+"?done=sent")
		delivery := b.Get(path).Want(t, 200, "pending").Found(t, `href="([^"]+/deliveries/whd_[0-9a-z]+)"`)
		b.Get(delivery).Want(t, 200, "&#34;type&#34;: &#34;connection.frozen&#34;", "&#34;test&#34;: true")
		b.Get(delivery+"x").Want(t, 404)
		w.exec(`UPDATE deliveries SET status = 'failed', attempts = 8, next_us = NULL, last_error = 'timed <out>'`)
		b.Get(path).Want(t, 200, "failed", "timed &lt;out&gt;")
		b.Post(delivery, nil).Leads(t, path+"?done=again")
		b.Get(path).Want(t, 200, "pending")
		b.Post(path+"/delete", nil).Leads(t, w.mine("/webhooks?done=deleted"))
		b.Get(path).Want(t, 404)
		b.Get(delivery).Want(t, 404)
	})
}

// TestCachedFigures shows what the provider's cache did for calls; a reversal takes back what it saved.
func TestCachedFigures(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		fake := w.connect(w.tester.ID, true)
		w.spend(fake, "chat", "chat", money.Dollar, 0)
		b.Get(w.mine("/analytics")).Want(t, 200, ">chat<").Lacks(t, "Cached input", "Saved by caching")
		usage := rules.Usage{
			JSON: `{"input":200,"cached":1000,"cache_write":0,"output":34,"reasoning":0,` +
				`"cache_saved_mc":37000000}`,
			InputTokens:  1200,
			OutputTokens: 34,
			CachedTokens: 1000,
			CacheSavedMC: 37_000_000,
		}
		first := w.spendUsage(fake, "agent", "agent", money.Dollar, 0, usage)
		w.spendUsage(fake, "agent", "agent", money.Dollar, 0, usage)
		b.Get(w.mine("/analytics")).Want(t, 200, "<dt>Cached input</dt><dd>2,000</dd>",
			"<dt>Saved by caching</dt><dd>$0.74</dd>", `<td class="end num">2,000</td>`,
			`<td class="end num">$0.74</td>`,
			`<td class="end num">–</td>`)
		w.do(rules.Reverse{AccountID: w.tester.ID, EntryID: first.ID, Reason: "provider_error"})
		b.Get(w.mine("/analytics")).Want(t, 200, "<dt>Cached input</dt><dd>2,000</dd>",
			"<dt>Saved by caching</dt><dd>$0.37</dd>")
		writes := usage
		writes.JSON = `{"input":200,"cached":0,"cache_write":1000,"output":34,"reasoning":0,"cache_saved_mc":-50000000}`
		writes.CachedTokens, writes.CacheSavedMC = 0, -50_000_000
		w.spendUsage(fake, "agent", "agent", money.Dollar, 0, writes)
		b.Get(w.mine("/analytics")).Want(t, 200, "<dt>Saved by caching</dt><dd>−$0.13</dd>")
	})
}

func TestFigures(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get(w.mine("/analytics")).Want(t, 200, "No calls in this period")
		b.Get(w.mine("/analytics?tab=errors")).Want(t, 200, "No errors in this period")
		b.Get(w.mine("/requests")).Want(t, 200, "No calls yet")
		fake := w.connect(w.tester.ID, true)
		first := w.spend(fake, "chat", "chat", money.Dollar, money.Dollar/4)
		w.spend(fake, "made-up", "other", money.Dollar, 0)
		w.do(rules.RecordRefusal{Refusal: rules.Refusal{
			RequestID:    id.New(id.Request, d.Now()),
			ConnectionID: fake.ID,
			AppID:        w.app.ID,
			Status:       402,
			Code:         "allocation_exhausted",
			Message:      "too little <left>",
			Details:      `{"needed_mc":5}`,
			CreatedUS:    d.Now().UnixMicro(),
		}})
		b.Get("/developer").Want(t, 200, "$2.25", "$0.25")
		b.Get(w.mine("")).Want(t, 200, "$2.25", "$0.25", "2,400", "2 of 5 done", "Register a feature", "33.33%",
			`title="`+fake.ID+`"`, w.mine("/requests?connection="+fake.ID), "<code>allocation_exhausted</code>",
			w.mine("/requests?status=refused"), `<svg class="spark"`).Lacks(t, "tester@", "others")
		b.Get(w.mine("")).Want(t, 200, `<dt>Active connections</dt><dd>1<`)
		b.Get(w.mine("/analytics")).Want(t, 200, "By feature", ">chat<", ">other<", "unregistered features",
			">gpt-5.6-terra<", "$1.25",
			`id="by-day-title"`, `id="by-feature-title"`, `id="by-model-title"`,
			"$2.25 in total, including your margin of $0.25", "Provider cost and fee", "33.33%")
		b.Get(w.mine("/analytics?tab=errors")).Want(t, 200, "allocation_exhausted", "The remaining spend cap",
			`id="by-code-title"`, `id="errors-title"`)
		// Bars and legends lead to the calls that they sum.
		today := d.Now().UTC().Format("2006-01-02")
		for path, link := range map[string]string{
			"/analytics?by=feature&days=7": `">chat</a></span>`,
			"/analytics?by=model&days=7":   `">gpt-5.6-terra</a></span>`,
			"/analytics?tab=errors&days=7": `&amp;status=refused">allocation_exhausted</a></span>`,
			"/analytics":                   w.mine("/requests?from=") + today + `"`,
		} {
			b.Get(w.mine(path)).Want(t, 200, link).Lacks(t, "show=refused", `">other</a></span>`)
		}
		b.Get(w.mine("/requests?from="+today+"&feature=chat")).Want(t, 200, "gpt-5.6-terra").Lacks(t, ">other<")
		b.Get(w.mine("/analytics?by=feature&compare=1&interval=week")).Want(t, 200, ">chat</th>", ">other</th>",
			"Period before", "$2.25")
		b.Get(w.mine("/analytics?tab=usage&by=model")).Want(t, 200, `data-value="2"`, "Tokens, input and output")
		b.Get(w.mine("/analytics?tab=users&days=90")).Want(t, 200, "Active connections", "Consent screens shown")
		b.Get(w.mine("/analytics?tab=latency&days=7")).Want(t, 200, "First byte, p95")
		b.Get(w.mine("/analytics.csv?by=feature&days=7")).Want(t, 200, "chart,start,chat,other,total",
			",125000000,100000000,225000000")
		b.Get(w.mine("/analytics.csv?tab=errors&days=7")).Want(t, 200, "chart,start,allocation_exhausted,total", ",1,1")
		b.Get(w.mine("/analytics?days=7")).Want(t, 200, "$2.25")
		// The last 24 hours, from the ledger itself.
		hour := d.Now().UTC().Format("2006-01-02 15:00")
		b.Get(w.mine("/analytics?days=1&compare=1")).Want(t, 200, "by hour, the last 24 hours", ">chat<", ">other<",
			"$2.25 in total, including your margin of $0.25", "33.33%", "Period before").Lacks(t, "Interval")
		b.Get(w.mine("/analytics.csv?days=1&by=feature")).Want(t, 200, "chart,start,chat,other,total",
			"by-day,"+hour+",125000000,100000000,225000000")
		b.Get(w.mine("/analytics?tab=usage&days=1")).Want(t, 200, "2,468 tokens in total")
		b.Get(w.mine("/analytics?tab=errors&days=1")).Want(t, 200, "?days=7").Lacks(t, "24 hours")
		requestID := id.ReplacePrefix(first.ID, id.Ledger, id.Request)
		b.Get(w.mine("/requests")).Want(t, 200, requestID, `made-up<span class="sub">not registered`).Lacks(t,
			w.tester.ID, "tester@",
			"Older")
		b.Get(w.mine("/requests/"+requestID)).Want(t, 200, "The user was charged $1.25", "$0.25", fake.ID,
			`data-label="Count">1,200<`, `data-label="Count">34<`, `data-label="Per million">× $`,
			`data-label="Cost">= `).Lacks(t, w.tester.ID, "tester@")
		back := w.do(rules.Reverse{EntryID: first.ID, AccountID: first.AccountID, Reason: "provider_error"}).Entry
		backID := id.ReplacePrefix(back.ID, id.Ledger, id.Request)
		b.Get(w.mine("/requests")).Want(t, 200, ">Refunded<", ">Refund<", ">−$1.2500", ">−$0.2500")
		b.Get(w.mine("/requests/"+requestID)).Want(t, 200, ">Refunded<", "$1.25 of it was refunded later",
			w.mine("/requests/"+backID))
		b.Get(w.mine("/requests/"+backID)).Want(t, 200, ">Refund<", "−$1.25", "−$0.25", w.mine("/requests/"+requestID))
		w.spend(fake, "chat", "chat", money.Dollar, money.Dollar/4)
		refusedID := b.Get(w.mine("/requests?status=refused")).Want(t, 200, "allocation_exhausted").Found(t,
			`requests/(req_[0-9a-z]+)"`)
		b.Get(w.mine("/requests/"+refusedID)).Want(t, 200, "too little &lt;left&gt;", "&#34;needed_mc&#34;: 5")
		call := rules.Call{
			ConnectionID: fake.ID,
			AccountID:    fake.AccountID,
			AppID:        fake.AppID,
			Key:          "running",
			RequestID:    id.New(id.Request, d.Now()),
			Fingerprint:  "f",
			Model:        "gpt-5.6-terra",
			Terms:        "{}",
			HoldMC:       money.Cent,
		}
		w.do(rules.Hold{Call: call, NodeID: "node_1", Claim: "c"})
		w.do(rules.Defer{Call: call, Attempt: 1, Provider: "openai"})
		b.Get(w.mine("/requests/"+call.RequestID)).Want(t, 200, "is not known yet", "gpt-5.6-terra").Lacks(t,
			"The user was charged")
		b.Get(w.mine("")).Want(t, 200, `hx-get="`+w.mine("/live")+`"`, `<script src="/assets/htmx.`)
		b.Get(w.mine("/live")).Want(t, 200, "$2.25</span></strong> spent in 3 calls",
			"$0.01</span></strong> held on 1 connection for").Lacks(t, "<html", "<h1")
		for range 51 {
			w.spend(fake, "", "", money.Cent, 0)
		}
		older := b.Get(w.mine("/requests")).Want(t, 200).Lacks(t, requestID).Found(t, `href="([^"]+)">Older`)
		b.Get(strings.ReplaceAll(older, "&amp;", "&")).Want(t, 200, requestID).Lacks(t, "Older")
		b.Get(w.mine("/analytics")).Want(t, 200, ">none<", "calls without a feature")
		w.checkUsage(t)
		// Once the app is live, fake money is no part of what it earned.
		w.do(rules.Revoke{ConnectionID: fake.ID})
		w.exec(`UPDATE apps SET tier = 'limited-live', provider_mode = 'live' WHERE id = $1`, w.app.ID)
		b.Get(w.mine("/analytics")).Want(t, 200, "No calls in this period")
		w.spend(w.connect(w.person.ID, false), "chat", "chat", 3*money.Dollar, money.Dollar)
		b.Get("/developer").Want(t, 200, "$4.00", "$1.00").Lacks(t, "$2.25")
		b.Get(w.mine("/analytics")).Want(t, 200, "$4.00").Lacks(t, "$2.25", ">other")
	})
}

func TestGoLive(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Get(w.mine("/go-live")).Want(t, 200, "disabled", "Register one", "Choose them")
		b.Post(w.mine("/go-live"), nil).Want(t, 422, "it lacks: feature, allowed_models")
		w.exec(`UPDATE apps SET allowed_models = '["gpt-5.6-terra"]' WHERE id = $1`, w.app.ID)
		w.exec(`INSERT INTO features (app_id, slug, display_name, description, created_us) VALUES ($1, 'chat', 'Chat', 'Answers.', 1)`, w.app.ID)
		b.Post(w.mine("/go-live"), nil).Leads(t, w.mine("/go-live?done=asked"))
		b.Get(w.mine("/go-live")).Want(t, 200, "We’ll review your request soon").Lacks(t, "Request review")
		b.Post(w.mine("/go-live"), nil).Want(t, 422, "pending already")
		w.exec(`UPDATE golive_requests SET status = 'refused', reason = 'Say <more>.', decided_us = 1`)
		b.Get(w.mine("/go-live")).Want(t, 200, "Say &lt;more&gt;.", "Request review")
		w.exec(`UPDATE apps SET tier = 'limited-live', provider_mode = 'live' WHERE id = $1`, w.app.ID)
		b.Get(w.mine("/go-live")).Want(t, 200, "isn’t available yet").Lacks(t, "Request review")
	})
}

// U9: the checklist says whether the app has a logo, and where to add one.
func TestGoLiveKnowsTheLogo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("developer")
	b.Get(w.mine("/go-live")).Want(t, 200, `Missing: </span>A logo for the consent screen.`,
		`href="`+w.mine("/settings#logo")+`">Add one`)
	w.upload(b, w.mine("/logo"), "logo", picture(t, 1)).Leads(t, w.mine("/settings?done=logo"))
	b.Get(w.mine("/go-live")).Want(t, 200, `Done: </span>A logo for the consent screen.`).Lacks(t, "#logo")
}

func TestPlayground(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		form := url.Values{
			"account":    {w.tester.ID},
			"feature":    {""},
			"model":      {"gpt-5.6-terra"},
			"max_tokens": {"50"},
			"prompt":     {"Good 'evening' </pre>"},
		}
		b.Get(w.mine("/playground")).Want(t, 200, "tester@example.com, $100.00 available", ">Run<")
		for range 2 { // the second time it is connected already
			b.Post(w.mine("/playground"), form).Want(t, 200, "Good &lt;evening&gt;.", "$0.0000275", "&lt;/pre&gt;",
				`evening&#39;\&#39;&#39;`)
		}
		var tokens, open int
		if err := d.QueryRowContext(t.Context(),
			`SELECT (SELECT COUNT(*) FROM oauth_tokens WHERE revoked_us IS NULL), (SELECT COUNT(*) FROM connections WHERE status = 'active')`).Scan(&tokens, &open); err != nil || tokens != 0 || open != 1 {
			t.Errorf("%d tokens are left, %d connections, %v", tokens, open, err)
		}
		form.Set("max_tokens", "51")
		b.Post(w.mine("/playground"), form).Want(t, 200, "Refused", "Not a call. (invalid_request)").Lacks(t, "Receipt")
		form.Set("max_tokens", "5000")
		b.Post(w.mine("/playground"), form).Want(t, 422, "from 1 to 4000")
		form.Set("account", w.person.ID)
		b.Post(w.mine("/playground"), form).Want(t, 404)
		w.exec(`UPDATE apps SET tier = 'limited-live', provider_mode = 'live' WHERE id = $1`, w.app.ID)
		b.Get(w.mine("/playground")).Want(t, 200, "test accounts can’t use it").Lacks(t, ">Run<")
		form.Set("account", w.tester.ID)
		b.Post(w.mine("/playground"), form).Want(t, 404)
	})
}

// every returns the paths of all routes with a method, about an app and what it has.
func (w *world) every(method, appID string, parts ...string) (list []string) {
	fill := strings.NewReplacer(append([]string{"{id}", appID}, parts...)...)
	for _, r := range w.routes {
		if path, ok := strings.CutPrefix(r, method+" "); ok {
			list = append(list, fill.Replace(path))
		}
	}
	return list
}

// Another developer's app is answered like one that does not exist, on every page,
// to the byte, whatever is posted.
func TestForeignApps(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		b.Post(w.mine("/features"), url.Values{
			"slug":         {"chat"},
			"display_name": {"Chat"},
			"description":  {"Answers."},
		}).Want(t, 303)
		hook := b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/"}}).Found(t,
			`webhooks/(whk_[0-9a-z]+)"`)
		b.Post(w.mine("/webhooks/"+hook+"/test"), url.Values{"type": {"request.settled"}}).Want(t, 303)
		delivery := b.Get(w.mine("/webhooks/"+hook)).Found(t, `deliveries/(whd_[0-9a-z]+)"`)
		call := id.ReplacePrefix(w.spend(w.connect(w.tester.ID, true), "", "", money.Cent, 0).ID, id.Ledger, id.Request)
		const talk = "rts_00000000000000000000000001"
		w.exec(`INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, model, mock, status, slot, ticket_hash, ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s, created_us)
			VALUES ($1, 'conn_x', $2, $3, 'gpt-realtime-2.1', 1, 'pending', 1, '', 1, 0, 0, 0, '{}', 900, 1)`, talk,
			w.tester.ID, w.app.ID)
		b.Post("/developer/keys", url.Values{"provider": {"openai"}, "key": {"sk-good-0123456789-abcd"}}).Want(t, 303)
		parts := []string{"{session}", talk, "{slug}", "chat", "{endpoint}", hook, "{delivery}", delivery, "{request}",
			call, "{account}", w.tester.ID, "{provider}", "openai", "{member}", w.member("colleague"), "{invitation}",
			"inv_none", "{file}", "2026-11.csv"}
		for _, path := range w.every("GET", w.app.ID, parts...) {
			b.Get(path).Want(t, 200) // they are there
		}
		form := url.Values{
			"name":         {"Stolen"},
			"to":           {"off"},
			"url":          {"https://evil.example.com/"},
			"type":         {"request.settled"},
			"slug":         {"evil"},
			"display_name": {"E"},
			"description":  {"E"},
			"account":      {w.tester.ID},
			"amount":       {"1"},
			"prompt":       {"x"},
			"max_tokens":   {"50"},
		}
		before := w.everything()
		other, requestIDs := w.signedIn("other"), regexp.MustCompile(`req_[0-9a-z]{26}`)
		same := func(path string, foreign, none apitest.Page) {
			t.Helper()
			if foreign.Status != 404 ||
				requestIDs.ReplaceAllString(foreign.Body, "") != requestIDs.ReplaceAllString(none.Body, "") {
				t.Errorf("%s: %d differs from %d\n%s\n%s", path, foreign.Status, none.Status, foreign.Body, none.Body)
			}
		}
		const none = "app_00000000000000000000000000"
		n := 0
		for i, path := range w.every("GET", w.app.ID, parts...) {
			if strings.Contains(path, w.app.ID) {
				same(path, other.Get(path), other.Get(w.every("GET", none, parts...)[i]))
				n++
			}
		}
		for i, path := range w.every("POST", w.app.ID, parts...) {
			if strings.Contains(path, w.app.ID) {
				same(path, other.Post(path, form), other.Post(w.every("POST", none, parts...)[i], form))
				n++
			}
		}
		if n < 25 {
			t.Errorf("only %d pages were tried", n)
		}
		// Nor through an app of one's own.
		for _, rest := range []string{"/webhooks/" + hook, "/webhooks/" + hook + "/deliveries/" + delivery,
			"/requests/" + call, "/features/chat", "/voice/" + talk} {
			other.Get("/developer/apps/"+w.foreign.ID+rest).Want(t, 404)
		}
		other.Post("/developer/apps/"+w.foreign.ID+"/webhooks/"+hook+"/delete", nil).Want(t, 404)
		other.Post("/developer/apps/"+w.foreign.ID+"/playground", form).Want(t, 404)
		other.Post("/developer/apps/"+w.foreign.ID+"/playground/voice", form).Want(t, 404)
		other.Post("/developer/apps/"+w.foreign.ID+"/voice/"+talk+"/end", nil).Want(t, 404)
		if after := w.everything(); after != before {
			t.Errorf("strangers changed %s to %s", before, after)
		}
	})
}

// No page does anything by being opened, nor by a form of another site, nor for
// somebody who is not signed in or no developer.
func TestWhoMayEnter(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b, nobody, person, tester := w.signedIn("developer"), w.browser(), w.signedIn("person"), w.signedIn("tester")
		before := w.everything()
		for _, path := range w.every("POST", w.app.ID) {
			for _, forged := range [][]string{
				{"Sec-Fetch-Site", "cross-site"},
				{"Origin", "https://evil.example.com"},
			} {
				b.Post(path, url.Values{"to": {"off"}, "name": {"x"}}, forged...).Want(t, 403)
			}
			nobody.Post(path, nil).Want(t, 303).Lacks(t, "<")
			person.Post(path, nil).Leads(t, "/developer")
			tester.Post(path, nil).Leads(t, "/developer")
		}
		for _, path := range w.every("GET", w.app.ID) {
			if a := nobody.Get(path); a.Status != 303 || !strings.HasPrefix(a.To, "/sign-in?next=") {
				t.Errorf("%s shows nobody %d to %q", path, a.Status, a.To)
			}
			if path != "/developer" {
				person.Get(path).Leads(t, "/developer")
			}
			b.Get(path + "?to=off&name=x")
		}
		tester.Get("/developer").Want(t, 200, "This is a test account").Lacks(t, "<form id", "Enable developer tools")
		if after := w.everything(); after != before {
			t.Errorf("%s has become %s", before, after)
		}
		person.Get("/developer").Want(t, 200, `action="/settings/developer"`, "Enable developer tools")
		w.exec(`UPDATE accounts SET developer = 1 WHERE email = 'person@example.com'`) // which that form does
		person.Get("/developer").Want(t, 200, "Create your first app")
		person.Get(w.mine("")).Want(t, 404)
	})
}

// checkUsage compares the app's usage, however it is divided, with the charges in the ledger.
func (w *world) checkUsage(t *testing.T) {
	t.Helper()
	var want usage.Sum
	err := w.d.QueryRowContext(t.Context(),
		`SELECT CAST(SUM(CASE WHEN status = 'reversed' THEN -user_charge_mc ELSE user_charge_mc END) AS BIGINT),
			CAST(SUM(CASE WHEN status = 'reversed' THEN -dev_margin_mc ELSE dev_margin_mc END) AS BIGINT),
			CAST(SUM(CASE WHEN status = 'reversed' THEN -provider_cost_mc ELSE provider_cost_mc END) AS BIGINT)
		FROM ledger WHERE app_id = $1 AND type = 'spend'`, w.app.ID).Scan(&want.ChargeMC, &want.MarginMC, &want.CostMC)
	if err != nil {
		t.Fatal(err)
	}
	for _, interval := range []usage.Interval{usage.Day, usage.Week, usage.Month} {
		for _, by := range []usage.Group{usage.ByNone, usage.ByModel, usage.ByFeature, usage.ByConnection} {
			list, err := usage.List(t.Context(), w.d, usage.Query{
				AppID:    w.app.ID,
				Sandbox:  true,
				From:     w.d.Now().AddDate(0, 0, -40),
				To:       w.d.Now(),
				Interval: interval,
				GroupBy:  by,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := usage.Total(list)
			if got.ChargeMC != want.ChargeMC || got.MarginMC != want.MarginMC || got.CostMC != want.CostMC ||
				got.Refused != 1 {
				t.Errorf("by %s and %s: %+v, the ledger has %+v", interval, by, got, want)
			}
		}
	}
}

// TestStaleForms: a tab that was open while another one saved the form changes what was typed in it, and nothing else.
func TestStaleForms(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		save := func(path string, form url.Values, done string) {
			t.Helper()
			b.Post(path, form).Leads(t, path+done)
		}
		path := w.mine("/settings")
		first := url.Values{"shown": {b.Get(path).Shown(t, path)}, "name": {"My <b>App</b>"}, "dev_margin_rate": {"0"},
			"redirect_uris": {strings.Join(w.is().RedirectURIs, "\r\n")}, "default_max_tokens": {"77"}}
		for _, m := range w.is().AllowedModels {
			first.Set("model."+m, "on")
		}
		save(path, url.Values{"shown": {first.Get("shown")}, "name": {"Renamed"}, "dev_margin_rate": {"20"},
			"redirect_uris": {"https://new.example.com/cb"}, "default_max_tokens": {""},
			"model.gpt-5.6-terra": {"on"}, "model.gpt-6-luna": {"on"}}, "?done=saved")
		models := len(w.is().AllowedModels)
		save(path, first, "?done=saved")
		if a := w.is(); a.Name != "Renamed" || a.DevMargin != money.One/5 || a.DefaultMaxTokens == nil ||
			*a.DefaultMaxTokens != 77 || len(a.AllowedModels) != models ||
			a.RedirectURIs[0] != "https://new.example.com/cb" {
			t.Errorf("settings: %+v", a)
		}
		profile := w.mine("/profile")
		shown := b.Get(path).Shown(t, profile)
		b.Post(profile, url.Values{"shown": {shown}, "developer_name": {"Ada"}, "support": {""}}).Leads(t,
			w.mine("/settings?done=profile"))
		b.Post(profile, url.Values{"shown": {shown}, "developer_name": {""}, "support": {"help@example.com"}}).Leads(t,
			w.mine("/settings?done=profile"))
		if p := w.is().Profile; p.DeveloperName != "Ada" || p.Support != "help@example.com" {
			t.Errorf("profile: %+v", p)
		}

		feature := url.Values{"slug": {"chat"}, "display_name": {"Chat"}, "description": {"Answers."},
			"max_cost_per_call_mc": {"0.05"}, "rate_limit": {"60"}, "dev_margin_rate": {""}}
		b.Post(w.mine("/features"), feature).Leads(t, w.mine("/features?done=feature"))
		path = w.mine("/features/chat")
		feature.Set("shown", b.Get(path).Shown(t, path))
		safer := url.Values{"shown": {feature.Get("shown")}, "max_cost_per_call_mc": {"0.01"},
			"dev_margin_rate": {"10"}}
		save(path, safer, "?done=saved")
		feature.Set("rate_limit", "30")
		save(path, feature, "?done=saved")
		b.Get(path).Want(t, 200, `value="0.01"`, `value="30"`, `value="10"`, `value="Chat"`)

		made := b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/"},
			"event.request.settled": {"on"}, "event.connection.frozen": {"on"}}).Want(t, 200)
		path = made.Found(t, `href="(/developer/apps/[^"]+)">Continue`)
		shown = b.Get(path).Shown(t, path)
		save(path, url.Values{"shown": {shown}, "url": {"https://hooks.example.com/2"}, "status": {"disabled"},
			"event.request.settled": {"on"}}, "?done=saved")
		save(path, url.Values{"shown": {shown}, "url": {"https://hooks.example.com/"}, "status": {"active"},
			"event.request.settled": {"on"}, "event.connection.frozen": {"on"}, "event.connection.revoked": {"on"}},
			"?done=saved")
		b.Get(w.mine("/webhooks")).Want(t, 200, "https://hooks.example.com/2", "Disabled")
		b.Get(path).Want(t, 200, `name="event.request.settled" value="on" checked`,
			`name="event.connection.revoked" value="on" checked`, `name="event.connection.frozen" value="on">`)
	})
}
