package world

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/commands"
	"github.com/purserhq/purser/internal/gateway/policy"
)

// coverage counts by route, command and setting what actors try, and what of it succeeds.
type coverage struct {
	mu          sync.Mutex
	mux         *http.ServeMux // the product's routes
	tried, done map[string]int
}

func newCoverage() *coverage { return &coverage{tried: map[string]int{}, done: map[string]int{}} }

// know takes the product's routes.
func (c *coverage) know(routes []string) {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route, func(http.ResponseWriter, *http.Request) {})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mux = mux
}

// note counts an answer to a request. Who is sent to sign in has not succeeded.
func (c *coverage) note(method, address string, status int, to string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	c.mu.Lock()
	_, route := c.mux.Handler(&http.Request{Method: method, URL: u, Host: u.Host})
	c.mu.Unlock()
	c.count(route, status < 400 && !strings.HasPrefix(to, "/sign-in?"))
}

// count counts something that is no request.
func (c *coverage) count(what string, succeeds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tried[what]++; succeeds {
		c.done[what]++
	}
}

// drawable returns what there is to do: each route of openapi.yaml, each form of a page, each command, and each setting
// that can change while a node runs.
func drawable(b *Box) (list []string) {
	for _, o := range operations {
		list = append(list, o.Method+" "+o.Path)
	}
	for _, route := range b.Server.Router.Routes() {
		if strings.HasPrefix(route, "POST ") && !slices.Contains(list, route) {
			list = append(list, route)
		}
	}
	for _, s := range policy.Settings {
		list = append(list, "setting "+s.Name)
	}
	for _, name := range commands.Names() {
		list = append(list, "purser "+name)
	}
	return append(list, "setting prices")
}

const (
	listens   = "it listens at a socket of the machine"
	overHTTPS = "it asks services over HTTPS only, which a box has not"
)

// undrawn is what no actor ever does, and unsuccessful what never succeeds, each with the reason.
var (
	undrawn = map[string]string{
		"POST /developer/apps/{id}/client-type": "chosen when an app is made; its tests are of the console",
		"purser dev":                            listens,
		"purser emulator":                       listens,
		"purser serve":                          listens + ", and a box runs what it runs",
		"purser listen":                         "it ends by a signal to the process",
		"purser login":                          overHTTPS,
		"purser token":                          overHTTPS,
		"purser logout":                         overHTTPS,
		"purser apps login":                     overHTTPS,
		"purser apps list":                      overHTTPS,
	}
	unsuccessful = map[string]string{
		"POST /developer/apps/{id}/domain":    "a domain is proved by HTTPS or DNS, which a box has not",
		"POST /operator/accounts/{id}/return": "package bank returns by the API what a bank rejects after the closing",
		"purser doctor":                       "no settings of a box are a service's: it has neither HTTPS nor mail",
	}
)

// TestTour plays every scenario once, one after the other. Each request of it succeeds, and nothing that can be done is
// left out.
func TestTour(t *testing.T) {
	t.Parallel()
	Run(t, db.SQLite, func(b *Box) {
		w := enter(b)
		w.api.drawn, w.reader.drawn = map[string]int{}, map[string]int{}
		defer w.money.Stop()
		w.Pass(quiet)
		w.begun = goroutines()
		if err := w.cast.tour(); err != nil {
			t.Errorf("%v\n%s", err, b.log.errors())
		}
		if err := w.end(); err != nil {
			t.Errorf("at the end: %v\n%s", err, w.money.Book.Describe())
		}
		all := drawable(b)
		for _, what := range all {
			compare(t, what, "drawn", b.coverage.tried[what] > 0, undrawn)
			if b.coverage.tried[what] > 0 {
				compare(t, what, "successful", b.coverage.done[what] > 0, unsuccessful)
			}
		}
		for _, list := range []map[string]string{undrawn, unsuccessful} {
			for what := range list {
				if !slices.Contains(all, what) {
					t.Errorf("the list names %s, which does not exist", what)
				}
			}
		}
	})
}

func compare(t *testing.T, what, how string, is bool, excused map[string]string) {
	t.Helper()
	if reason, ok := excused[what]; ok && is {
		t.Errorf("%s is %s: take it off the list", what, how)
	} else if !ok && !is || ok && reason == "" {
		t.Errorf("%s is never %s", what, how)
	}
}
