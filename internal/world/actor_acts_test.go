package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"image"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/coder/websocket"
	vw "github.com/descope/virtualwebauthn"
	"github.com/pquerna/otp/totp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// acts are what a row does that is no single request: WHO does it, with the words behind its name.
var acts = map[string]func(c *cast, who string, with string) error{
	"connect": (*cast).connect,
	"sleep": func(c *cast, _, with string) error {
		d, err := time.ParseDuration(with)
		c.Pass(d)
		return err
	},
	"refresh":  func(c *cast, _, _ string) error { return c.refresh(c.grant, true) },
	"mail":     (*cast).readMail,
	"sign-out": (*cast).signOut,
	"bank": func(c *cast, _, with string) error {
		history, err := bank.Parse(with)
		for _, s := range history {
			err = errors.Join(err, c.money.Play(s))
		}
		return err
	},
	"watch":    (*cast).watch,
	"leave":    func(c *cast, who, with string) error { return c.begin(who, with, true) },
	"slow":     func(c *cast, who, with string) error { return c.begin(who, with, false) },
	"control":  (*cast).control,
	"speak":    (*cast).speak,
	"code":     (*cast).enterCode,
	"make-key": (*cast).makeKey,
	"use-key":  (*cast).useKey,
	"provider": (*cast).askProvider,
	"logo":     (*cast).sendLogo,
	"rotate":   (*cast).rotate,
	"app":      (*cast).makeApp,
	"settings": (*cast).changeSettings,
	"prices":   (*cast).changePrices,
	"run":      (*cast).run,
	"write":    (*cast).write,
	"save":     func(c *cast, _, with string) error { return c.write("", with+" "+c.answer.Body) },
}

// connect lets a person consent to an app, whose token "token" is then.
func (c *cast) connect(person, app string) error {
	client := c.clients[app]
	g, err := c.api.authorize(person, client, "10")
	if err != nil {
		return err
	} else if g == nil {
		return errRefused
	}
	c.grant, c.clients["app"] = g, client
	c.known["app"], c.known["conn"] = c.known[app], g.connectionID
	c.known["token"] = c.api.tokens[len(c.api.tokens)-1].text
	return nil
}

// readMail keeps as link what a pattern finds in the newest mail to an address.
func (c *cast) readMail(_, with string) error {
	to, pattern, _ := strings.Cut(with, " ")
	list, err := c.Server.Mails.ListNewest(context.Background(), 50)
	if err != nil {
		return err
	}
	for _, m := range list {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(m.Text); m.To == to && found != nil {
			c.known["link"] = found[1]
			return nil
		}
	}
	return fmt.Errorf("%w: no mail to %s has %s", errRefused, to, pattern)
}

// signOut ends a session, whose cookies a stranger has.
func (c *cast) signOut(browser, _ string) error {
	home, err := url.Parse(c.URL(purserHost))
	if err != nil {
		return err
	}
	cookies := c.reader.jars[browser].Cookies(home)
	if err := c.request(browser, "POST", "/sign-out", ""); err == nil && c.answer.Status == http.StatusSeeOther {
		c.reader.ended = append(c.reader.ended, cookies)
	}
	return err
}

// open sends a request whose answer is read bit by bit.
func (c *cast) open(ctx context.Context, who, method, path, body string) (*http.Response, error) {
	c.act()
	r, err := http.NewRequestWithContext(ctx, method, c.URL(purserHost)+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.known[who])
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", c.newKey())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	c.coverage.note(method, path, answer.StatusCode, "")
	c.answer.Status, c.header = answer.StatusCode, answer.Header
	return answer, nil
}

// watch reads the first event of a connection's stream, which is that of a call.
func (c *cast) watch(who, _ string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := c.open(ctx, who, "GET", "/v1/connection/events", "")
	if err != nil || stream.StatusCode != http.StatusOK {
		return err
	}
	defer stream.Body.Close()
	_, err = stream.Body.Read(make([]byte, 1))
	return err
}

// begin sends a call whose answer takes minutes. A client that leaves reads the first piece of it.
func (c *cast) begin(who, _ string, leaves bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	body := streamed(strings.Replace(chatBody, "hello", `!emu words=25 pace=2s`, 1))
	stream, err := c.open(ctx, who, "POST", "/v1/chat/completions", body)
	if err != nil || stream.StatusCode != http.StatusOK {
		cancel()
		return err
	}
	c.answer.Body = stream.Header.Get("X-Request-Id")
	if leaves {
		_, err = stream.Body.Read(make([]byte, 1))
		cancel()
		return errors.Join(err, stream.Body.Close())
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, stream.Body) // it may be cut
		_ = stream.Body.Close()
	}()
	return nil
}

// dial opens a socket of a voice session.
func (c *cast) dial(path, token string) (*websocket.Conn, error) {
	c.act()
	options := websocket.DialOptions{}
	if token != "" {
		options.HTTPHeader = http.Header{"Authorization": {"Bearer " + token}}
	}
	ws, answer, err := websocket.Dial(context.Background(), c.URL(purserHost)+path, &options)
	if answer != nil {
		c.coverage.note("GET", path, answer.StatusCode, "")
	}
	if err == nil {
		ws.SetReadLimit(1 << 22)
	}
	return ws, err
}

// until reads events of a socket until one contains text.
func until(ws *websocket.Conn, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		_, event, err := ws.Read(ctx)
		if err != nil {
			return fmt.Errorf("%q did not come: %w", text, err)
		} else if bytes.Contains(event, []byte(text)) {
			return nil
		}
	}
}

// control follows a voice session as its app does.
func (c *cast) control(who, session string) error {
	ws, err := c.dial("/v1/realtime/sessions/"+session+"/control", c.known[who])
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }() // it may have ended
	return until(ws, "svc.response.settled")
}

// speak talks with the mock voice.
func (c *cast) speak(who, session string) error {
	ws, err := c.dial("/v1/realtime/sessions/"+session+"/mock?ticket="+url.QueryEscape(c.known[who]), "")
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }() // it may have ended
	heard := make(chan error, 1)         // a network in memory has no buffers: both ends must read while they write
	go func() { heard <- until(ws, "response.done") }()
	for _, event := range []string{
		`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text",` +
			`"text":"Hello you"}]}}`,
		`{"type":"response.create"}`,
	} {
		if err := ws.Write(context.Background(), websocket.MessageText, []byte(event)); err != nil {
			return err
		}
	}
	return <-heard
}

// enterCode is what an authenticator app shows.
func (c *cast) enterCode(_, _ string) (err error) {
	c.known["code"], err = totp.GenerateCode(strings.ReplaceAll(c.known["seed"], "-", ""), c.clock.steady())
	return err
}

var optionsOf = regexp.MustCompile(`data-options="([^"]*)"`)

// asked are the options that the last page passes to the browser.
func (c *cast) asked() string {
	if found := optionsOf.FindStringSubmatch(c.answer.Body); found != nil {
		return html.UnescapeString(found[1])
	}
	return ""
}

func (c *cast) party() vw.RelyingParty {
	return vw.RelyingParty{ID: c.host(purserHost), Name: "Purser", Origin: c.URL(purserHost)}
}

// makeKey answers the page that makes a passkey.
func (c *cast) makeKey(browser, _ string) error {
	o, err := vw.ParseAttestationOptions(c.asked())
	if err != nil {
		return fmt.Errorf("%w: %w: %s", errRefused, err, plain(c.answer.Body))
	}
	c.device = vw.NewAuthenticatorWithOptions(vw.AuthenticatorOptions{UserHandle: []byte(o.UserID)})
	for c.key = vw.NewCredential(vw.KeyTypeEC2); len(c.key.Key.AttestationData()) != 77; { // the library drops zeros
		c.key = vw.NewCredential(vw.KeyTypeEC2)
	}
	answer := vw.CreateAttestationResponse(c.party(), c.device, c.key, *o)
	return c.request(browser, "POST", "/settings/passkeys/make", url.Values{"answer": {answer}}.Encode())
}

// useKey answers the page that signs in by a passkey.
func (c *cast) useKey(browser, _ string) error {
	o, err := vw.ParseAssertionOptions(c.asked())
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	c.key.Counter++
	answer := vw.CreateAssertionResponse(c.party(), c.device, c.key, *o)
	return c.request(browser, "POST", "/sign-in/passkey/answer",
		url.Values{"next": {"/settings"}, "answer": {answer}}.Encode())
}

var providerLink = regexp.MustCompile(`href="(http[^"]*/authorize[^"]*)"`)

// askProvider signs in at the identity provider to which the last page leads.
func (c *cast) askProvider(browser, _ string) error {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	found := providerLink.FindStringSubmatch(c.answer.Body)
	if found == nil {
		return fmt.Errorf("%w: no way to the provider: %s", errRefused, plain(c.answer.Body))
	}
	answer, err := client.PostForm(html.UnescapeString(found[1]), url.Values{"email": {bank.Address(ownerOf(browser))}})
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	back := strings.TrimPrefix(answer.Header.Get("Location"), c.URL(purserHost))
	return c.request(browser, "GET", back, "")
}

// sendLogo saves a logo of the sketch.
func (c *cast) sendLogo(browser, _ string) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("logo", "logo.png")
	if err == nil {
		err = png.Encode(file, image.NewGray(image.Rect(0, 0, 64, 64)))
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return err
	}
	c.answer, err = c.send(context.Background(), c.reader.jars[browser], "POST",
		"/developer/apps/"+c.known["sketch"]+"/logo", body.String(), "Content-Type", form.FormDataContentType())
	return err
}

var newSecret = regexp.MustCompile(`Client secret</dt><dd><code>([^<]+)`)

// rotate replaces the client secret of the sketch, because the old one has leaked.
func (c *cast) rotate(browser, _ string) error {
	err := c.form(browser, "/developer/apps/"+c.known["sketch"]+"/secret", "", "when=now")
	if found := newSecret.FindStringSubmatch(c.answer.Body); err == nil && found != nil {
		old := c.clients["sketch"]
		c.leaked = append(c.leaked, old)
		c.clients["sketch"] = credentials{old.clientID, found[1]}
	}
	return err
}

// makeApp registers an app of dev's in the sandbox, as "fresh".
func (c *cast) makeApp(_, _ string) error {
	return c.register("fresh", apps.New{Name: "Fresh " + c.known["n"]})
}

// register makes an app of dev's.
func (c *cast) register(name string, n apps.New) error {
	n.OwnerID, n.RedirectURIs = c.money.People["dev"], []string{back}
	return c.Server.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		app, secret, err := c.Server.Apps.Create(ctx, tx, n)
		c.clients[name], c.known[name] = credentials{app.ClientID, secret}, app.ID
		return err
	})
}

// addZoe makes a person who is nobody's of package bank, so that nobody minds what she does with her account.
func (c *cast) addZoe() error {
	return c.Server.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := c.Server.Accounts.Create(ctx, tx, accounts.NewAccount{
			Email: bank.Address("zoe"), PasswordHash: apitest.PasswordHash(c.T),
		})
		return err
	})
}

// otherValues are settings as they are not by default, where a history allows it.
var otherValues = map[string]string{
	"fee_rate": "0.06", "free_credit.pool": "1", "free_credit.on_app": "0.50", "free_credit.on_all": "2",
	"sandbox_day": "20", "sandbox_total_day": "200", "empty_answers_day": "0.50", "unbilled_calls_day": "0.50",
	"risk.floor": "0.30", "risk.warn": "6", "risk.throttle": "11", "risk.freeze": "21",
}

// changeSettings changes one of what holds for all calls, or, in a tour, each that has not been; or what is named.
func (c *cast) changeSettings(who, with string) error {
	named, value, isNamed := strings.Cut(with, " ")
	for i, s := range policy.Settings {
		switch {
		case isNamed && s.Name != named, !isNamed && !c.strict && i != c.played%len(policy.Settings),
			!isNamed && c.strict && c.coverage.done["setting "+s.Name] > 0:
			continue
		case !isNamed && (c.strict || c.played%2 == 0):
			value = otherValues[s.Name]
		case !isNamed:
			value = s.Text(policy.Default)
		}
		err := c.request(who, "POST", "/v1/operator/settings",
			fmt.Sprintf(`{"settings":{%q:%q},"reason":"It must be so."}`, s.Name, value))
		if err != nil {
			return err
		}
		c.Pass(2 * time.Second) // no two begin at once
		c.coverage.count("setting "+s.Name, c.answer.Status == http.StatusOK)
	}
	return nil
}

// pricesText is an operator's file, without some models.
func pricesText(off string) []byte {
	return fmt.Appendf(nil, "date: 2026-11-02\nmodels:\n  - {id: %s, off: true}\n...\n", off)
}

// changePrices replaces the operator's file of prices, which the product reads in seconds.
func (c *cast) changePrices(_, _ string) error {
	off := []string{"gpt-4o-mini", "gpt-5.4-mini"}[c.played%2]
	if err := os.WriteFile(c.config.PricesFile, pricesText(off), 0o600); err != nil {
		return err
	}
	c.act()
	c.Pass(10 * time.Second)
	if err := c.request("nobody", "GET", "/v1/models", ""); err != nil {
		return err
	}
	isRead := !strings.Contains(c.answer.Body, `"`+off+`"`)
	if c.coverage.count("setting prices", isRead); !isRead && c.answer.Status == http.StatusOK {
		return fmt.Errorf("%s is offered, which the file of prices has taken away", off)
	}
	return nil
}
