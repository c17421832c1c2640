package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	vw "github.com/descope/virtualwebauthn"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A scenario is what people, apps and operators do for a purpose, request by request. It goes on as long as they
// succeed.
type scenario struct {
	name string
	rows []row
}

// A row is one request. send is "WHO METHOD PATH", body is JSON or a form, and keep says what of the answer is kept, as
// names with where they stand: "id=data.0.id request=@X-Request-Id link=~/reset/\S+". In each of them {name} stands for
// what was kept under that name.
//
// WHO is a person, whose browser it is ("ann", and "ann/phone" is a second one), "operator", "nobody", an app ("app",
// "sketch"), whose client credentials are sent, or the name of a kept token. METHOD may be
//   - CALL: a POST that is repeated with the same key, and then with the key and another body;
//   - form: a person opens PATH, fills in the form that leads to what stands after it (an action, and behind # the
//     decision), and sends it;
//   - do: one of acts is done, with what stands behind;
//   - 4xx METHOD: it is refused so.
type row struct{ send, body, keep string }

// A cast is the actor who plays scenarios.
type cast struct {
	*world
	known   map[string]string // by name
	clients map[string]credentials
	grant   *family       // of "token"
	leaked  []credentials // client secrets that were replaced
	strict  bool          // each row must succeed
	played  int

	device vw.Authenticator // with a key of zoe's
	key    vw.Credential

	answer bank.Answer // the last
	header http.Header
}

// joinCast gives the actor the apps that it needs: besides those of package bank one in the sandbox ("sketch") and one
// on users' devices ("public").
func joinCast(w *world) (*cast, error) {
	c := &cast{world: w, known: map[string]string{
		"database": w.config.Database, "prices": w.config.PricesFile, "dir": w.T.TempDir(),
	}, clients: map[string]credentials{}}
	for i, app := range w.money.Apps {
		c.clients[appNames[i]], c.known[appNames[i]] = w.api.apps[app.ID], app.ID
	}
	for person, accountID := range w.money.People {
		c.known[person+"id"] = accountID
	}
	err := errors.Join(c.register("sketch", apps.New{Name: "Sketch"}), c.register("public", apps.New{
		Name: "Public", ClientType: apps.Public, Tier: apps.FullLive, ProviderMode: apps.Live}),
		c.addZoe())
	c.known["publicid"] = c.clients["public"].clientID
	delete(c.clients, "public")
	return c, err
}

// scenarios are all.
var scenarios = slices.Concat(appScenarios, peopleScenarios, operatorScenarios, commandScenarios)

// errRefused ends a scenario.
var errRefused = errors.New("refused")

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// say replaces the names in a text.
func (c *cast) say(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		if value, ok := c.known[m[1:len(m)-1]]; ok {
			return value
		}
		return m
	})
}

// newKey returns an idempotency key.
func (c *cast) newKey() string { return id.NewUUID() }

// step plays some scenario, of some person with some app.
func (c *cast) step(s bank.Step) error {
	person, err := c.api.rich(s.B)
	if err != nil {
		return err
	}
	c.known["person"], c.known["appname"] = person, appNames[s.C%len(appNames)]
	return c.play(scenarios[s.A%len(scenarios)])
}

// tour plays all scenarios. Before them somebody gets rich, and everything that package bank does with pages is done.
func (c *cast) tour() (err error) {
	c.strict = true
	c.known["person"], c.known["appname"] = "ann", "Writer"
	for _, s := range slices.Concat([]scenario{{"money", []row{
		{"operator do settings", "free_credit.pool 0", ""},
		{"nobody do bank", "top-up 0 5 1\nevent 0 0 2\ntop-up 5 5 1\nevent 0 0 2\ntop-up 3 5 1\nevent 0 0 2", ""},
		{"nobody do bank", "automatic 0 0 1\nevent 0 0 2", ""},
		{"nobody do bank", "return 0 0 1\nevent 0 0 2\nonboard 0 0 0\nautomatic-off 0 0 0\nautomatic-off 0 1 0", ""},
	}}}, scenarios) {
		err = errors.Join(err, c.play(s))
	}
	for i := range secrets {
		err = errors.Join(err, c.tryStranger(i))
	}
	return err
}

// tryStranger lets a stranger use the i-th secret of a fresh grant, which ends if it must.
func (c *cast) tryStranger(i int) error {
	if err := c.connect(c.known["person"], c.known["appname"]); err != nil {
		return err
	}
	err := errors.Join(c.refresh(c.grant, true), c.steal(bank.Step{A: len(c.api.grants) - 1, B: i}))
	if err == nil && secrets[i].ends != (c.grant.ended != "") {
		err = fmt.Errorf("%s has ended a grant by %q", secrets[i].name, c.grant.ended)
	}
	return errors.Join(err, c.checkAccess())
}

// play plays a scenario.
func (c *cast) play(s scenario) error {
	c.played++
	c.known["n"] = strconv.Itoa(c.played)
	if err := c.connect(c.known["person"], c.known["appname"]); errors.Is(err, errRefused) && !c.strict {
		return nil
	} else if err != nil {
		return fmt.Errorf("scenario %s: %w", s.name, err)
	}
	for i, r := range s.rows {
		if c.strict {
			c.Pass(time.Second)
		}
		err := c.row(r)
		if os.Getenv("TRACE") != "" {
			c.T.Log(c.say(r.send), c.answer.Status, c.answer.To)
		}
		if errors.Is(err, errRefused) && !c.strict {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scenario %s, row %d, %s: %w", s.name, i+1, c.say(r.send), err)
		}
	}
	return nil
}

func (c *cast) row(r row) error {
	words := strings.Fields(c.say(r.send))
	who, method, path := words[0], words[1], words[2]
	want := 0
	if n, err := strconv.Atoi(method); err == nil {
		want, method, path, words = n, path, words[3], words[1:]
	}
	body := c.say(r.body)
	c.answer.Status, c.header = 0, nil
	var err error
	switch method {
	case "do":
		act, ok := acts[path]
		if !ok {
			return fmt.Errorf("there is no act %s", path)
		}
		err = act(c, who, strings.Join(words[3:], " ")+body)
	case "form":
		err = c.form(who, path, strings.Join(words[3:], ""), body)
	case "CALL":
		err = c.call(who, path, body)
	default:
		err = c.request(who, method, path, body)
	}
	if err == nil && isOurFault(c.answer.Status) {
		err = fmt.Errorf("answered by %d: %s", c.answer.Status, c.answer.Body)
	}
	if err != nil {
		return err
	}
	if refused := c.answer.Status >= 400; want == 0 && refused || want > 0 && want != c.answer.Status {
		return fmt.Errorf("%w by %d: %s", errRefused, c.answer.Status, plain(c.answer.Body))
	}
	return c.keep(r.keep)
}

// request sends a request, and remembers the answer.
func (c *cast) request(who, method, path, body string, headers ...string) (err error) {
	path = strings.TrimPrefix(path, c.URL(purserHost))
	switch {
	case body == "":
	case body[0] == '{':
		headers = append(headers, "Content-Type", "application/json")
	case strings.HasPrefix(body, "v=0"):
		headers = append(headers, "Content-Type", "application/sdp")
	default:
		headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
	}
	if !slices.Contains(headers, "Idempotency-Key") && method != "GET" {
		headers = append(headers, "Idempotency-Key", c.newKey())
	}
	switch client, ok := c.clients[who]; {
	case ok:
		headers = append(headers, "Authorization", client.basic())
	case who == "nobody":
	case who == "operator":
		headers = append(headers, "Authorization", "Bearer "+operatorToken)
	case who == "key":
		headers = append(headers, "X-Api-Key", c.known["token"])
	case c.known[who] != "":
		headers = append(headers, "Authorization", "Bearer "+c.known[who])
	case strings.HasPrefix(body, "{"): // a page's script
		c.answer, err = c.send(context.Background(), c.reader.jars[who], method, path, body, headers...)
		return err
	default:
		form, err := url.ParseQuery(body)
		if err != nil {
			return err
		}
		if c.answer, err = c.reader.Page(context.Background(), 0, who, method, path, form); err == nil {
			err = checkPage(method, path, c.answer)
		}
		return err
	}
	c.answer, c.header, err = c.exchange(context.Background(), nil, method, path, body, headers...)
	c.api.see(c.answer.Body)
	return err
}

// call sends a call, again, and again with another body: it is paid once.
func (c *cast) call(who, path, body string) error {
	key := []string{"Idempotency-Key", c.newKey()}
	if err := c.request(who, "POST", path, body, key...); err != nil || c.answer.Status >= 400 {
		return err
	}
	first, header := c.answer, c.header
	if err := c.request(who, "POST", path, body, key...); err != nil {
		return err
	}
	if c.answer.Status == http.StatusOK && c.header.Get("Idempotent-Replayed") != "true" {
		return errors.New("a repeated call is not replayed")
	}
	if isSame := c.answer.Body == first.Body; c.strict && !isSame {
		return fmt.Errorf("%s is replayed as %s", first.Body, c.answer.Body)
	}
	other := strings.Replace(body, "hello", "good day", 1)
	if err := c.request(who, "POST", path, other, key...); err != nil {
		return err
	}
	if c.answer.Status < 400 || c.strict && c.answer.Status != http.StatusConflict {
		return fmt.Errorf("a key with another body is answered by %d: %s", c.answer.Status, c.answer.Body)
	}
	c.answer, c.header = first, header
	return nil
}

// form opens a page, and sends the form whose action contains to; "" = the first.
func (c *cast) form(person, path, to, given string) error {
	if err := c.request(person, "GET", path, ""); err != nil {
		return err
	} else if c.answer.Status != http.StatusOK {
		return fmt.Errorf("%w: %s is answered by %d %s", errRefused, path, c.answer.Status, c.answer.To)
	}
	values, err := url.ParseQuery(given)
	if err != nil {
		return err
	}
	for _, f := range c.reader.parse(strings.Split(person, "/")[0], c.answer.Body) {
		decision := ""
		for _, in := range f.inputs {
			if in.name == "decision" && decision == "" {
				decision = in.value
			}
		}
		if f.method != "POST" || !strings.Contains(f.action+"#"+decision, to) ||
			strings.HasPrefix(f.action, "/sign-out") {
			continue
		}
		body := f.defaults()
		maps.Copy(body, values)
		return c.request(person, "POST", f.action, body.Encode())
	}
	return fmt.Errorf("%w: %s has no form to %q: %s", errRefused, path, to, plain(c.answer.Body))
}

// defaults fills in a form as it is, with what everybody knows.
func (f form) defaults() url.Values {
	values := url.Values{}
	for _, in := range f.inputs {
		switch in.kind {
		case "checkbox":
			if in.chosen {
				values.Add(in.name, in.value)
			}
		case "radio":
			if in.chosen || !values.Has(in.name) {
				values.Set(in.name, in.value)
			}
		case "submit", "button":
			if !values.Has(in.name) {
				values.Set(in.name, in.value)
			}
		case "select":
			values.Add(in.name, in.value)
		default:
			values.Add(in.name, in.value)
		}
		switch in.name {
		case "present":
			values.Set("present", bank.Password)
		case "reason":
			values.Set("reason", "It must be so.")
		}
	}
	return values
}

// keep keeps parts of the last answer.
func (c *cast) keep(what string) error {
	for _, one := range strings.Fields(c.say(what)) {
		name, where, _ := strings.Cut(one, "=")
		value := ""
		switch {
		case strings.HasPrefix(where, "@"):
			value = c.header.Get(where[1:])
		case strings.HasPrefix(where, "~"):
			found := regexp.MustCompile(where[1:]).FindStringSubmatch(c.answer.To + "\n" + c.answer.Body)
			if found != nil {
				value = found[len(found)-1]
			}
		default:
			value = memberOf([]byte(c.answer.Body), where)
		}
		if value == "" {
			return fmt.Errorf("%w: the answer has no %s: %d %s %s", errRefused, one, c.answer.Status, c.answer.To,
				plain(c.answer.Body))
		}
		c.known[name] = value
	}
	return nil
}

var tags = regexp.MustCompile(`(?s)<head>.*</head>|<footer.*</footer>|<header.*</header>|<[^>]*>`)

// plain returns what of an answer stands in an error.
func plain(text string) string {
	text = strings.Join(strings.Fields(tags.ReplaceAllString(text, " ")), " ")
	return text[:min(len(text), 700)]
}

// memberOf returns a member of a JSON text, such as data.0.id, as text.
func memberOf(text []byte, path string) string {
	for part := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		var list []json.RawMessage
		if n, err := strconv.Atoi(part); err == nil && json.Unmarshal(text, &list) == nil && n < len(list) {
			text = list[n]
		} else if json.Unmarshal(text, &members) == nil {
			text = members[part]
		} else {
			return ""
		}
	}
	var value string
	if json.Unmarshal(text, &value) == nil {
		return value
	}
	return string(bytes.TrimSpace(text))
}
