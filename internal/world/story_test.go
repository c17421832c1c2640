package world

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A deed is something that somebody does in a history, in people's words.
type deed struct {
	step                     int // from 1; 0 = at the end
	who, does, with, becomes string
}

// A story is what happens in a box, deed by deed.
type story struct {
	mu    sync.Mutex
	step  int
	deeds []deed
	names map[string]string // of people and apps, by their ids
}

func (s *story) tell(who, does, with, becomes string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deeds = append(s.deeds, deed{s.step, s.name(who), s.name(does), s.name(with), s.name(becomes)})
}

// name writes names for the ids of a text.
func (s *story) name(text string) string {
	return idPattern.ReplaceAllStringFunc(text, func(id string) string {
		if name := s.names[id]; name != "" {
			return name
		}
		prefix, _, _ := strings.Cut(id, "_")
		return prefix + "_…" + id[len(id)-4:]
	})
}

func (s *story) begin(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
}

// pages are what people do on a page by a form, and operators by the API. {} is an id, which is named.
var pages = []struct {
	pattern *regexp.Regexp
	does    string
}{
	{regexp.MustCompile(`^POST /top-up$`), "tops up"},
	{regexp.MustCompile(`^POST /top-up/refund$`), "takes money back to the card"},
	{regexp.MustCompile(`^POST /top-up/auto/card$`), "saves a card and pays"},
	{regexp.MustCompile(`^POST /top-up/auto$`), "turns automatic top-up on"},
	{regexp.MustCompile(`^POST /top-up/auto/(off|card/remove)$`), "turns automatic top-up off ($1)"},
	{regexp.MustCompile(`^POST /settings/data/close$`), "closes the account"},
	{regexp.MustCompile(`^POST /settings/data/export$`), "downloads all data"},
	{regexp.MustCompile(`^POST /sign-in$`), "signs in"},
	{regexp.MustCompile(`^POST /connections/(\w+)/(\w+)$`), "$2s $1"},
	{regexp.MustCompile(`^POST /oauth/authorize`), "answers the consent screen"},
	{regexp.MustCompile(`^POST /oauth/token`), "trades a code for tokens"},
	{regexp.MustCompile(`^POST /developer/payouts$`), "says whom to pay"},
	{regexp.MustCompile(`^POST /stripe/events$`), "tells of an event"},
	{regexp.MustCompile(`^POST /v1/operator/accounts/(\w+)/([\w-]+)$`), "does “$2” to $1"},
	{regexp.MustCompile(`^POST /v1/operator/apps/(\w+)/([\w-]+)$`), "does “$2” to $1"},
	{regexp.MustCompile(`^POST /v1/operator/ledger/(\w+)/reverse$`), "takes call $1 back"},
	{regexp.MustCompile(`^POST /v1/requests/(\w+)/refund$`), "refunds call $1"},
	{regexp.MustCompile(`^POST /v1/chat/completions$`), "calls a model"},
	{regexp.MustCompile(`^GET ([^?]*)`), "reads $1"},
	{regexp.MustCompile(`^(\w+) ([^?]*)`), "sends $1 $2"},
}

// untold are the members of a form that tell nothing.
var untold = []string{"token", "present", "shown", "seen", "password", "confirm", "code", "code_verifier"}

// tellRequest tells of a request to the product.
func (s *story) tellRequest(who, method, path, body string, status int, to string) {
	line, does := method+" "+path, ""
	for _, p := range pages {
		if m := p.pattern.FindStringSubmatchIndex(line); m != nil {
			does = string(p.pattern.ExpandString(nil, p.does, line, m))
			break
		}
	}
	becomes := fmt.Sprint(status)
	if to != "" {
		to, _, _ = strings.Cut(to, "?")
		becomes += " to " + to
	}
	s.tell(who, does, withOf(body), becomes)
}

// withOf tells what a body says: an event's type and amount, or the members of a form or of JSON.
func withOf(body string) string {
	var event struct {
		Type string
		Data struct {
			Object struct {
				ID     string
				Amount int64
				Status string
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &event); err == nil && event.Type != "" && event.Data.Object.ID != "" {
		o := event.Data.Object
		return fmt.Sprintf("%s of %s, %s", event.Type, dollarsOf(o.Amount), o.Status)
	} else if err == nil {
		return fmt.Sprintf("%.120s", body)
	}
	form, err := url.ParseQuery(body)
	if err != nil {
		return fmt.Sprintf("%.60s", body)
	}
	var list []string
	for name := range form {
		if v := form.Get(name); v != "" && !slices.Contains(untold, name) {
			list = append(list, fmt.Sprintf("%s %.40s", name, v))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func dollarsOf(cents int64) string { return (money.MC(cents) * money.Cent).Display() }

// tellCommand tells of a call's command.
func (s *story) tellCommand(c rules.Command, err error) {
	becomes := "done"
	if err != nil {
		becomes = err.Error()
	}
	switch c := c.(type) {
	case rules.Connect:
		s.tell(c.AccountID, "connects "+c.AppID, "a cap of "+c.RequestedMC.Display(), becomes)
	case rules.ChangeCap:
		s.tell("a person", "changes the cap of "+c.ConnectionID, "to "+c.TargetMC.Display(), becomes)
	case rules.Hold:
		s.tell(c.AppID, "begins a call of "+c.AccountID, "a hold of "+c.HoldMC.Display(), becomes)
	case rules.Settle:
		s.tell(c.AppID, "ends a call of "+c.AccountID, "a charge of "+c.Charge.UserChargeMC.Display(), becomes)
	case rules.Release:
		s.tell(c.AppID, "ends a call of "+c.AccountID, "without an answer", becomes)
	case rules.Revoke:
		s.tell("a person", "revokes "+c.ConnectionID, "", becomes)
	default:
		s.tell("a person", strings.TrimPrefix(fmt.Sprintf("%T", c), "rules."), "", becomes)
	}
}

// hear tells what the product asks of Stripe through the network, and what it hears.
func (s *story) hear(network http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method == http.MethodGet {
			r.Body = io.NopCloser(bytes.NewReader(body))
			network.ServeHTTP(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, _ := url.ParseQuery(string(body)) // what is none has no amount
		with := ""
		for _, name := range []string{"amount", "line_items[0][price_data][unit_amount]"} {
			if v := form.Get(name); v != "" {
				with = v + " cents"
			}
		}
		heard := httptest.NewRecorder()
		does := "asks Stripe: " + r.Method + " " + r.URL.Path
		ended := false
		defer func() {
			if !ended {
				s.tell("the product", does, with, "its connection breaks")
			}
		}()
		network.ServeHTTP(heard, r)
		ended = true
		becomes := fmt.Sprint(heard.Code)
		if strings.Contains(heard.Body.String(), "a fault of the test") {
			becomes += ": the network has failed"
		}
		s.tell("the product", does, with, becomes)
		for name, values := range heard.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(heard.Code)
		_, _ = w.Write(heard.Body.Bytes()) // the client may have left
	})
}

// whoSends is who sends a request: whose browser, whose credentials.
func (w *world) whoSends(jar http.CookieJar, headers []string) string {
	for person, own := range w.reader.jars {
		if jar != nil && own == jar {
			return person
		}
	}
	authorization := ""
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Authorization" {
			authorization = headers[i+1]
		} else if headers[i] == "Stripe-Signature" {
			return "Stripe"
		}
	}
	for id, c := range w.api.apps {
		if authorization == c.basic() {
			return id
		}
	}
	switch {
	case authorization == "Bearer "+operatorToken:
		return "an operator"
	case authorization != "":
		return "an app's call"
	}
	return "a stranger"
}

// appNames are the names of the apps of a box.
var appNames = []string{"Writer", "Reader", "Painter"}

// sentences say what a step is about.
var sentences = map[string]string{
	"read": "a person reads pages and sends a form", "request": "somebody sends requests to the API",
	"connect": "a person connects an app", "restart": "the process stops and starts again",
	"ask": "an app asks providers, who fail", "hooks": "an app subscribes to events, or a receiver fails",
	"scenario": "somebody does something for a purpose", "renew": "an app renews its tokens",
	"stranger":    "a stranger uses a secret",
	"together":    "an app asks both nodes at once",
	"approves":    "a person consents to an app, and something may end the consent",
	"forgets":     "a person forgets a password, and gets a link",
	"vanish":      "a customer, card or payee is deleted at Stripe",
	"clock-steps": "the wall clock steps", faultStep: "a statement of the next step will fail",
	leaveStep: "a caller of the next step will leave", string(kill): "the process will be killed",
	string(stops):       "a process will be stopped, and go on when its lease has ended",
	string(stopsAsking): "a process will be stopped when it asks somebody outside",
	string(hangs):       "a statement will hang", string(diskFull): "the disk will be full",
	"top-up": "a person tops up", "checkout": "a checkout at Stripe ends", "save-card": "a person saves a card",
	"automatic": "a person turns automatic top-up on", "automatic-off": "a person turns it off",
	"card": "a saved card begins to behave otherwise", "return": "a person takes money back",
	"refunds-will-be": "Stripe will answer refunds otherwise", "refund-ends": "a refund ends at a bank",
	"dashboard-refund": "support refunds at Stripe", "dispute": "a payment is disputed",
	"dispute-ends": "a bank decides a dispute", "cap": "a person sets a spend cap", "call": "an app calls",
	"empty-calls": "an app's calls bring nothing", "revoke": "a person revokes an app",
	"pause": "a person pauses an app", "resume": "a person resumes an app",
	"refund-call": "an app refunds a call", "reverse-call": "an operator takes a call back",
	"faulty-jobs":     "jobs run, and the network to Stripe fails",
	"second-thoughts": "an answer of Stripe's is lost, and terms change",
	"overtaken":       "an answer of Stripe's is overtaken", "top-up-jobs": "the job of top-ups runs",
	"payout-jobs": "the job of payouts runs", "time": "time passes", "onboard": "a developer says whom to pay",
	"transfers": "Stripe will answer transfers otherwise", "suspend": "an operator suspends a person",
	"reinstate": "an operator reinstates a person", "close": "an operator closes an account",
	"settle": "an operator has paid a person otherwise", "goodwill": "an operator gives a credit",
	"leave": "a person leaves", "suspend-app": "an operator suspends or reinstates an app",
	"event": "Stripe's events come", "event-again": "an event comes again", "event-never": "an event is lost",
	"fault": "the network to Stripe will fail", "wait": "what has waited for Stripe goes on",
}

// boring are deeds that a table leaves out: what is only read, and cannot be what fails.
func (d deed) isBoring() bool {
	return strings.HasPrefix(d.does, "reads ") && strings.HasPrefix(d.becomes, "2") || d.does == "signs in" ||
		d.does == "calls a model" || d.step == 0
}

// table writes a history as a table: what each step is about, and who did what with what.
func table(history []bank.Step, deeds []deed, failed *failure) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "step\twho\tdoes\twith\tand then") // to memory
	for i, s := range history {
		_, _ = fmt.Fprintf(out, "%d\t\t(%s)\t\t\n", i+1, sentences[s.Do])
		for _, d := range deeds {
			if d.step == i+1 && !d.isBoring() {
				_, _ = fmt.Fprintf(out, "\t%s\t%.60s\t%.60s\t%.60s\n", d.who, d.does, d.with, d.becomes)
			}
		}
		if failed.step == i+1 {
			break
		}
	}
	_ = out.Flush()
	first, _, _ := strings.Cut(failed.what.Error(), "\n")
	fmt.Fprintf(&b, "and then it fails: %.300s\n", first)
	return b.String()
}

// code writes a history as a test to paste into a file of this package.
func code(e db.Engine, seed uint64, history []bank.Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "func TestSeed_%d(t *testing.T) {\n\tt.Parallel()\n\treplay(t, %q, []bank.Step{\n", seed, e)
	for _, s := range history {
		fmt.Fprintf(&b, "\t\t{Do: %q, A: %d, B: %d, C: %d}, // %s\n", s.Do, s.A, s.B, s.C, sentences[s.Do])
	}
	b.WriteString("\t})\n}\n")
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		return b.String()
	}
	return string(text)
}

var _ = replay // by the tests that a failure prints

// replay plays a history that has failed once.
func replay(t *testing.T, e db.Engine, history []bank.Step) {
	t.Helper()
	if err := playWhole(t, e, history, map[string]int{}); err != nil {
		t.Errorf("%v\n%s", err, tableOf(history, err))
	}
}

func tableOf(history []bank.Step, err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return table(history, f.deeds, f)
	}
	return ""
}

// A failure is how a history has failed.
type failure struct {
	step  int // from 1; 0 = at the end
	what  error
	about string // the product's log, or the books
	deeds []deed
}

func (f *failure) Error() string {
	if f.step == 0 {
		return fmt.Sprintf("at the end: %v\n%s", f.what, f.about)
	}
	return fmt.Sprintf("step %d: %v\n%s", f.step, f.what, f.about)
}

var numbersOrIDs = regexp.MustCompile(`[a-z]{2,6}_[0-9a-z]{20,}|[0-9]+`)

// isLike reports whether two histories fail by the same property.
func (f *failure) isLike(other error) bool {
	o, ok := errors.AsType[*failure](other)
	if !ok {
		return false
	}
	short := func(err error) string {
		text, _, _ := strings.Cut(err.Error(), "\n")
		text = numbersOrIDs.ReplaceAllString(text, "#")
		return text[:min(len(text), 40)]
	}
	return short(f.what) == short(o.what)
}

// repeats is how often a shortened history is played to see that it fails again.
const repeats = 10

// longestCut bounds how long a history is cut, by the clock of the machine, and lastCut how long before the end of the
// test the cutting and then the repeating end.
const (
	longestCut = 15 * time.Minute
	lastCut    = 2 * time.Minute
)

// shorten cuts a history that fails until each step is needed, and tells it.
func shorten(t *testing.T, e db.Engine, seed uint64, history []bank.Step, err error) string {
	first, ok := errors.AsType[*failure](err)
	if !ok {
		return "it cannot be cut: " + err.Error()
	}
	if first.step > 0 {
		history = history[:first.step]
	}
	last, until := err, time.Now().Add(longestCut)
	deadline, hasDeadline := t.Deadline()
	if end := deadline.Add(-2 * lastCut); hasDeadline && end.Before(until) {
		until = end
	}
	play := func(cut []bank.Step) (fails bool) {
		if time.Now().After(until) {
			return false
		}
		t.Run("cut", func(t *testing.T) {
			if err := playWhole(t, e, cut, map[string]int{}); err != nil {
				if fails = first.isLike(err); fails {
					last = err
				}
			}
		})
		return fails
	}
	without := slices.DeleteFunc(slices.Clone(history), isFault)
	if len(without) < len(history) && play(without) {
		history = without
	}
	history = bank.Shrink(history, *cuts, play)
	until = time.Now().Add(longestCut)
	if end := deadline.Add(-lastCut); hasDeadline && end.Before(until) {
		until = end
	}
	n, played := 0, 0
	for ; played < repeats && time.Now().Before(until); played++ {
		if play(history) {
			n++
		}
	}
	return fmt.Sprintf("%v\n%s\nfails %d times of %d:\n\n%s", last, tableOf(history, last), n, played,
		code(e, seed, history))
}

// isFault says of a step that it is nobody's deed, but a fault.
func isFault(s bank.Step) bool {
	return slices.Contains(arming, s.Do) || slices.Contains([]string{"fault", "faulty-jobs", "restart", "clock-steps",
		"event-never", "second-thoughts", "overtaken"}, s.Do)
}

// TestEachStepHasASentence compares the sentences with the kinds of steps.
func TestEachStepHasASentence(t *testing.T) {
	t.Parallel()
	for _, s := range append(random(db.SQLite, 1, 5000), random(db.Postgres, 1, 5000)...) {
		if sentences[s.Do] == "" {
			t.Errorf("a step of %q has no sentence", s.Do)
		}
	}
}

// TestStory tells a history that has failed.
func TestStory(t *testing.T) {
	t.Parallel()
	s := story{names: map[string]string{"wac_06gg2d6d01076mptcyt5pxc2zc": "ann"}}
	s.begin(1)
	s.tellRequest("wac_06gg2d6d01076mptcyt5pxc2zc", "POST", "/top-up", "amount=10.00&token=x", 303,
		"http://stripe/pay?a=b")
	s.tellRequest("ann", "GET", "/dashboard", "", 200, "")
	history := []bank.Step{{Do: "top-up", A: 1, B: 20, C: 300}, {Do: "time"}}
	got := table(history, s.deeds, &failure{step: 1, what: errors.New("it does not hold")})
	want := "step  who  does       with          and then\n" +
		"1          (a person tops up)                \n" +
		"      ann  tops up    amount 10.00  303 to http://stripe/pay\n" +
		"and then it fails: it does not hold\n"
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if squeeze(got) != squeeze(want) {
		t.Errorf("the table is\n%s", got)
	}
	text := code(db.SQLite, 7, history)
	if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text ||
		!strings.Contains(text, `{Do: "top-up", A: 1, B: 20, C: 300}, // a person tops up`) {
		t.Errorf("the test is, %v\n%s", err, text)
	}
}
