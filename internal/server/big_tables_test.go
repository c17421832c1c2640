package server

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// sizeRows is how many rows the ledger gets, and the other big tables in proportion. Fewer than a million show
// a table that is read as a whole, too. SQLite, which is asked for its plans alone, shows it by any number.
var sizeRows = flag.Int("size-rows", usualRows(), "rows of the ledger in TestSizeOfStatements")

func usualRows() int {
	if testkit.IsLong() {
		return 100_000
	}
	return 10_000 // of SQLite
}

// maxPages is what a statement of PostgreSQL may read, in pages of 8 KiB. Where tables are so small that a whole one
// has fewer, maxRows stands for it.
const (
	maxPages = 2000
	maxRows  = 5000
)

// readMore are the statements that may read more than others, by a text that stands in each, and why.
var readMore = map[string]string{
	"AS newest":                       "5,000 daily totals and no more, for an average",
	"first_byte_ms, duration_ms":      "the times of 20,000 calls and no more",
	"COALESCE(f.held, 0) FROM child":  "a list of 1,000 budgets, each with its two counters",
	"COUNT(*) OVER ()":                "the connections of an app that spent most, in 30 days",
	"COUNT(DISTINCT r.connection_id)": "the active connections of an app, in 30 days",
	"FROM refusals":                   "counts of an app's refusals, which are kept for 30 days",
	"'reversed') AND type = 'spend'":  "the refunds of an account's calls, in 30 days",
	"FROM operator_log WHERE id":      "a file of 5,000 entries and no more",
	"SELECT MIN(r.id) FROM ledger r":  "a list of 1,000 calls and no more, each with its refund",
	"AND webhooks.id ORDER BY":        "once an endpoint: PostgreSQL still has the index entries of its deliveries",
}

// mayFail are the requests whose answers may be errors of the server, and why.
var mayFail = map[string]string{
	"/activity/history.json": "the rows have no chain",
}

// A sized is a server with big tables whose statements are explained as they run.
type sized struct {
	*Server
	t       *testing.T
	hot     accounts.Account
	app     apps.App
	secret  string
	token   string // of a connection of the hot account
	webhook string
	first   string // the id of its connection

	explain *sql.DB // the connections that explain
	mu      sync.Mutex
	where   string
	plans   map[string]*plan // by statement
}

// requestTimeout is how long a request may take, with the plans of its statements, beside other builds.
const requestTimeout = 10 * time.Minute

// A plan is what is known of a statement.
type plan struct {
	where   string // what ran it when it read most
	seen    int
	pages   int64  // PostgreSQL: what the run that read most has read
	rows    int64  // PostgreSQL: what that run has read or deleted, triggers included
	steps   string // the plan of that run
	query   string
	args    []any
	failure error // why there is no plan
}

// TestSizeOfStatements runs the product's jobs and opens its pages and its API on big tables. No statement reads more
// than a bounded part of them (decision 135). It and its sister are the longest tests of the package: they stand first,
// and by themselves, because subtests wait until all tests have begun.
func TestSizeOfStatements(t *testing.T) {
	testkit.Long(t, "fills tables for a minute; what a statement answers is tested where it stands")
	t.Parallel()
	judgeStatements(t, db.Postgres)
}

// TestSizeOfStatementsOnSQLite is TestSizeOfStatements on the other engine.
func TestSizeOfStatementsOnSQLite(t *testing.T) {
	t.Parallel()
	judgeStatements(t, db.SQLite)
}

func judgeStatements(t *testing.T, e db.Engine) {
	s := newSized(t, e)
	s.runJobs()
	s.sendRequests(s.listRequests())
	s.sendRequests([]*http.Request{s.deleteWebhook()})
	s.checkTables()
	s.judge()
}

// newSized opens a server on a database with big tables.
func newSized(t *testing.T, e db.Engine) *sized {
	url := dbtest.URL(t, e)
	s := &sized{t: t, plans: map[string]*plan{}}
	driver, source, limits := "pgx", url+"&lock_timeout=50ms&application_name=explain", "&statement_timeout=600s"
	if e == db.SQLite {
		driver, source, limits = "sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?mode=ro", ""
	}
	var err error
	if s.explain, err = sql.Open(driver, source); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.explain.Close() })
	s.Server, err = Open(t.Context(), config.Config{
		Database:       url + limits,
		Lease:          time.Minute,
		EnvelopeKeys:   [][]byte{make([]byte, 32)},
		OperatorTokens: []string{strings.Repeat("x", 32)},
		Policy:         policy.Default,
		Retention:      config.DefaultRetention,
	}, slog.New(slog.DiscardHandler), false)
	if err != nil {
		t.Fatal(err)
	}
	s.DB.RelaxLimits(int(requestTimeout / db.CallerTimeout))
	t.Cleanup(func() { _ = s.DB.Close() })
	s.Mount(ui.Home{})
	if err := s.create(); err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes the account and the app that most rows belong to, and fills the tables.
func (s *sized) create() error {
	ctx := db.ForJob(s.t.Context())
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		s.hot, err = s.Accounts.Create(ctx, tx, accounts.NewAccount{
			Email:     "hot@example.com",
			Password:  "a password of the test",
			Developer: true,
			Operator:  true,
		})
		if err != nil {
			return err
		}
		s.app, s.secret, err = s.Apps.Create(ctx, tx, apps.New{
			OwnerID:      s.hot.ID,
			Name:         "Hot",
			ClientType:   "confidential",
			RedirectURIs: []string{"https://app.example/callback"},
			Tier:         apps.Sandbox,
			ProviderMode: apps.Mock,
		})
		return err
	})
	if err != nil {
		return err
	}
	now := s.DB.Now()
	s.first = id.New(id.Connection, now.Add(-fillDays*24*time.Hour))
	s.webhook = "whk_hot"
	for _, query := range []string{
		`UPDATE apps SET tier = 'full-live' WHERE id = '` + s.app.ID + `'`,
		`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent, event_seq,
			created_us) VALUES ('` + s.first + `', '` + s.app.ID + `', '` + s.hot.ID + `', 1000000000, 0, 0, 'active',
			'', 10000000, 1)`,
		`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head) VALUES ('` + s.hot.ID +
			`', 0, 100000000000, 1000000000, 10000000, 'h') ON CONFLICT (account_id) DO UPDATE
			SET available_mc = excluded.available_mc, reserved_mc = excluded.reserved_mc, seq = excluded.seq`,
		`INSERT INTO webhooks (id, app_id, url, events, status, sealed, created_us, deleted_us)
			VALUES ('whk_hot', '` + s.app.ID + `', 'https://127.0.0.1:1/', '[]', 'active', '', 1, NULL),
				('whk_deleted', '` + s.app.ID + `', 'https://127.0.0.1:1/', '[]', 'active', '', 1, 1)`,
	} {
		if _, err := s.DB.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%w: %s", err, query)
		}
	}
	f := &filler{
		d:          s.DB,
		rows:       *sizeRows,
		account:    s.hot.ID,
		connection: s.first,
		app:        s.app.ID,
		webhook:    s.webhook,
		now:        now,
	}
	if err := f.run(ctx); err != nil {
		return err
	}
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		answer, err := s.Tokens.IssueTokens(ctx, tx, s.first, s.app.ID, "")
		s.token = answer.AccessToken
		return err
	})
}

// runJobs runs each job of a node once.
func (s *sized) runJobs() {
	s.where = "a job"
	s.DB.Trace(s.note)
	ran, done, failures := make(chan string), map[string]bool{}, map[string]string{}
	s.jobEnded = func(what string, err error) {
		if err != nil && !errors.Is(err, db.ErrStray) { // in January rows are of the year before
			what += ": " + err.Error()
		}
		ran <- what
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var jobs sync.WaitGroup
	list := s.listJobs()
	for _, job := range list {
		jobs.Go(func() { _ = job(ctx) })
	}
	// The dispatcher, the checkpoints of streams and the search for damaged pages have no runs, and the publisher goes
	// through the whole ledger.
	const endless = 4
	for late := time.After(30 * time.Minute); len(done) < len(list)-endless; {
		select {
		case what := <-ran:
			name, failure, _ := strings.Cut(what, ": ")
			if failure == "" {
				done[name] = true
				delete(failures, name)
			} else if !done[name] { // it goes on in its next run
				failures[name] = failure
			}
		case <-late:
			s.t.Fatalf("%d of %d jobs have run: %q, %q", len(done), len(list)-endless,
				slices.Sorted(maps.Keys(done)), failures)
		}
	}
	cancel()
	go func() {
		for range ran { // jobs that end late
		}
	}()
	jobs.Wait()
}

// note explains a statement before it runs, the first times.
func (s *sized) note(query string, args []any) {
	if !planned.MatchString(query) {
		return
	}
	shape := lists.ReplaceAllString(numbers.ReplaceAllString(query, "#"), "(#)")
	s.mu.Lock()
	p := s.plans[shape]
	if p == nil {
		p = &plan{}
		s.plans[shape] = p
	}
	p.seen++
	again := p.seen == 1 || p.seen&(p.seen-1) == 0 && s.DB.Engine == db.Postgres // 1, 2, 4, 8, …
	if again {
		p.query, p.args = query, slices.Clone(args)
	}
	where := s.where
	s.mu.Unlock()
	if again {
		s.explainOnce(p, where, query, args)
	}
}

// planned are the statements that have a plan.
var planned = regexp.MustCompile(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b`)

// numbers and lists make statements alike that differ in how many rows they are about.
var (
	numbers = regexp.MustCompile(`\$?\b\d+\b`)
	lists   = regexp.MustCompile(`(\((#|CAST\(# AS \w+\)|, )+\)(, )?)+`)
)

// explainOnce asks for the plan of a statement.
func (s *sized) explainOnce(p *plan, where, query string, args []any) {
	read := s.explainPostgres
	if s.DB.Engine == db.SQLite {
		read = s.explainSQLite
	}
	found, err := read(query, args)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		p.failure = err
		return
	}
	p.failure, p.query = nil, query
	if excess(found) >= excess(*p) {
		p.where, p.pages, p.rows, p.steps = where, found.pages, found.rows, found.steps
	}
}

// excess is how much a statement reads: 1 = as much as it may.
func excess(p plan) float64 { return max(float64(p.pages)/maxPages, float64(p.rows)/maxRows) }

// explainSQLite returns the plan of a statement that does not run.
func (s *sized) explainSQLite(query string, args []any) (found plan, err error) {
	rows, err := s.explain.QueryContext(s.t.Context(), `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		return found, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() && err == nil {
		var step, parent, unused int
		var detail string
		err = rows.Scan(&step, &parent, &unused, &detail)
		found.steps += detail + "\n"
	}
	return found, errors.Join(err, rows.Err())
}

// explainPostgres runs a statement in a transaction that is rolled back.
func (s *sized) explainPostgres(query string, args []any) (found plan, err error) {
	ctx := s.t.Context()
	tx, err := s.explain.BeginTx(ctx, nil)
	if err != nil {
		return found, err
	}
	defer func() { _ = tx.Rollback() }()
	const count = `SELECT COALESCE(SUM(seq_tup_read + idx_tup_fetch + n_tup_del), 0)::bigint
		FROM pg_stat_xact_user_tables`
	var before, after int64
	var text string
	if err := tx.QueryRowContext(ctx, count).Scan(&before); err != nil {
		return found, err
	}
	const explain = `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `
	if err := tx.QueryRowContext(ctx, explain+query, args...).Scan(&text); err != nil {
		return found, err
	}
	if err := tx.QueryRowContext(ctx, count).Scan(&after); err != nil { // what triggers have read, too
		return found, err
	}
	var plans []struct{ Plan planStep }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return found, err
	}
	top := plans[0].Plan
	found.pages = top.Hit + top.Read + top.TempRead + top.TempWritten
	all, small := top.countRows()
	found.rows = max(after-before, all) - small
	found.steps = top.write("")
	return found, nil
}

// A planStep is a step of a plan of PostgreSQL.
type planStep struct {
	Kind        string  `json:"Node Type"`
	Table       string  `json:"Relation Name"`
	Index       string  `json:"Index Name"`
	Hit         int64   `json:"Shared Hit Blocks"`
	Read        int64   `json:"Shared Read Blocks"`
	TempRead    int64   `json:"Temp Read Blocks"`
	TempWritten int64   `json:"Temp Written Blocks"`
	Rows        float64 `json:"Actual Rows"`
	Removed     float64 `json:"Rows Removed by Filter"`
	Loops       float64 `json:"Actual Loops"`
	Plans       []planStep
}

// write returns the step and those below as lines.
func (p *planStep) write(indent string) string {
	text := fmt.Sprintf("%s%s %s %s: %d pages, %.0f rows, %.0f removed, %.0f times\n", indent, p.Kind, p.Table, p.Index,
		p.Hit+p.Read, p.Rows, p.Removed, p.Loops)
	for i := range p.Plans {
		text += p.Plans[i].write(indent + "  ")
	}
	return text
}

// smallTable is how many pages a table of PostgreSQL has at most that may be read from end to end: fewer than a
// statement's rows would take one by one. PostgreSQL does so while a table is small, whatever indexes it has.
const smallTable = 300

// countRows returns how many rows the step and those below have read from tables and indexes, and how many of these
// are small tables.
func (p *planStep) countRows() (n, small int64) {
	if strings.HasSuffix(p.Kind, "Scan") && !strings.Contains("CTE Scan Function Scan Subquery Scan", p.Kind) {
		n = int64((p.Rows + p.Removed) * p.Loops)
		if p.Kind == "Seq Scan" && p.Hit+p.Read <= smallTable {
			small = n
		}
	}
	for i := range p.Plans {
		below, smallBelow := p.Plans[i].countRows()
		n, small = n+below, small+smallBelow
	}
	return n, small
}

// sendRequests sends requests, one after the other.
func (s *sized) sendRequests(list []*http.Request) {
	for _, r := range list {
		s.mu.Lock()
		s.where = r.Method + " " + r.URL.String()
		s.mu.Unlock()
		rec := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(s.t.Context(), requestTimeout)
		s.serveWhole(rec, r.WithContext(ctx))
		cancel()
		if rec.Code >= 500 && mayFail[r.URL.Path] == "" {
			s.t.Errorf("%s %s is %d: %.300s", r.Method, r.URL, rec.Code, rec.Body)
		}
	}
}

// serveWhole serves a request. A response that was cut off, because an error came when it had begun, fails the test.
func (s *sized) serveWhole(rec *httptest.ResponseRecorder, r *http.Request) {
	defer func() {
		if cut := recover(); cut != nil {
			s.t.Errorf("%s is cut off: %v", s.where, cut)
		}
	}()
	s.rootHandler().ServeHTTP(rec, r)
}

// listRequests returns a request for each page, and for each resource of the API.
func (s *sized) listRequests() (list []*http.Request) {
	in := s.sessions.With(func(rw http.ResponseWriter, r *http.Request) error {
		return s.sessions.Start(rw, r, s.hot, accounts.ProofMFA)
	})
	rec := httptest.NewRecorder()
	if err := in(rec, httptest.NewRequest("GET", "/", nil)); err != nil {
		s.t.Fatal(err)
	}
	cookies := rec.Result().Cookies()
	known := strings.NewReplacer(
		"/connections/{id}", "/connections/"+s.first,
		"/apps/{id}", "/apps/"+s.app.ID,
		"/accounts/{id}", "/accounts/"+s.hot.ID,
		"{file}", s.DB.Now().UTC().Format("2006-01")+".csv",
		"{endpoint}", s.webhook,
		"{webhookId}", s.webhook,
		"{page}", "billing",
		"{path...}", "0/000",
		"{$}", "",
	)
	get := func(path string, sign func(*http.Request)) {
		r := httptest.NewRequest("GET", regexp.MustCompile(`\{\w+\}`).ReplaceAllString(known.Replace(path), "x"), nil)
		sign(r)
		list = append(list, r)
	}
	inSession := func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
	for _, route := range pages {
		if path, ok := strings.CutPrefix(route, "GET "); ok && path != "/sign-out/here" {
			get(path, inSession)
		}
	}
	for _, tab := range []string{"", "usage", "users", "errors", "latency"} {
		get("/developer/apps/{id}/analytics?days=30&compare=1&tab="+tab, inSession)
	}
	get("/activity?connection="+s.first, inSession)
	get("/activity?type=topup", inSession)
	for _, route := range apitest.Routes() {
		path, ok := strings.CutPrefix(route, "GET ")
		if !ok || strings.Contains(path, "/connection/events") || path == "/readyz" {
			continue
		}
		get(path, func(r *http.Request) {
			switch {
			case strings.HasPrefix(path, "/v1/operator"):
				r.Header.Set("Authorization", "Bearer "+s.Config.OperatorTokens[0])
			case strings.HasPrefix(path, "/v1/apps"), strings.HasPrefix(path, "/v1/connections"):
				r.SetBasicAuth(s.app.ClientID, s.secret)
			default:
				r.Header.Set("Authorization", "Bearer "+s.token)
			}
		})
	}
	return list
}

// deleteWebhook returns the request that deletes an endpoint with most of all deliveries.
func (s *sized) deleteWebhook() *http.Request {
	r := httptest.NewRequest("DELETE", "/v1/apps/"+s.app.ID+"/webhooks/"+s.webhook, nil)
	r.SetBasicAuth(s.app.ClientID, s.secret)
	return r
}

// judge compares what the statements have read with what they may read.
func (s *sized) judge() {
	s.DB.Trace(nil)
	if len(s.plans) < 180 {
		s.t.Errorf("only %d statements ran", len(s.plans))
	}
	known := map[string]bool{}
	list := slices.SortedFunc(maps.Values(s.plans), func(a, b *plan) int {
		return cmp.Or(cmp.Compare(b.pages, a.pages), cmp.Compare(a.query, b.query))
	})
	for i, p := range list {
		if p.failure != nil { // it waited for a lock, for example
			s.explainOnce(p, "the test's end", p.query, p.args)
		}
		fault := s.findFault(p)
		for text := range readMore {
			if strings.Contains(strings.Join(strings.Fields(p.query), " "), text) {
				known[text] = true
				fault = ""
			}
		}
		if fault != "" {
			s.t.Errorf("%s, by %s:\n%s\n%s", fault, p.where, p.query, p.steps)
		}
		if *sizeRows >= 1_000_000 && i < 30 {
			s.t.Logf("%d pages, %d rows: %s", p.pages, p.rows, p.query)
		}
	}
	for text := range readMore {
		if !known[text] {
			s.t.Errorf("no statement has %q", text)
		}
	}
}

// findFault says why a statement reads too much; "" = it does not.
func (s *sized) findFault(p *plan) string {
	switch {
	case p.failure != nil && !strings.Contains(p.failure.Error(), "duplicate key"):
		return fmt.Sprintf("no plan: %v", p.failure)
	case p.pages > maxPages, p.rows > maxRows && *sizeRows < 100_000:
		return fmt.Sprintf("%d pages and %d rows are read", p.pages, p.rows)
	}
	for _, m := range scans.FindAllStringSubmatch(p.steps, -1) {
		table := m[1]
		names := regexp.MustCompile(`\b(\w+) (?:AS )?`+table+`\b`).FindAllStringSubmatch(p.query, -1)
		for _, alias := range names {
			if isBig(alias[1]) {
				table = alias[1]
			}
		}
		if isBig(table) && !s.isSmall(table, m[2]) {
			return m[0]
		}
	}
	return ""
}

// scans are the steps of SQLite that read a table or an index from end to end.
var scans = regexp.MustCompile(`(?m)^SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?`)

// isSmall reports whether an index of SQLite has so few rows of a table that it may be read from end to end: its
// condition finds less than maxRows, also where the ledger has a million.
func (s *sized) isSmall(table, index string) bool {
	var text string
	err := s.DB.QueryRowContext(s.t.Context(), `SELECT sql FROM sqlite_master WHERE type = 'index' AND name = $1
		AND sql IS NOT NULL`, index).Scan(&text)
	_, condition, partial := strings.Cut(text, " WHERE ")
	if err != nil || !partial {
		return false // a primary key, or an index of all rows
	}
	var n int
	if err := s.DB.QueryRowContext(s.t.Context(), fmt.Sprintf(`SELECT COUNT(*) FROM (SELECT 1 FROM %s INDEXED BY %s
		WHERE %s LIMIT %d)`, table, index, condition, maxRows)).Scan(&n); err != nil {
		s.t.Error(err)
	}
	return n*1_000_000 < maxRows**sizeRows
}

func isBig(table string) bool {
	return slices.ContainsFunc(fills, func(f fill) bool { return f.table == table && f.share < 1000 })
}

// checkTables finds tables that the test does not know.
func (s *sized) checkTables() {
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'`
	if s.DB.Engine == db.Postgres {
		query = `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
			AND relnamespace = 'public'::regnamespace`
	}
	tables, err := db.QueryAll(s.t.Context(), s.DB, db.ScanColumn[string], query)
	if err != nil {
		s.t.Fatal(err)
	}
	small := strings.Fields(strings.Join(slices.Collect(maps.Values(notFilled)), " "))
	for _, table := range tables {
		filled := slices.ContainsFunc(fills, func(f fill) bool { return f.table == table })
		if filled == slices.Contains(small, table) {
			s.t.Errorf("say of table %s whether it may be big", table)
		}
	}
}
