package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// operations are all routes of the contract.
var operations = apitest.Operations()

// An api is the actor that sends requests to every route of the contract, as apps, as operators and as strangers: with
// the examples of openapi.yaml, and the ids that answers have shown.
type api struct {
	*Box
	player *bank.Player
	pages  *player
	apps   map[string]credentials
	tokens []token   // the newest
	grants []*family // likewise

	connected time.Time           // when the newest token came
	ids       map[string][]string // by prefix, in the order in which they were seen
	drawn     map[string]int      // "METHOD /path", and how often it has succeeded
}

// keptIDs bounds the ids of one kind: the newest are kept.
const keptIDs = 12

var idPattern = regexp.MustCompile(`\b([a-z]{2,6}_)[0-9a-hjkmnp-tv-z]{26}\b`)

// see keeps the ids in a text.
func (a *api) see(text string) {
	for _, m := range idPattern.FindAllStringSubmatch(text, 50) {
		if list := a.ids[m[1]]; !slices.Contains(list, m[0]) {
			a.ids[m[1]] = append(list[max(0, len(list)+1-keptIDs):], m[0])
		}
	}
}

// connect lets a person consent to an app, which trades the code for tokens. Who is refused goes away.
func (a *api) connect(s bank.Step) error {
	person, err := a.rich(s.A)
	if err != nil {
		return err
	}
	_, err = a.authorize(person, a.apps[a.player.Apps[s.B%len(a.player.Apps)].ID], fmt.Sprint(1+s.C%20))
	return err
}

// rich returns, mostly, a person who can spend most.
func (a *api) rich(n int) (person string, err error) {
	person, most := names[n%len(names)], money.MC(0)
	for _, name := range names {
		b, err := store.GetBalance(context.Background(), a.Server.DB, a.player.People[name])
		if err != nil {
			return "", err
		}
		if b.AvailableMC > most && n%4 > 0 {
			person, most = name, b.AvailableMC
		}
	}
	return person, nil
}

// requests sends requests to some routes. What is refused is no failure, an error of the product is one.
func (a *api) requests(s bank.Step) error {
	for i := range 5 {
		o := operations[(s.A*1000+s.B+37*i)%len(operations)]
		if slices.Contains(o.Security, "accessToken") && a.since(a.connected) > 10*time.Minute {
			if err := a.connect(bank.Step{A: s.C, B: s.B, C: s.A}); err != nil {
				return err
			}
		}
		if err := a.send(o, s.C+11*i); err != nil {
			return err
		}
	}
	return nil
}

// pick returns one of the ids of an example's kind, or the example.
func (a *api) pick(example string, n int) string {
	if strings.HasPrefix(example, id.App) && n%5 > 0 { // the app whose credentials are sent
		return a.app(n).ID
	}
	if m := idPattern.FindStringSubmatch(example); m != nil && len(a.ids[m[1]]) > 0 {
		list := a.ids[m[1]]
		return list[len(list)-1-n%len(list)]
	}
	return example
}

// app is the app that a request is about.
func (a *api) app(n int) bank.App { return a.player.Apps[n%len(a.player.Apps)] }

func (a *api) send(o apitest.Operation, n int) error {
	path := o.Path
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(a.pick(o.Params[name], n)))
	}
	query := url.Values{}
	for i, name := range slices.Sorted(maps.Keys(o.Query)) {
		if o.Query[name] != "" && (n>>i)&3 == 1 {
			query.Set(name, a.pick(o.Query[name], n))
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	headers := []string{"Idempotency-Key", id.NewUUID()}
	body := ""
	if len(o.Bodies) > 0 {
		body = idPattern.ReplaceAllStringFunc(string(o.Bodies[n%len(o.Bodies)]), func(example string) string {
			return a.pick(example, n)
		})
		if o.MediaType == "application/x-www-form-urlencoded" {
			body = formOf(body)
		}
		headers, body = append(headers, "Content-Type", o.MediaType), markPrompts(path, body)
	}
	headers = append(headers, a.authenticate(o, n)...)
	answer, err := a.Box.send(context.Background(), nil, o.Method, path, body, headers...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Method, path, err)
	}
	a.see(answer.Body)
	route := o.Method + " " + o.Path
	if answer.Status < 400 {
		a.drawn[route]++
	} else {
		a.drawn[route] += 0
	}
	if isOurFault(answer.Status) {
		return fmt.Errorf("%s %s with %s is answered by %d: %s", o.Method, path, body, answer.Status, answer.Body)
	}
	return nil
}

// authenticate returns the headers of one who may send a request, or, now and then, of somebody else.
func (a *api) authenticate(o apitest.Operation, n int) []string {
	way := ""
	if len(o.Security) > 0 {
		way = o.Security[n%len(o.Security)]
	}
	if n%13 == 12 {
		way = []string{"clientCredentials", "accessToken", "operatorToken", ""}[n/13%4]
	}
	switch way {
	case "clientCredentials":
		return []string{"Authorization", a.apps[a.app(n).ID].basic()}
	case "operatorToken":
		return []string{"Authorization", "Bearer " + operatorToken}
	case "accessToken", "voiceTicket":
		return []string{"Authorization", "Bearer " + a.token(n)}
	case "accessTokenKey":
		return []string{"X-Api-Key", a.token(n)}
	}
	return nil
}

func (a *api) token(n int) string {
	if len(a.tokens) == 0 {
		return "none"
	}
	return a.tokens[len(a.tokens)-1-n/2%len(a.tokens)].text
}

// formOf returns the members of a JSON object as a form.
func formOf(text string) string {
	var members map[string]any
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return ""
	}
	form := url.Values{}
	for name, v := range members {
		form.Set(name, fmt.Sprint(v))
	}
	return cmp.Or(form.Encode(), "x=y")
}
