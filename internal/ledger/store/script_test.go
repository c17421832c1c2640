package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

var epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// bench runs scripts: on the bare rules, or through a Writer on a database.
type bench struct {
	mu     sync.Mutex // the writer's tick looks at now, too
	now    time.Time
	do     func(rules.Command) (rules.Result, error)
	read   func(accountID string) rules.Balance
	conn   func(id string) (rules.Connection, error)
	events func() []string
	held   map[string]rules.Call // what calls hold, by connection and key
}

// TestScripts runs each script of testdata thrice: on the bare rules, on SQLite
// and on PostgreSQL. They must read the same everywhere.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run("rules/"+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			runScript(t, file, func(*testing.T) *bench { return rulesBench() })
		})
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := 0
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				runScript(t, file, func(t *testing.T) *bench {
					n++
					return databaseBench(t, d, fmt.Sprint(n, "-"))
				})
			})
		}
	})
}

func rulesBench() *bench {
	s := rules.NewState()
	b := &bench{now: epoch, held: map[string]rules.Call{}}
	known, children := map[string]bool{}, map[string]bool{}
	b.do = func(c rules.Command) (rules.Result, error) {
		keys := rules.NewRowKeys()
		keys.Add(c)
		for _, e := range s.Changes.Entries { // as resolve does on a database
			if !keys.Entries[e.ID] {
				continue
			}
			if keys.AddOriginal(&e); !known[e.ID] {
				known[e.ID] = true
				s.AddOriginal(e, false)
			}
		}
		for childID := range children {
			keys.AddBudget(childID)
		}
		if c, ok := c.(rules.Delegate); ok {
			children[c.Child.ID] = true
		}
		for subject, width := range keys.Counters { // they are there before a command counts
			if s.Counters[subject] == nil {
				s.Counters[subject] = &rules.Counter{Spent: limits.Series{Width: width}}
			}
		}
		r, err := rules.Apply(s, c, b.now)
		if err == nil && r.Refused != nil {
			err = r.Refused
		}
		return r, err
	}
	b.read = func(accountID string) rules.Balance { return *s.Balances[accountID] }
	b.conn = func(id string) (rules.Connection, error) {
		c := s.Connections[id]
		if c == nil {
			return rules.Connection{}, sql.ErrNoRows
		}
		return *c, nil
	}
	b.events = func() (types []string) {
		for _, e := range s.Changes.Events {
			types = append(types, e.Type)
		}
		return types
	}
	return b
}

func databaseBench(t *testing.T, d *db.DB, prefix string) *bench {
	t.Helper()
	b := newBench(t, d, prefix)
	w := NewWriter(d, b.clock)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	b.do = func(c rules.Command) (rules.Result, error) { return w.Do(ctx, c) }
	return b.prefixed(prefix)
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// newBench is a bench that only reads, without the prefix of its script.
func newBench(t *testing.T, d *db.DB, prefix string) *bench {
	t.Helper()
	b, ctx := &bench{now: epoch, held: map[string]rules.Call{}}, context.Background()
	b.read = func(accountID string) rules.Balance {
		r, err := GetBalance(ctx, d, accountID)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	b.conn = func(id string) (rules.Connection, error) { return GetConnection(ctx, d, id) }
	b.events = func() (types []string) {
		rows, err := d.QueryContext(ctx, `SELECT type FROM events WHERE app_id LIKE $1 ORDER BY created_us, seq`,
			prefix+"%")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			types = append(types, s)
		}
		return types
	}
	return b
}

// prefixed keeps the scripts of one database apart.
func (b *bench) prefixed(p string) *bench {
	do, read, conn := b.do, b.read, b.conn
	b.do = func(c rules.Command) (rules.Result, error) { return do(prefix(c, p)) }
	b.read = func(a string) rules.Balance { return read(p + a) }
	b.conn = func(c string) (rules.Connection, error) { return conn(p + c) }
	return b
}

func prefix(c rules.Command, p string) rules.Command {
	call := func(c rules.Call) rules.Call {
		c.ConnectionID, c.AccountID, c.AppID, c.RequestID = p+c.ConnectionID, p+c.AccountID, p+c.AppID, c.RequestID+p
		return c
	}
	switch c := c.(type) {
	case rules.RequestAllocation, rules.DecideAllocationRequest:
		return prefixRaise(c, p)
	case rules.OpenPayment, rules.MarkPaymentPaid, rules.SettlePayment, rules.FailPayment, rules.ReversePayment,
		rules.DisputePayment, rules.ReopenPayment, rules.EndDispute:
		return prefixPayment(c, p)
	case rules.BeginPayout, rules.EndPayout, rules.RecordPayout, rules.TakeDisputedMargin:
		return prefixPayout(c, p)
	case rules.GiveGoodwill:
		c.GoodwillID, c.AccountID = p+c.GoodwillID, p+c.AccountID
		return c
	case rules.WithdrawGoodwill:
		c.GoodwillID = p + c.GoodwillID
		return c
	case rules.Delegate:
		c.Child.ConnectionID, c.Child.ID, c.Child.TokenHash = p+c.Child.ConnectionID, p+c.Child.ID, p+c.Child.ID
		if c.Child.ParentID != "" {
			c.Child.ParentID = p + c.Child.ParentID
		}
		return c
	case rules.EndFreeCredit:
		c.AccountID = p + c.AccountID
		return c
	case rules.EndChild:
		c.ConnectionID, c.ChildID = p+c.ConnectionID, p+c.ChildID
		return c
	case rules.EndFamily:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.TopUp:
		c.AccountID = p + c.AccountID
		return c
	case rules.Connect:
		c.ConnectionID, c.AppID, c.AccountID = p+c.ConnectionID, p+c.AppID, p+c.AccountID
		return c
	case rules.ChangeCap:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.Revoke:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.PauseAccount:
		c.AccountID = p + c.AccountID
		return c
	case rules.ResumeAccount:
		c.AccountID = p + c.AccountID
		return c
	case rules.Freeze:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.Resume:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.SetVelocityLimit:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.EmitEvent:
		c.ConnectionID = p + c.ConnectionID
		return c
	case rules.EmitAppEvent:
		c.AppID = p + c.AppID
		return c
	case rules.Hold:
		c.Call = call(c.Call)
		c.Claim += p
		if c.ChildID != "" {
			c.ChildID = p + c.ChildID
		}
		for i := range c.Limits {
			subject, ok := strings.CutPrefix(c.Limits[i].Subject, "spend/")
			switch app, account, ofUser := strings.Cut(subject, "/"); {
			case ofUser:
				c.Limits[i].Subject = tiers.UserSpendSubject(p+app, p+account)
			case ok:
				c.Limits[i].Subject = tiers.AppSpendSubject(p + app)
			default:
				c.Limits[i].Subject = p + c.Limits[i].Subject
			}
		}
		if c.FreeCredit != nil {
			for i := range c.FreeCredit.Limits {
				c.FreeCredit.Limits[i].Subject = strings.Replace(c.FreeCredit.Limits[i].Subject, "/", "/"+p, 1)
			}
		}
		return c
	case rules.Settle:
		c.Call = call(c.Call)
		return c
	case rules.Defer:
		c.Call = call(c.Call)
		return c
	case rules.Release:
		c.Call = call(c.Call)
		if c.Unbilled != nil && c.Unbilled.Estimate != nil {
			u, estimate := *c.Unbilled, *c.Unbilled.Estimate
			estimate.Call, u.Estimate = c.Call, &estimate
			c.Unbilled = &u
		}
		return c
	case rules.RefundCall:
		c.AccountID, c.EntryID, c.AppID, c.DeveloperID = p+c.AccountID, c.EntryID+p, p+c.AppID, p+c.DeveloperID
		return c
	case rules.Reverse:
		c.AccountID, c.EntryID = p+c.AccountID, c.EntryID+p
		return c
	}
	return c
}

// runScript runs a file. A line "== name" in it begins a script of its own, which is
// a subtest of that name and starts from nothing.
func runScript(t *testing.T, file string, fresh func(*testing.T) *bench) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	names := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "== ") })
	if len(names) == 0 {
		runLines(t, file, lines, "", fresh(t))
	}
	for _, name := range names {
		t.Run(strings.TrimPrefix(name, "== "), func(t *testing.T) { runLines(t, file, lines, name, fresh(t)) })
	}
}

// runLines runs the lines under a name, up to the next name.
func runLines(t *testing.T, file string, lines []string, name string, b *bench) {
	t.Helper()
	under := ""
	for i, line := range lines {
		if strings.HasPrefix(line, "== ") {
			under = line
		}
		cmd, want, ok := strings.Cut(line, "->")
		if !ok || strings.HasPrefix(line, "#") || under != name {
			continue
		}
		f := strings.Fields(cmd)
		if got, want := runLine(t, b, f), strings.TrimSpace(want); !agrees(got, want) ||
			f[0] == "event" && got != want {
			t.Errorf("%s:%d: %s\n got %s", file, i+1, line, got)
		}
	}
}

// agrees compares an answer with what a script expects of it: the script may
// leave out what it is not about.
func agrees(got, want string) bool {
	have := map[string]bool{}
	for _, w := range strings.Fields(got) {
		have[w] = true
	}
	for i, w := range strings.Fields(want) {
		if i == 0 && !strings.HasPrefix(got, w) || !have[w] {
			return false
		}
	}
	return (want == "") == (got == "")
}

// runLine runs one line of a script and says what came of it.
func runLine(t *testing.T, b *bench, f []string) string {
	if f[0] == "at" {
		d, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.now = epoch.Add(d)
		b.mu.Unlock()
		return ""
	}
	if f[0] == "event" {
		return strings.Join(b.events(), " ")
	}
	if f[0] == "show" {
		c, err := b.conn(f[1])
		if err != nil {
			t.Fatal(err)
		}
		s := c.EffectiveStatus()
		if c.FrozenBy != "" {
			s += " by=" + string(c.FrozenBy) + " reason=" + c.FrozenReason
		}
		return s
	}
	c := command(t, b, f)
	r, err := b.do(c)
	var e *apierr.Error
	if errors.As(err, &e) {
		return refusal(e)
	} else if err != nil {
		t.Fatalf("%v: %v", f, err)
	}
	if _, ok := c.(rules.Hold); ok && r.Outcome == rules.Applied {
		b.held[f[1]+f[2]] = r.Call
	}
	return formatResult(b, c, r, f)
}

func refusal(e *apierr.Error) string {
	s := e.Code.Name
	for _, k := range []string{"remaining_mc", "held_mc", "reason"} {
		if v, ok := e.Details[k]; ok {
			s += fmt.Sprintf(" %s=%v", k, v)
		}
	}
	if e.Final {
		s += " final"
	}
	if e.Code.Increase && !e.NoIncrease {
		s += " raise"
	} else if e.Code.Increase {
		s += " no-raise"
	}
	if e.RetryAfter > 0 {
		s += " retry=" + e.RetryAfter.String()
	}
	return s
}

func formatResult(b *bench, c rules.Command, r rules.Result, f []string) string {
	conn := r.Connection
	switch c.(type) {
	case rules.RequestAllocation, rules.DecideAllocationRequest:
		return toldRaise(r, b.read("A"))
	case rules.OpenPayment, rules.MarkPaymentPaid, rules.SettlePayment, rules.FailPayment, rules.ReversePayment,
		rules.DisputePayment, rules.ReopenPayment, rules.EndDispute:
		return toldPayment(r, b.read("A"))
	case rules.GiveGoodwill, rules.WithdrawGoodwill:
		return formatGoodwill(r, b.read("A"))
	case rules.RefundCall:
		return formatCallRefund(r, b)
	case rules.BeginPayout, rules.EndPayout, rules.RecordPayout, rules.TakeDisputedMargin:
		return formatPayout(r)
	}
	switch r.Outcome {
	case rules.Running:
		return fmt.Sprintf("running %d", r.Attempt)
	case rules.Done:
		if f[0] == "settle" {
			return "already settled"
		}
		return "done"
	case rules.Waiting:
		return fmt.Sprintf("waiting %d", r.Attempt)
	case rules.Fenced:
		return "fenced"
	}
	switch c := c.(type) {
	case rules.Delegate, rules.EndChild, rules.EndFamily:
		return fmt.Sprintf("ok released=%d remaining=%d delegated=%d held=%d available=%d", r.ReleasedMC,
			conn.RemainingMC(), conn.DelegatedMC, conn.HeldMC, b.read("A").AvailableMC)
	case rules.EndFreeCredit:
		return "ok"
	case rules.TopUp:
		return fmt.Sprintf("ok available=%d", b.read(c.AccountID).AvailableMC)
	case rules.Hold:
		s := fmt.Sprintf("new %d remaining=%d paid_by=%s", r.Attempt, conn.RemainingMC(), r.Call.PaidBy)
		if r.UseProviderKey {
			s += " own"
		}
		return s
	case rules.Freeze, rules.Resume:
		return conn.EffectiveStatus()
	}
	account := "A"
	bal := b.read(account)
	s := "ok"
	if r.HoldExpired {
		s += " late"
	}
	if r.Shortfall > 0 {
		s += fmt.Sprintf(" shortfall=%d", r.Shortfall)
	}
	if r.Estimated {
		s += " estimated"
	}
	if r.Waived {
		s += fmt.Sprintf(" waived fee=%d margin=%d", r.Entry.SvcFeeMC, r.Entry.DevMarginMC)
	}
	if _, ok := c.(rules.Connect); ok {
		s += " " + conn.ID[strings.LastIndex(conn.ID, "-")+1:]
	}
	return s + fmt.Sprintf(
		" charge=%d back=%d released=%d allocation=%d remaining=%d consumed=%d held=%d available=%d reserved=%d",
		r.Entry.UserChargeMC, r.Entry.UserChargeMC, r.ReleasedMC, conn.AllocationMC, conn.RemainingMC(),
		conn.ConsumedMC, conn.HeldMC, bal.AvailableMC, bal.ReservedMC)
}

func formatCallRefund(r rules.Result, b *bench) string {
	done := map[rules.Outcome]string{rules.Applied: "ok", rules.Done: "done", rules.Waiting: "waiting"}[r.Outcome]
	user, c := b.read("A"), r.CallRefund
	return fmt.Sprintf(
		"%s n=%d back=%d margin=%d balance=%d used=%d sandbox=%t available=%d reserved=%d developer=%d",
		done, c.N, r.Entry.UserChargeMC, c.MarginMC, c.BalanceMC, c.MarginUsedMC, c.Sandbox, user.AvailableMC,
		user.ReservedMC, b.read("D").AvailableMC)
}

func formatGoodwill(r rules.Result, b rules.Balance) string {
	done := map[rules.Outcome]string{rules.Applied: "ok", rules.Done: "done"}[r.Outcome]
	return fmt.Sprintf("%s row=%s reason=%s moved=%d rest=%d available=%d", done, r.Entry.Status, r.Entry.Reason,
		r.Entry.AvailableDeltaMC, r.Goodwill.RestMC(), b.AvailableMC)
}

func command(t *testing.T, b *bench, f []string) rules.Command {
	num := func(s string) money.MC {
		unit, more := money.MC(1), ""
		if dollars, ok := strings.CutPrefix(s, "$"); ok { // $5, $5+1, $5-1
			unit, s = money.Dollar, dollars
			if i := strings.IndexAny(dollars, "+-"); i > 0 {
				s, more = dollars[:i], dollars[i:]
			}
		}
		n, err := strconv.ParseInt(s, 10, 64)
		m, err2 := strconv.ParseInt(cmp.Or(more, "0"), 10, 64)
		if err != nil || err2 != nil {
			t.Fatal(f, err, err2)
		}
		return money.MC(n)*unit + money.MC(m)
	}
	option := func(name string) (string, bool) {
		for _, w := range f {
			if v, ok := strings.CutPrefix(w, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
	app := map[string]string{"C1": "app", "C2": "other", "C3": "app3", "C4": "app1", "C9": "app"}
	call := func() rules.Call {
		appID := app[f[1]]
		if c, err := b.conn(f[1]); err == nil {
			appID = c.AppID[strings.LastIndex(c.AppID, "-")+1:]
		}
		return rules.Call{
			ConnectionID: f[1],
			AccountID:    "A",
			AppID:        appID,
			Key:          f[2],
			RequestID:    "req_" + f[1] + f[2],
			Model:        "m",
			Terms:        "{}",
			PaidBy:       b.held[f[1]+f[2]].PaidBy,
			Reservations: b.held[f[1]+f[2]].Reservations,
		}
	}
	switch f[0] {
	case "topup":
		return rules.TopUp{AccountID: f[1], Sandbox: true, AmountMC: num(f[2])}
	case "connect":
		c := rules.Connect{ConnectionID: f[1], Sandbox: true, AppID: f[2], AccountID: f[3], RequestedMC: num(f[4])}
		if _, ok := option("money"); ok { // =real
			c.Sandbox = false
		}
		if v, ok := option("daily"); ok {
			n := num(v)
			c.VelocityLimitMC = &n
		}
		if v, ok := option("tier"); ok {
			c.MaxMC = num(v)
		}
		return c
	case "cap":
		c := rules.ChangeCap{ConnectionID: f[1], TargetMC: num(f[2])}
		if v, ok := option("tier"); ok {
			c.MaxMC = num(v)
		}
		return c
	case "daily":
		n := num(f[2])
		return rules.SetVelocityLimit{ConnectionID: f[1], LimitMC: &n}
	case "ask", "approve", "deny":
		return raiseCommand(t, f)
	case "open", "reopen", "pay", "clear", "fail", "back", "dispute", "decide":
		return paymentCommand(t, f)
	case "give":
		return rules.GiveGoodwill{
			GoodwillID: f[1],
			AccountID:  f[2],
			AmountMC:   num(f[3]),
			Reason:     strings.Join(f[4:], " "),
		}
	case "payout", "transfer", "found", "disputed":
		return payoutCommand(f, num, option)
	case "withdraw":
		return rules.WithdrawGoodwill{GoodwillID: f[1], Reason: strings.Join(f[2:], " ")}
	case "delegate":
		c := rules.Delegate{Child: rules.Child{
			ID: f[2], ConnectionID: f[1], AmountMC: num(f[3]), Key: f[2], Fingerprint: f[3],
			ExpiresUS: b.now.Add(time.Hour).UnixMicro(),
		}}
		c.Child.ParentID, _ = option("of")
		c.Child.FamilyID, _ = option("family")
		return c
	case "endfamily":
		return rules.EndFamily{ConnectionID: f[1], FamilyID: f[2]}
	case "end":
		return rules.EndChild{ConnectionID: f[1], ChildID: f[2], By: rules.EndedByApp}
	case "revoke":
		return rules.Revoke{ConnectionID: f[1]}
	case "pause":
		c := rules.PauseAccount{AccountID: f[1], By: rules.FrozenByUser}
		if v, ok := option("by"); ok {
			c.By = rules.FreezeCause(v)
		}
		c.Reason, _ = option("reason")
		c.Subject, _ = option("subject")
		return c
	case "lift":
		return rules.ResumeAccount{AccountID: f[1], Subject: rules.Suspension}
	case "freeze":
		c := rules.Freeze{ConnectionID: f[1], By: rules.FrozenByUser}
		if v, ok := option("by"); ok {
			c.By = rules.FreezeCause(v)
		}
		c.Reason, _ = option("reason")
		c.Subject, _ = option("subject")
		return c
	case "resume":
		c := rules.Resume{ConnectionID: f[1]}
		if v, ok := option("by"); ok {
			c.By = rules.FreezeCause(v)
		}
		_, c.DespiteDispute = option("despite")
		if v, ok := option("shown"); ok {
			c.Shown = rules.SplitKeys(v)
		}
		if v, ok := option("faster"); ok {
			c.FasterSpend = int64(num(v))
		}
		return c
	case "emitapp":
		return rules.EmitAppEvent{AppID: f[1], Type: f[2], Data: "{}"}
	case "endfree":
		return rules.EndFreeCredit{AccountID: f[1]}
	case "emit":
		return rules.EmitEvent{ConnectionID: f[1], Type: f[2], Data: "{}"}
	case "hold":
		h := rules.Hold{Call: call(), Claim: fmt.Sprint(len(f), id.NewSecret())}
		h.Fingerprint, h.HoldMC = f[3], num(f[4])
		if v, ok := option("claim"); ok {
			h.Claim = v
		}
		h.ChildID, _ = option("child")
		if v, ok := option("rate"); ok {
			h.Limits = []limits.Limit{{
				Subject: "rate/" + h.AppID + "/" + h.AccountID,
				Window:  time.Minute,
				Max:     int64(num(v)),
				Code:    apierr.RateLimited,
				Owner:   "feature x",
			}}
		}
		if v, ok := option("day"); ok {
			h.Limits = append(h.Limits, limits.Limit{
				Subject: tiers.UserSpendSubject(h.AppID, h.AccountID),
				Unit:    limits.Spend,
				Window:  rules.VelocityWindow,
				Max:     int64(num(v)),
				Code:    apierr.DailyLimitReached,
				Owner:   "a limited-live app",
			})
		}
		if v, ok := option("app"); ok {
			h.Limits = append(h.Limits, limits.Limit{
				Subject: "spend/" + h.AppID,
				Unit:    limits.Spend,
				Window:  rules.VelocityWindow,
				Max:     int64(num(v)),
				Code:    apierr.AppSpendLimited,
				Owner:   "a limited-live app",
				Event:   "app.spend_limit_reached",
			})
		}
		if v, ok := option("live"); ok {
			h.Limits = append(h.Limits, limits.Limit{
				Subject: "live/dev",
				Unit:    limits.Cost,
				Window:  rules.VelocityWindow,
				Max:     int64(num(v)),
				Code:    apierr.SandboxLiveCostLimited,
				Owner:   "the sandbox",
			})
			h.CostMC = h.HoldMC / 2
			_, h.HasProviderKey = option("own")
		}
		if v, ok := option("tier"); ok {
			h.MaxCapMC = num(v)
		}
		if v, ok := option("risk"); ok {
			h.Risk = &limits.RiskThresholds{FloorMC: num(v), Warn: 5, Throttle: 10, Freeze: 20}
		}
		if v, ok := option("free"); ok { // pool/on the app/on all apps
			most := strings.Split(v, "/")
			pool, onApp, onAll := rules.FreeCreditSubjects(h.AppID, h.AccountID, b.now)
			h.FreeCredit = &rules.FreeCreditHold{Terms: `{"free":true}`, HoldMC: h.HoldMC / 2, Limits: []limits.Limit{
				{Subject: pool, Unit: limits.Spend, Max: int64(num(most[0]))}, {
					Subject: onApp,
					Unit:    limits.Spend,
					Max:     int64(num(most[1])),
				}, {
					Subject: onAll,
					Unit:    limits.Spend,
					Max:     int64(num(most[2])),
				},
			}}
		}
		if v, ok := option("most"); ok {
			n := num(v)
			h.MaxHoldMC = &n
		}
		return h
	case "settle":
		c := rules.Settle{
			Call:       call(),
			Attempt:    int64(num(f[3])),
			Settlement: rules.Settled,
			Usage:      rules.Usage{JSON: "{}"},
		}
		cost := num(f[4])
		c.Charge = rules.Amounts{ProviderCostMC: cost, UserChargeMC: cost}
		c.Fingerprint = "f" + strings.TrimLeft(f[2], "k")
		if v, ok := option("margin"); ok {
			c.Charge.DevMarginMC = num(v)
			c.Charge.UserChargeMC += num(v)
		}
		if v, ok := option("waive"); ok {
			c.Waiver = &rules.Waiver{DayMC: num(v), Usage: rules.Usage{JSON: "{" + rules.WaivedEmpty + "}"}}
		}
		if v, ok := option("risk"); ok {
			c.Risk = &limits.RiskThresholds{FloorMC: num(v), Warn: 5, Throttle: 10, Freeze: 20}
		}
		if v, ok := option("most"); ok {
			n := num(v)
			c.MaxChargeMC = &n
		}
		if v, ok := option("budget"); ok { // session/its max_cost_mc
			sessionID, most, _ := strings.Cut(v, "/")
			c.Budget = &rules.Budget{Subject: rules.VoiceSubject(sessionID), MaxMC: num(most)}
		}
		c.Response = &rules.StoredResponse{Encoding: "raw", Body: []byte("settled")}
		c.Receipt = func(e *rules.Entry) (string, error) { return fmt.Sprintf(`{"id":%q}`, e.RequestID()), nil }
		if _, ok := option("silent"); ok {
			c.Receipt = nil
		}
		return c
	case "defer":
		return rules.Defer{
			Call:     call(),
			Attempt:  int64(num(f[3])),
			Provider: "openai",
			RecordID: "chatcmpl-1",
			Response: &rules.StoredResponse{Encoding: "raw", Body: []byte("deferred")},
		}
	case "release":
		c := rules.Release{Call: call(), Attempt: int64(num(f[3]))}
		if v, ok := option("cost"); ok {
			c.Unbilled = &rules.Unbilled{CostMC: num(v)}
		}
		if v, ok := option("left"); ok { // the amount of a day
			c.Unbilled.DayMC, c.Unbilled.Estimate = num(v), &rules.Settle{
				Call:       c.Call,
				Attempt:    c.Attempt,
				Settlement: rules.Estimated,
				Charge:     rules.Amounts{ProviderCostMC: c.Unbilled.CostMC, UserChargeMC: c.Unbilled.CostMC},
				Usage:      rules.Usage{JSON: "{}"},
			}
		}
		return c
	case "refund":
		c := rules.RefundCall{
			EntryID:     "led_" + f[1] + f[2],
			AccountID:   "A",
			AppID:       app[f[1]],
			DeveloperID: "D",
			Margin:      rules.AppMargin{ClosedDay: "2026-11-20"},
			Reason:      "late",
			Receipt:     func(e *rules.Entry) (string, error) { return fmt.Sprintf(`{"id":%q}`, e.RequestID()), nil },
		}
		if v, ok := option("app"); ok {
			c.AppID = v
		}
		if v, ok := option("earned"); ok {
			c.Margin.EarnedMC = num(v)
		}
		if v, ok := option("seen"); ok {
			c.Margin.Refunds = int64(num(v))
		}
		if v, ok := option("records"); ok {
			c.Margin.Records = int64(num(v))
		}
		return c
	case "reverse":
		return rules.Reverse{
			EntryID:   "led_" + f[1] + f[2],
			AccountID: "A",
			Reason:    "provider_error",
			Receipt:   func(e *rules.Entry) (string, error) { return fmt.Sprintf(`{"id":%q}`, e.RequestID()), nil },
		}
	}
	t.Fatalf("unknown command %v", f)
	return nil
}
