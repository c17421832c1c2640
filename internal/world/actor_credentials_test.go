package world

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// isForm is the header of a form.
var isForm = []string{"Content-Type", "application/x-www-form-urlencoded"}

var resetLink = regexp.MustCompile(`/reset/[\w-]+`)

// forgets lets a person ask for a link that sets a password, mostly something happen that ends it, and somebody open
// the link.
func (w *world) forgets(s bank.Step) error {
	person := names[s.A%len(names)]
	form := url.Values{"email": {bank.Address(person)}}
	a, err := w.send(context.Background(), nil, "POST", "/forgot", form.Encode(), isForm...)
	if err != nil || a.Status != http.StatusOK { // it was asked for too often
		return err
	}
	mails, err := w.texts(`SELECT text FROM mails WHERE account_id = $1 AND text LIKE '%/reset/%'
		ORDER BY created_us DESC, id DESC LIMIT 1`, w.money.People[person])
	if err != nil || len(mails) == 0 { // the person is suspended, or has left
		return err
	}
	hasEnded, err := w.change(person, s)
	if err != nil {
		return err
	}
	form = url.Values{"password": {bank.Password}}
	a, err = w.send(context.Background(), nil, "POST", resetLink.FindString(mails[0]), form.Encode(), isForm...)
	if err == nil && hasEnded && a.Status < 400 {
		err = fmt.Errorf("access: a link sets the password of %s after it has ended: %d", person, a.Status)
	}
	w.api.drawn[fmt.Sprint("a link that sets a password, has ended ", hasEnded, ": ", a.Status)]++
	return err
}

// approves lets a person consent to an app, mostly something happen that ends the consent, and the app exchange it. It
// passes a part of the money on to a child, whose token ends with those that made it.
func (w *world) approves(s bank.Step) error {
	app := w.money.Apps[s.B%len(w.money.Apps)]
	person, err := w.api.rich(s.A)
	if err != nil {
		return err
	}
	code, err := w.consent(person, app)
	if err != nil || code == "" {
		return err
	}
	hasEnded, err := w.change(person, s)
	if err != nil {
		return err
	}
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier},
		"redirect_uri": {"https://app.example.com/back"}}
	a, err := w.send(context.Background(), nil, "POST", "/oauth/token", form.Encode(),
		append(isForm, "Authorization", w.api.apps[app.ID].basic())...)
	if err != nil {
		return err
	}
	w.api.drawn[fmt.Sprint("a consent, has ended ", hasEnded, ": ", a.Status)]++
	if a.Status != http.StatusOK {
		return nil
	} else if hasEnded {
		return fmt.Errorf("access: a consent of %s is exchanged after it has ended", person)
	}
	var tokens struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal([]byte(a.Body), &tokens); err != nil {
		return err
	}
	return w.delegates(app, tokens.Access, tokens.Refresh)
}

// delegates lets an app make a child and revoke the tokens that made it.
func (w *world) delegates(app bank.App, access, refresh string) error {
	a, err := w.send(context.Background(), nil, "POST", "/v1/connection/children", `{"amount_mc":1000000}`,
		"Content-Type", "application/json", "Authorization", "Bearer "+access, "Idempotency-Key", id.NewUUID())
	if err != nil || a.Status >= 400 {
		return err
	}
	var child struct{ Token string }
	if err := json.Unmarshal([]byte(a.Body), &child); err != nil {
		return err
	}
	form := url.Values{"token": {refresh}}
	a, err = w.send(context.Background(), nil, "POST", "/oauth/revoke", form.Encode(),
		append(isForm, "Authorization", w.api.apps[app.ID].basic())...)
	if err != nil || a.Status != http.StatusOK {
		return err
	}
	a, err = w.send(context.Background(), nil, "GET", "/v1/connection", "", "Authorization", "Bearer "+child.Token)
	if err == nil && a.Status == http.StatusOK {
		err = errors.New("access: a child goes on when the tokens that made it are revoked")
	}
	w.api.drawn[fmt.Sprint("a child of revoked tokens: ", a.Status)]++
	return err
}

// consent lets a person consent to an app, and returns the code; "" = it was refused.
func (w *world) consent(person string, app bank.App) (code string, err error) {
	ctx, challenge := context.Background(), sha256.Sum256([]byte(verifier))
	path := "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {w.api.apps[app.ID].clientID},
		"redirect_uri": {"https://app.example.com/back"}, "state": {"s"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode()
	page, err := w.reader.Page(ctx, 0, person, "GET", path, nil)
	if err != nil || page.Status != http.StatusOK {
		return "", err
	}
	form := hiddenOf(page.Body)
	for name, value := range map[string]string{"decision": "approve", "spend_cap": "2", "amount": "other",
		"daily_limit": ""} {
		form.Set(name, value)
	}
	if page, err = w.reader.Page(ctx, 0, person, "POST", path, form); err != nil {
		return "", err
	}
	to, err := url.Parse(page.To)
	if err != nil {
		return "", err
	}
	return to.Query().Get("code"), nil
}

// change lets something happen to a person's account, and reports whether it has ended what stood on the credentials.
func (w *world) change(person string, s bank.Step) (hasEnded bool, err error) {
	const epochs = `SELECT CAST(epoch + address_changes AS TEXT) FROM accounts WHERE id = $1`
	before, err := w.texts(epochs, w.money.People[person])
	if err != nil {
		return false, err
	}
	switch s.C % 3 {
	case 0:
		_, err = w.reader.Page(context.Background(), 0, person, "POST", "/settings/password",
			url.Values{"present": {bank.Password}, "password": {bank.Password}})
	case 1:
		_, err = w.reader.Operate(context.Background(), 0, "POST",
			"/v1/operator/accounts/"+w.money.People[person]+"/sign-out", `{"reason":"A history."}`)
	}
	after, failed := w.texts(epochs, w.money.People[person])
	if err = errors.Join(err, failed); err != nil {
		return false, err
	}
	return before[0] != after[0], nil
}
