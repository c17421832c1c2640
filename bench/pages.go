package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/people/accounts"
)

// pages are the pages of a user, a developer and the operator that show a long ledger.
// Pages that need more than a ledger (a webhook, a review) are left out.
var pages = map[string][]string{
	"user": {
		"/", "/dashboard", "/activity", "/activity?before={middle}", "/activity?type=topup",
		"/activity?model=none-of-them", "/activity?from={day}&to={day}",
		"/activity?connection={connection}&type=refund", "/activity.csv?from={day}&to={day}",
		"/activity/{entry}", "/requests/{request}", "/connections", "/connections/{connection}",
		"/connections/{connection}/live", "/connections/{connection}/increase",
		"/connections/{connection}/revoke", "/settings", "/settings/security", "/settings/notices", "/settings/data",
		"/settings/password", "/settings/email", "/settings/two-step", "/search?q=bench", "/search?q={request}",
	},
	"developer": {
		"/developer", "/developer/apps/new", "/developer/test-accounts", "/developer/keys", "/developer/apps/{app}",
		"/developer/apps/{app}/live", "/developer/apps/{app}/settings",
		"/developer/apps/{app}/features", "/developer/apps/{app}/features/{feature}", "/developer/apps/{app}/webhooks",
		"/developer/apps/{app}/analytics", "/developer/apps/{app}/analytics?days=7",
		"/developer/apps/{app}/analytics?days=90", "/developer/apps/{app}/analytics?days=365&compare=1",
		"/developer/apps/{app}/analytics?tab=usage&by=model", "/developer/apps/{app}/analytics?tab=users",
		"/developer/apps/{app}/analytics?tab=errors", "/developer/apps/{app}/analytics?tab=latency",
		"/developer/apps/{app}/analytics.csv?days=90",
		"/developer/apps/{app}/requests", "/developer/apps/{app}/requests?before={request}",
		"/developer/apps/{app}/requests?status=refused", "/developer/apps/{app}/requests?status=failed",
		"/developer/apps/{app}/requests?status=estimated", "/developer/apps/{app}/requests?model=none-of-them",
		"/developer/apps/{app}/requests?feature={feature}&from={day}&to={day}",
		"/developer/apps/{app}/requests?connection={connection}&charge=1&range=30d",
		"/developer/apps/{app}/requests?range=30d", "/developer/apps/{app}/requests.csv?from={day}&to={day}",
		"/developer/apps/{app}/requests/{request}", "/developer/apps/{app}/go-live", "/developer/apps/{app}/playground",
		"/developer/apps/{app}/playground/voice", "/developer/apps/{app}/members",
		"/developer/apps/{app}/webhooks/events",
	},
	"operator": {
		"/operator", "/operator/verify", "/operator/reviews", "/operator/apps", "/operator/apps?q=bench",
		"/operator/apps/{app}", "/operator/accounts", "/operator/accounts?q=user1", "/operator/accounts/{account}",
		"/operator/accounts/{account}?before={middle}", "/operator/accounts/{account}/timeline",
		"/operator/connections/{connection}",
		"/operator/ledger/{entry}", "/operator/ledger/{entry}/reverse", "/operator/risk", "/operator/providers",
		"/operator/log", "/operator/incidents", "/operator/prices", "/operator/prices/compare",
	},
}

// pageTries is the number of requests for each page. The first one finds no cache.
const pageTries = 10

// A pageSample is the result for one page.
type pageSample struct {
	Engine   string  `json:"engine"`
	Rows     float64 `json:"million_rows"`
	Path     string  `json:"path"` // with {…} for ids
	Bytes    int     `json:"bytes"`
	FirstUS  int64   `json:"first_us"`
	MedianUS int64   `json:"median_us"`
	MostUS   int64   `json:"most_us"` // of all requests, with the first
	Fault    string  `json:"fault,omitempty"`
}

func (s pageSample) fault() string {
	if s.Fault == "" {
		return ""
	}
	return s.Engine + ", " + s.Path + ": " + s.Fault
}

// measurePages measures every page of each engine's largest ledger.
func (b *bench) measurePages(ctx context.Context) (err error) {
	n := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(n)) }()
	up, err := b.startBenchRole("upstream")
	if err != nil {
		return err
	}
	for _, e := range b.engines {
		d, err := b.prepareDatabase(ctx, e, b.rows, b.connections)
		if err != nil {
			return err
		}
		v, err := d.newVisitor(ctx)
		if err != nil {
			return fmt.Errorf("prepare the pages: %w", err)
		}
		t, err := b.startPurser(ctx, engineTitle(e, b.rows), d, up.url)
		if err != nil {
			return err
		}
		for _, who := range []string{"user", "developer", "operator"} {
			for _, path := range pages[who] {
				s := v.measurePage(ctx, t.url, who, path)
				s.Engine, s.Rows = e, b.rows
				b.report.Pages = append(b.report.Pages, s)
			}
		}
		b.report.printPages(os.Stdout, e)
	}
	return nil
}

// A pageVisitor requests pages as a signed-in account.
type pageVisitor struct {
	cookies map[string]*http.Cookie // by user, developer, operator
	names   *strings.Replacer       // of the placeholders in paths
}

// newVisitor signs the accounts in, and finds rows for the placeholders: in the middle of
// the ledger, where no cache has them.
func (d *database) newVisitor(ctx context.Context) (v pageVisitor, err error) {
	store, err := db.Open(ctx, d.url)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	g := d.grants[0]
	var developer string
	if err := store.QueryRowContext(ctx, `SELECT owner_id FROM apps WHERE id = $1`,
		g.App).Scan(&developer); err != nil {
		return v, err
	}
	people := accounts.NewStore(store, store.Now)
	var operator accounts.Account
	err = store.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		operator, err = people.Create(ctx, tx, accounts.NewAccount{Email: "operator@example.com", Operator: true})
		return err
	})
	if err != nil {
		return v, err
	}
	v.cookies = map[string]*http.Cookie{}
	for name, account := range map[string]string{"user": g.Account, "developer": developer, "operator": operator.ID} {
		if v.cookies[name], err = signIn(ctx, people, account); err != nil {
			return v, err
		}
	}
	var entry string
	var middle, madeUS int64
	err = store.QueryRowContext(ctx, `SELECT id, seq, created_us FROM ledger WHERE account_id = $1
		AND seq = (SELECT seq FROM balances WHERE account_id = $1) / 2 + 1 AND type = 'spend'`,
		g.Account).Scan(&entry, &middle, &madeUS)
	v.names = strings.NewReplacer("{account}", g.Account, "{app}", g.App, "{connection}", g.Connection, "{feature}",
		feature, "{entry}", entry, "{request}", id.ReplacePrefix(entry, id.Ledger, id.Request),
		"{middle}", strconv.FormatInt(middle, 10), "{day}", time.UnixMicro(madeUS).UTC().Format(time.DateOnly))
	return v, err
}

// signIn signs an account in with a second step, and returns the session cookie.
func signIn(ctx context.Context, people *accounts.Store, account string) (*http.Cookie, error) {
	a, err := people.Get(ctx, account)
	if err != nil {
		return nil, err
	}
	sessions, answer := accounts.NewSessions(people, false), httptest.NewRecorder()
	err = sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		return sessions.Start(w, r, a, accounts.ProofMFA)
	})(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if err != nil {
		return nil, err
	}
	return answer.Result().Cookies()[0], nil
}

// measurePage requests one page pageTries times.
func (v pageVisitor) measurePage(ctx context.Context, base, who, path string) pageSample {
	s := pageSample{Path: path}
	var took []int64
	for range pageTries {
		start := time.Now()
		size, err := v.getPage(ctx, base+v.names.Replace(path), who)
		if err != nil {
			s.Fault = err.Error()
			return s
		}
		s.Bytes = size
		took = append(took, time.Since(start).Microseconds())
	}
	s.FirstUS, s.MostUS = took[0], slices.Max(took)
	slices.Sort(took)
	s.MedianUS = took[len(took)/2]
	return s
}

func (v pageVisitor) getPage(ctx context.Context, address, who string) (size int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	req.AddCookie(v.cookies[who])
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect: that would be the sign-in page
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d, location %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	return len(body), err
}
