package rules

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// machine drives the bare rules with random commands and checks every invariant
// of the ledger after each. It keeps no second implementation: the invariants
// are sums over the rows.
type machine struct {
	s       *State
	now     time.Time
	n       int
	calls   []Hold                 // every call ever tried
	number  map[Key]int64          // newest attempt of each key
	held    map[attemptOf]Call     // each attempt as it was held
	seen    map[string]int         // how often each rare path was taken
	told    []string               // what request.settled should have said
	counted []counted              // what settled calls have left in counters
	calling map[string][]time.Time // when calls were admitted, by rate limit
	tier    map[string]string      // of each app; "" = limited-live, full, or sandbox for app s
	lenient map[string]bool        // connections of which a forgiven charge was refunded
	onDisk  bool                   // each command has a State of its own: see model_disk_test.go

	causes   map[string]map[string]bool // why each connection is stopped
	despite  map[string]bool            // connections that an operator has resumed in spite of a dispute
	disputes map[string]string          // open ones, with their accounts
}

type attemptOf struct {
	Key
	attempt int64
}

// ending draws an attempt of a call, to be ended by who holds it: it knows what that
// one holds.
func (m *machine) ending(t *rapid.T, h *Hold) (attempt int64) {
	attempt = rapid.Int64Range(1, m.number[h.key()]).Draw(t, "attempt")
	h.Call = m.held[attemptOf{h.key(), attempt}]
	return attempt
}

// rare are the paths without which a run has proved nothing.
var rare = []string{
	"waived", "late", "shortfall", "fenced", "running", "done", "exhausted", "revoked with holds", "reversed",
	"clamped cap",
	"app limited", "day limited", "velocity limited", "tier capped", "rate limited", "promoted", "faster", "free",
	"free settled", "free was full", "free ended", "own key", "cost limited", "throttled", "warned", "frozen by pace",
	"pending", "pending settled", "pending waited for", "deferred late", "revoked with pending",
	"approved", "refused raise", "decided twice",
	"refused exhausted", "exhausted by the cap", "updated", "refunded in the window", "forgiven", "met request",
	"paid", "cleared later", "paid after it failed", "reopened", "went back", "restored", "more than was paid",
	"settled elsewhere", "below zero",
	"several causes", "resumed in part", "lifted in part", "refused resume", "won",
	"denied by revoke", "lowered", "lowered free", "too small to lower", "paused everything",
	"own work", "own work too late", "own work released",
	"goodwill", "goodwill again", "withdrawn", "withdrawn in part", "nothing to withdraw",
	"delegated", "delegated by a child", "delegated again", "child full", "child ended",
	"child held", "children revoked", "child free", "child free capped",
	"paid out", "paid nothing", "payout again", "payout failed", "disputed", "dispute won", "margin kept",
	"margin owed",
	"unbilled", "left and charged",
	"refunded by margin", "refunded by both", "refunded again", "refund not covered", "refunded for nothing"}

func TestInvariants(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	missing := func(path string) bool { return seen[path] == 0 }
	most := 1000 // three paths take about 30
	if testing.Short() {
		most = 30
	}
	for n := 0; n < 30 || n < most && slices.ContainsFunc(rare, missing); n++ {
		if rapid.Check(t, invariants(seen)); t.Failed() {
			return
		}
	}
	for _, path := range rare {
		if missing(path) && !testing.Short() {
			t.Errorf("vacuous: no run took the path %q", path)
		}
	}
}

func invariants(seen map[string]int) func(*rapid.T) {
	return func(t *rapid.T) {
		m := &machine{
			now:     time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
			number:  map[Key]int64{},
			held:    map[attemptOf]Call{},
			seen:    seen,
			calling: map[string][]time.Time{},
			tier:    map[string]string{"s": "sandbox"},
			lenient: map[string]bool{},

			causes:   map[string]map[string]bool{},
			despite:  map[string]bool{},
			disputes: map[string]string{},
		}
		m.s, m.onDisk = NewState(), rapid.Bool().Draw(t, "on disk")
		if rapid.Bool().Draw(t, "begun") {
			m.begin(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"topup":        m.topUp,
			"payment":      m.payment,
			"pay again":    m.payment,
			"goodwill":     m.giveGoodwill,
			"withdraw":     m.withdrawGoodwill,
			"connect":      m.connect,
			"hold":         m.hold,
			"hold more":    m.hold,
			"hold another": m.hold,
			"hold again":   m.holdAgain,
			"settle":       m.settle,
			"settle late":  m.settle,
			"release":      m.release,
			"defer":        m.deferCall,
			"cap":          m.cap,
			"revoke":       m.revoke,
			"freeze":       m.freeze,
			"pause":        m.pauseAccount,
			"dispute":      m.dispute,
			"ask":          m.ask,
			"decide":       m.decide,
			"velocity":     m.velocity,
			"tier":         m.promote,
			"reverse":      m.reverse,
			"refund call":  m.refundCall,
			"margin":       m.margin,
			"end free":     m.endFreeCredit,
			"delegate":     m.delegate,
			"end child":    m.endChild,
			"time":         m.pass,
			"":             m.check,
		})
	}
}

// begin is where most runs get sooner or later, so that they get further.
func (m *machine) begin(t *rapid.T) {
	for _, c := range []Command{
		TopUp{AccountID: "A", AmountMC: 2000}, TopUp{AccountID: "B", AmountMC: 2000},
		TopUp{AccountID: "T", Sandbox: true, AmountMC: 2000},
		Connect{ConnectionID: "Ap", AppID: "p", AccountID: "A", RequestedMC: 800},
		Connect{ConnectionID: "Bp", AppID: "p", AccountID: "B", RequestedMC: 800},
		Connect{ConnectionID: "Ts", Sandbox: true, AppID: "s", AccountID: "T", RequestedMC: 800},
	} {
		if _, err := m.do(t, c); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) do(t *rapid.T, c Command) (Result, error) {
	connections, disputed := m.copyConnections()
	keys, s := NewRowKeys(), m.s
	keys.Add(c)
	named := slices.Collect(maps.Keys(keys.Connections))
	if m.onDisk {
		s = m.load(keys)
	} else {
		m.addRows(keys)
	}
	before := s.digest()
	r, err := Apply(s, c, m.now)
	events := s.Changes.Events
	if r.Refused != nil { // the event that goes with it is meant to stay
		err, s.Changes.Events = r.Refused, events[:len(events)-1]
	}
	if err != nil && (s.digest() != before || strings.Contains(err.Error(), "no such connection")) {
		t.Fatalf("%T failed with %v, and changed the state or did not find what is there", c, err)
	}
	s.Changes.Events = events
	if m.onDisk && (err == nil || r.Refused != nil) {
		m.save(t, s, keys, c)
	}
	if len(named) != 1 && r.Connection.ID != "" {
		named = []string{r.Connection.ID}
	}
	if err == nil && r.Outcome == Applied && len(named) == 1 &&
		!reflect.DeepEqual(r.Connection, *m.s.Connections[named[0]]) {
		t.Fatalf("%T leaves %+v and returns %+v", c, *m.s.Connections[named[0]], r.Connection)
	}
	m.spendsNoMore(t, connections, disputed, c)
	return r, err
}

// addRows adds what a store adds to a batch: counters are there before a command counts, and so is the row that is to
// be reversed.
func (m *machine) addRows(keys *RowKeys) {
	for _, e := range m.s.Changes.Entries {
		if !keys.Entries[e.ID] {
			continue
		}
		if keys.AddOriginal(&e); m.s.originals[e.ID] == nil {
			m.s.AddOriginal(e, false)
		}
	}
	for id := range m.s.children {
		keys.AddBudget(id)
	}
	for subject, width := range keys.Counters {
		if m.s.Counters[subject] == nil {
			m.s.Counters[subject] = &Counter{Spent: limits.Series{Width: width}}
		}
	}
}

// digest is everything that a refused command must leave as it was.
func (s *State) digest() string {
	out := fmt.Sprint(len(s.Changes.Entries), len(s.Changes.Events), len(s.Changes.Responses), len(s.requests.byID),
		len(s.Changes.AllocationRequests), len(s.Changes.GoodwillRecords), len(s.goodwill),
		len(s.Changes.CallRefunds), len(s.Changes.Children), len(s.Changes.MarginRecords), len(s.Changes.Freezes),
		len(s.Changes.PaymentRecords),
		len(s.Changes.EndedFreezes), len(s.disputes))
	for _, id := range slices.Sorted(maps.Keys(s.children)) {
		out += fmt.Sprint(s.children[id].EndedUS != nil, s.Counters[ChildSubject(id)].BudgetMC())
	}
	for _, id := range slices.Sorted(maps.Keys(s.Balances)) {
		out += fmt.Sprint(*s.Balances[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.Connections)) {
		out += fmt.Sprint(*s.Connections[id])
	}
	for k, h := range s.Holds {
		if h != nil && h.State != Failed {
			out += fmt.Sprint(len(k.Key), h.State, h.HoldMC)
		}
	}
	return fmt.Sprint(len(out), sumOf(out))
}

func sumOf(s string) (n int) {
	for _, c := range []byte(s) {
		n += int(c) * int(c)
	}
	return n
}

// testAccount is the one account with money that is not real. Only app s takes it.
const testAccount = "T"

func (m *machine) topUp(t *rapid.T) {
	account := rapid.SampledFrom([]string{"A", "B", testAccount}).Draw(t, "account")
	_, _ = m.do(t, TopUp{
		AccountID: account,
		Sandbox:   account == testAccount,
		AmountMC:  money.MC(rapid.Int64Range(-5, 2000).Draw(t, "amount")),
	})
}

// giveGoodwill gives a goodwill credit, or sends one again.
func (m *machine) giveGoodwill(t *rapid.T) {
	c := GiveGoodwill{
		GoodwillID: fmt.Sprint("g", rapid.IntRange(1, 6).Draw(t, "goodwill")),
		AccountID:  rapid.SampledFrom([]string{"A", "B", testAccount}).Draw(t, "account"),
		AmountMC:   money.MC(rapid.Int64Range(-1, 300).Draw(t, "amount")),
		Reason:     rapid.SampledFrom([]string{"", "sorry", "outage"}).Draw(t, "reason"),
	}
	if c.AccountID == testAccount && m.s.Balances[testAccount] == nil {
		t.Skip("the account has no fake money yet")
	}
	before := m.s.goodwill[c.GoodwillID]
	if before != nil && rapid.Bool().Draw(t, "again") {
		c.AccountID, c.AmountMC, c.Reason = before.AccountID, before.AmountMC, before.Reason
	}
	rows := len(m.s.Changes.Entries)
	r, err := m.do(t, c)
	switch same := before != nil && before.AccountID == c.AccountID && before.AmountMC == c.AmountMC &&
		before.Reason == c.Reason; {
	case before != nil && (err == nil) != same, before == nil && err == nil && c.AccountID == testAccount:
		t.Fatalf("%+v after %+v: %+v, %v", c, before, r, err)
	case same:
		m.seen["goodwill again"]++
		if r.Outcome != Done || len(m.s.Changes.Entries) != rows {
			t.Fatalf("%+v was given twice: %+v", c, r)
		}
	case err == nil:
		m.seen["goodwill"]++
	}
}

func (m *machine) withdrawGoodwill(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.s.goodwill))
	if len(ids) == 0 {
		t.Skip("no goodwill credit yet")
	}
	c := WithdrawGoodwill{GoodwillID: rapid.SampledFrom(ids).Draw(t, "goodwill"), Reason: "mistake"}
	g := m.s.goodwill[c.GoodwillID]
	rest, available := g.RestMC(), m.s.Balances[g.AccountID].AvailableMC
	r, err := m.do(t, c)
	switch {
	case rest == 0 && (err != nil || r.Outcome != Done), rest > 0 && (err == nil) != (available > 0),
		err == nil && rest > 0 && -r.Entry.AvailableDeltaMC != min(rest, available):
		t.Fatalf("of %d with %d available: %+v, %v", rest, available, r, err)
	case err != nil:
		m.seen["nothing to withdraw"]++
	case rest > available:
		m.seen["withdrawn in part"]++
	case rest > 0:
		m.seen["withdrawn"]++
	}
}

// goodwill checks that each goodwill credit is the fold of its records, and each record has its ledger row.
func (m *machine) goodwill(t *rapid.T) {
	rows, payments := map[string]Entry{}, m.paymentRows()
	for _, e := range m.s.Changes.Entries {
		if e.Type == EntryTopUp && e.Reason != "" && e.AmountMC > 0 && !payments[e.ID] {
			rows[e.ID] = e
		}
	}
	given, withdrawn, n := map[string]money.MC{}, map[string]money.MC{}, map[string]int64{}
	for _, r := range m.s.Changes.GoodwillRecords {
		e, ok := rows[r.EntryID]
		if n[r.GoodwillID]++; !ok || r.N != n[r.GoodwillID] || e.AccountID != r.AccountID ||
			e.AmountMC != r.AmountMC || e.Reason != r.Reason {
			t.Fatalf("I30: record %+v has the row %+v", r, e)
		}
		delete(rows, r.EntryID)
		if sign := money.MC(1 - 2*intOf(r.Kind == goodwillWithdrawn)); e.AvailableDeltaMC != sign*r.AmountMC {
			t.Fatalf("I30: record %+v has the row %+v", r, e)
		}
		if r.Kind == goodwillGiven {
			given[r.GoodwillID] += r.AmountMC
		} else {
			withdrawn[r.GoodwillID] += r.AmountMC
		}
	}
	if len(rows) > 0 {
		t.Fatalf("I30: rows without a record: %+v", rows)
	}
	for id, g := range m.s.goodwill {
		if g.AmountMC != given[id] || g.WithdrawnMC != withdrawn[id] || g.RestMC() < 0 {
			t.Fatalf("I30: %+v, given %d, withdrawn %d", g, given[id], withdrawn[id])
		}
	}
}

func (m *machine) connect(t *rapid.T) {
	m.n++
	c := Connect{
		ConnectionID: fmt.Sprint("C", m.n),
		AppID:        rapid.SampledFrom([]string{"p", "q"}).Draw(t, "app"),
		AccountID:    rapid.SampledFrom([]string{"A", "B"}).Draw(t, "account"),
		RequestedMC:  money.MC(rapid.Int64Range(-5, 800).Draw(t, "requested")),
	}
	if c.AppID == "s" {
		c.AccountID, c.Sandbox = testAccount, true
	}
	if rapid.Bool().Draw(t, "daily") {
		v := money.MC(rapid.Int64Range(0, 400).Draw(t, "velocity"))
		c.VelocityLimitMC = &v
	}
	if m.tier[c.AppID] == "" && rapid.Bool().Draw(t, "bounded") {
		c.MaxMC = tierCap
	}
	var before *Connection
	if live := m.s.live[AppAccount{c.AppID, c.AccountID}]; live != "" {
		copied := *m.s.Connections[live]
		before = &copied
	}
	events := len(m.s.Changes.Events)
	if r, err := m.do(t, c); err == nil {
		m.bounded(t, r.Connection, c.MaxMC)
		if before != nil {
			m.reported(t, before, m.s.Changes.Events[events:])
		}
	}
}

// reported checks the events of a command by which a user changed limits of a connection.
func (m *machine) reported(t *rapid.T, before *Connection, events []Event) {
	after, count := m.s.Connections[before.ID], map[string]int64{}
	for _, e := range events {
		count[e.Type]++
	}
	text := func(c *Connection) string {
		if c.VelocityLimitMC == nil {
			return fmt.Sprint(c.AllocationMC)
		}
		return fmt.Sprint(c.AllocationMC, *c.VelocityLimitMC)
	}
	exhausted := before.EffectiveStatus() == "active" && after.EffectiveStatus() == "exhausted"
	if count["connection.updated"] != intOf(text(before) != text(after)) ||
		count["connection.exhausted"] != intOf(exhausted) {
		t.Fatalf("I28: from %s to %s: %v", text(before), text(after), count)
	}
	m.seen["updated"] += int(count["connection.updated"])
	m.seen["exhausted by the cap"] += int(count["connection.exhausted"])
	m.seen["met request"] += int(count["allocation_change.approved"])
}

// bounded checks that a tier's bound of an allocation was kept: only what is spent or
// held already may be more.
func (m *machine) bounded(t *rapid.T, c Connection, most money.MC) {
	if most > 0 && c.AllocationMC > max(most, c.CommittedMC()) {
		t.Fatalf("the tier allows %d, allocated are %d of %+v", most, c.AllocationMC, c)
	}
}

// What the model's limited-live tier allows.
const (
	appDay        = 90
	connectionDay = 60
	tierCap       = 50
	rateOf        = 3
)

// promote gives a limited-live app the full tier. Tiers never fall.
func (m *machine) promote(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("limits are more worth a test than none")
	}
	m.tier[rapid.SampledFrom([]string{"p", "q"}).Draw(t, "app")] = "full"
}

// velocity changes the user's own limit.
func (m *machine) velocity(t *rapid.T) {
	c := SetVelocityLimit{ConnectionID: m.connection(t).ID}
	if rapid.Bool().Draw(t, "some") {
		v := money.MC(rapid.Int64Range(-1, 400).Draw(t, "velocity"))
		c.LimitMC = &v
	}
	before, events := *m.s.Connections[c.ConnectionID], len(m.s.Changes.Events)
	if _, err := m.do(t, c); err == nil {
		m.reported(t, &before, m.s.Changes.Events[events:])
	}
}

func (m *machine) connection(t *rapid.T) *Connection {
	ids := slices.Sorted(maps.Keys(m.s.Connections))
	if len(ids) == 0 {
		t.Skip("no connection yet")
	}
	return m.s.Connections[rapid.SampledFrom(ids).Draw(t, "connection")]
}

func (m *machine) hold(t *rapid.T) {
	c := m.connection(t)
	m.n++
	h := Hold{Claim: fmt.Sprint("claim", m.n),
		Call: Call{
			ConnectionID: c.ID,
			AccountID:    c.AccountID,
			AppID:        c.AppID,
			Key:          fmt.Sprint("k", m.n),
			RequestID:    fmt.Sprint("req_", m.n),
			Fingerprint:  "f",
			Model:        "m",
			Terms:        "{}",
			HoldMC: money.MC(rapid.Int64Range(1, rapid.SampledFrom([]int64{20, 60, 150}).Draw(t, "size")).Draw(t,
				"hold")),
		}}
	if children := m.s.liveChildren(c.ID); len(children) > 0 && rapid.Bool().Draw(t, "by a child") {
		h.ChildID = rapid.SampledFrom(children).Draw(t, "child").ID
		h.Key = ChildKey(h.ChildID, h.Key)
	}
	if rapid.Bool().Draw(t, "rate") {
		h.Limits = []limits.Limit{{
			Subject: "rate/" + c.AppID + "/" + c.AccountID,
			Window:  time.Minute,
			Max:     rateOf,
			Code:    apierr.RateLimited,
		}}
	}
	if tier := m.tier[c.AppID]; tier == "sandbox" {
		h.Limits = append(h.Limits, limits.Limit{
			Subject: "live/dev",
			Unit:    limits.Cost,
			Window:  VelocityWindow,
			Max:     25,
			Code:    apierr.SandboxLiveCostLimited,
		})
		h.CostMC, h.HasProviderKey = h.HoldMC/2+1, rapid.Bool().Draw(t, "own key")
	} else {
		if tier == "" {
			h.Limits = append(h.Limits, limits.Limit{
				Subject: tiers.UserSpendSubject(c.AppID, c.AccountID),
				Unit:    limits.Spend,
				Window:  VelocityWindow,
				Max:     connectionDay,
				Code:    apierr.DailyLimitReached,
				Owner:   "the tier",
			},
				limits.Limit{
					Subject: "spend/" + c.AppID,
					Unit:    limits.Spend,
					Window:  VelocityWindow,
					Max:     appDay,
					Code:    apierr.AppSpendLimited,
					Event:   "app.spend_limit_reached",
				})
			h.MaxCapMC = tierCap
		}
		h.Risk = &limits.RiskThresholds{FloorMC: 5, Warn: 5, Throttle: 10, Freeze: 20}
		if rapid.IntRange(0, 4).Draw(t, "free") == 0 {
			pool, onApp, onAll := FreeCreditSubjects(c.AppID, c.AccountID, m.now)
			h.FreeCredit = &FreeCreditHold{
				Terms:  "{}",
				HoldMC: h.HoldMC/2 + 1,
				Limits: []limits.Limit{
					{Subject: pool, Unit: limits.Spend, Max: 100},
					{Subject: onApp, Unit: limits.Spend, Max: 80},
					{Subject: onAll, Unit: limits.Spend, Max: 90},
				},
			}
		}
	}
	if h.FreeCredit == nil && rapid.IntRange(0, 3).Draw(t, "own work") == 0 {
		h.Pending = "app"
	} else if rapid.Bool().Draw(t, "caps") {
		h = withOutput(t, h)
	}
	m.try(t, h)
}

// withOutput gives a call an output cap, of which each token costs the wallet two and the
// provider one.
func withOutput(t *rapid.T, h Hold) Hold {
	input := money.MC(rapid.Int64Range(0, 20).Draw(t, "input"))
	h.Output = &OutputCap{
		MaxTokens: rapid.Int64Range(1, 100).Draw(t, "max"),
		MinTokens: rapid.Int64Range(0, 30).Draw(t, "min"),
		Price: func(n int64) (money.MC, money.MC, error) {
			return 2*input + 2*money.MC(n), input + money.MC(n), nil
		},
		Terms: func(n int64, paidBy string) string { return fmt.Sprintf(`{"max_tokens":%d,"by":%q}`, n, paidBy) },
	}
	if h.Output.MinTokens > h.Output.MaxTokens {
		h.Output.MinTokens = h.Output.MaxTokens
	}
	h, _ = h.withCap(h.Output.MaxTokens)
	return h
}

// lowered checks that a hold's amounts and terms are those of the cap that it has, and that the
// same claim finds the same call.
func (m *machine) lowered(t *rapid.T, h Hold, r Result) {
	holdMC, costMC, _ := h.Output.Price(r.MaxTokens)
	if r.Call.PaidBy == PaidByFreeCredit {
		holdMC = costMC
	}
	again, err := m.do(t, h)
	if r.Call.HoldMC != holdMC || err != nil || again.MaxTokens != r.MaxTokens || again.Call.Terms != r.Call.Terms ||
		again.Call.HoldMC != r.Call.HoldMC {
		t.Fatalf("%+v is held as %+v and then as %+v, %v", h.Output, r, again, err)
	}
	if r.MaxTokens == h.Output.MaxTokens {
		return
	}
	if h.Output.MinTokens == 0 || r.MaxTokens < h.Output.MinTokens ||
		r.Call.Terms != h.Output.Terms(r.MaxTokens, r.Call.PaidBy) {
		t.Fatalf("%+v is held as %+v", h.Output, r)
	}
	m.seen["lowered"]++
	m.seen["lowered free"] += int(intOf(r.Call.PaidBy == PaidByFreeCredit))
}

// holdAgain sends a key once more: with its body or another's, as a new request.
func (m *machine) holdAgain(t *rapid.T) {
	h := m.old(t)
	m.n++
	h.Claim, h.RequestID = fmt.Sprint("claim", m.n), fmt.Sprint("req_", m.n)
	if rapid.IntRange(0, 3).Draw(t, "body") == 0 {
		h.Fingerprint = "other"
	}
	m.try(t, h)
}

func (m *machine) old(t *rapid.T) Hold {
	if len(m.calls) == 0 {
		t.Skip("no call yet")
	}
	return rapid.SampledFrom(m.calls).Draw(t, "call")
}

func (m *machine) try(t *rapid.T, h Hold) {
	if h.Output != nil { // an earlier attempt may have been lowered
		h, _ = h.withCap(h.Output.MaxTokens)
	}
	if m.tier[h.AppID] == "full" { // the limits are those of the present tier
		h.MaxCapMC = 0
		h.Limits = slices.DeleteFunc(slices.Clone(h.Limits), func(l limits.Limit) bool {
			return l.Unit != limits.Calls
		})
	}
	exhausted := m.s.Connections[h.ConnectionID].EffectiveStatus() == "exhausted"
	r, err := m.do(t, h)
	var e *apierr.Error
	isError := errors.As(err, &e)
	if exhausted && (err == nil && r.Outcome == Applied || isError && e.Code.Status == 429) {
		t.Fatalf("an exhausted connection answers %+v, %v", r, err)
	}
	if isError {
		if exhausted && e.Code == apierr.AllocationExhausted {
			m.seen["refused exhausted"]++
		}
		path := map[string]string{
			"app_spend_limited":         "app limited",
			"sandbox_live_cost_limited": "cost limited",
			"risk_throttled":            "throttled",
			"rate_limited":              "rate limited",
		}[e.Code.Name]
		switch conn := m.s.Connections[h.ConnectionID]; {
		case e.Code == apierr.DailyLimitReached && strings.HasPrefix(e.Message, "the user"):
			path = "velocity limited"
		case e.Code == apierr.DailyLimitReached:
			path = "day limited"
		case e.Code == apierr.AllocationExhausted && h.ChildID != "":
			path = "child full"
		case e.Code == apierr.AllocationExhausted && h.HoldMC <= conn.RemainingMC():
			path = "tier capped"
		}
		m.seen[path]++
		switch fits, named := e.Details["max_tokens_that_fit"].(int64); {
		case h.Output == nil || h.Output.MinTokens == 0:
			m.waits(t, h, e)
		case named && fits >= h.Output.MinTokens:
			t.Fatalf("refused with %+v, though %d tokens fit: %v", h.Output, fits, e)
		case named:
			m.seen["too small to lower"]++
		}
	}
	if err != nil {
		return
	}
	if r.Outcome == Applied {
		m.admitted(t, h, r)
	}
	switch r.Outcome {
	case Running:
		m.seen["running"]++
	case Done:
		m.seen["done"]++
	case Waiting:
		m.seen["pending waited for"]++
	case Applied:
		if h.Output != nil {
			m.lowered(t, h, r)
		}
		h.Call = r.Call
		m.number[h.key()] = r.Attempt
		m.held[attemptOf{h.key(), r.Attempt}] = r.Call
		m.calls = append(m.calls, h)
	}
}

// waits checks that Retry-After is exact: the same call is refused for the same reason
// an instant before, unless something else is in its way, and not when it is over.
func (m *machine) waits(t *rapid.T, h Hold, e *apierr.Error) {
	if e.Code != apierr.DailyLimitReached && e.Code != apierr.AppSpendLimited &&
		e.Code != apierr.SandboxLiveCostLimited && e.Code != apierr.RateLimited || e.RetryAfter <= time.Second ||
		e.RetryAfter == VelocityWindow {
		return // in flight, or larger than the limit
	}
	for _, l := range m.windows(h) {
		if l.Code != e.Code || l.Owner != "" && !strings.HasPrefix(e.Message, l.Owner) {
			continue
		}
		for _, at := range []time.Time{m.now.Add(e.RetryAfter - time.Microsecond), m.now.Add(e.RetryAfter)} {
			over := m.settled(l, at)+int64(m.need(h, l)) > l.Max
			if over && !at.Before(m.now.Add(e.RetryAfter)) {
				t.Fatalf("%v: settled %d, need %d of %d at the end of %s", e, m.settled(l, at), m.need(h, l), l.Max,
					e.RetryAfter)
			}
			// Buckets leave as a whole, ten minutes later at most.
			if !over && at.Before(m.now.Add(e.RetryAfter)) &&
				m.settled(l, at.Add(-l.Unit.BucketWidth(l.Window)))+int64(m.need(h, l)) <= l.Max {
				t.Fatalf("%v: it could have passed a bucket earlier than in %s", e, e.RetryAfter)
			}
		}
	}
}

// windows are a call's limits, the user's own included.
func (m *machine) windows(h Hold) []limits.Limit {
	list := slices.Clone(h.Limits)
	if v := m.s.Connections[h.ConnectionID].VelocityLimitMC; v != nil {
		list = append(list, limits.Limit{
			Subject: h.ConnectionID,
			Unit:    limits.Spend,
			Window:  VelocityWindow,
			Max:     int64(*v),
			Code:    apierr.DailyLimitReached,
			Owner:   "the user",
		})
	}
	return list
}

func (m *machine) need(h Hold, l limits.Limit) money.MC {
	switch l.Unit {
	case limits.Calls:
		return 1
	case limits.Cost:
		return h.CostMC
	}
	return h.HoldMC
}

// settled is what calls have left in a limit's window that ends at that time, to the instant.
func (m *machine) settled(l limits.Limit, at time.Time) (sum int64) {
	inside := func(then time.Time) bool { return l.Window == 0 || then.Add(l.Window).After(at) }
	if l.Unit == limits.Calls {
		for _, then := range m.calling[l.Subject] {
			sum += intOf(inside(then))
		}
		return sum
	}
	for _, c := range m.counted {
		if c.Subject == l.Subject && inside(c.at) {
			sum += int64(c.spent)
		}
	}
	return sum
}

// admitted checks what a new hold says of who pays, and the windows of I17 and I25
// from the rows: what is settled within them and what is held.
func (m *machine) admitted(t *rapid.T, h Hold, r Result) {
	for _, l := range h.Limits {
		if l.Unit != limits.Calls {
			continue
		}
		m.calling[l.Subject] = append(m.calling[l.Subject], m.now)
		if n := m.settled(l, m.now); n > l.Max {
			t.Fatalf("%s let %d calls pass of %d", l.Subject, n, l.Max)
		}
	}
	switch {
	case r.Call.PaidBy == PaidByFreeCredit:
		m.seen["free"]++
		if m.s.Counters[freeCreditOf(h.AccountID)].LimitReported {
			t.Fatalf("free credit of %s has ended: %+v", h.AccountID, r)
		}
		for _, l := range h.FreeCredit.Limits {
			if used := m.used(l); used > l.Max {
				t.Fatalf("I17: %s is at %d of %d", l.Subject, used, l.Max)
			}
		}
		return
	case h.FreeCredit != nil && m.s.Counters[freeCreditOf(h.AccountID)].LimitReported:
		m.seen["free ended"]++
	case h.FreeCredit != nil:
		m.seen["free was full"]++
	}
	if r.UseProviderKey {
		m.seen["own key"]++
	}
	for _, l := range m.windows(h) {
		if l.Unit == limits.Calls || l.Unit == limits.Cost && r.UseProviderKey {
			continue
		}
		if used := m.used(l); used > l.Max {
			t.Fatalf("I25: %s is at %d of %d", l.Subject, used, l.Max)
		}
	}
	if c := r.Connection; h.MaxCapMC > 0 && c.ConsumedMC+c.HeldMC > h.MaxCapMC {
		t.Fatalf("the tier lets a connection spend %d: %+v", h.MaxCapMC, c)
	}
	if m.tier[h.AppID] == "full" &&
		m.used(limits.Limit{Subject: h.ConnectionID, Unit: limits.Spend, Window: VelocityWindow}) > connectionDay {
		m.seen["promoted"]++
	}
}

// endFreeCredit ends the free credit of an account, now and then.
func (m *machine) endFreeCredit(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
		t.Skip("most accounts keep it")
	}
	account := m.connection(t).AccountID
	counter := m.s.Counters[freeCreditOf(account)]
	again := counter != nil && counter.LimitReported
	if r, err := m.do(t, EndFreeCredit{account}); err != nil || (r.Outcome == Done) != again ||
		!m.s.Counters[freeCreditOf(account)].LimitReported {
		t.Fatalf("the end of the free credit of %s: %+v, %v", account, r, err)
	}
}

// used is what a window holds: of calls in flight, and settled to the instant.
func (m *machine) used(l limits.Limit) int64 {
	sum := m.settled(l, m.now)
	for _, h := range m.s.Holds {
		if h.HoldsMoney() {
			h.EachHeldAmount(func(id string, amount money.MC) { sum += int64(amount) * intOf(id == l.Subject) })
		}
	}
	return sum
}

// counted is what a settled call has left in a counter.
type counted struct {
	Reservation
	spent    money.MC
	at       time.Time
	entry    string // its ledger row
	forgiven bool   // its connection was resumed since
}

// inBucket returns what a window of buckets counts of subject: a bucket counts until its end has
// left.
func (m *machine) inBucket(subject string, width, window time.Duration, forgiven bool) (sum int64) {
	for _, c := range m.counted {
		if c.Subject == subject && (forgiven || !c.forgiven) &&
			c.at.Truncate(width).Add(width+window).After(m.now) {
			sum += int64(c.spent)
		}
	}
	return sum
}

// remember notes what a settlement should have counted.
func (m *machine) remember(h Hold, r Result) {
	for _, n := range h.Reservations {
		spent := r.Entry.UserChargeMC
		if n.Unit == limits.Cost {
			spent = r.Entry.ProviderCostMC
		}
		m.counted = append(m.counted, counted{Reservation: n, spent: spent, at: m.now, entry: r.Entry.ID})
	}
	if r.Entry.PaidBy == PaidByFreeCredit {
		m.seen["free settled"]++
		if h.ChildID != "" {
			m.seen["child free"]++
			m.seen["child free capped"] += int(intOf(r.Shortfall > 0))
		}
		return
	}
	m.counted = append(m.counted, counted{
		Reservation: Reservation{h.ConnectionID, limits.Spend, VelocityWindow, h.HoldMC},
		spent:       r.Entry.UserChargeMC,
		at:          m.now,
		entry:       r.Entry.ID,
	})
}

// counters checks that each holds what the holds say, and has counted what was
// settled.
func (m *machine) counters(t *rapid.T) {
	for subject, c := range m.s.Counters {
		var held, spent int64
		for _, h := range m.s.Holds {
			if h.HoldsMoney() {
				for _, n := range h.Reservations {
					held += int64(n.AmountMC) * intOf(n.Subject == subject)
				}
			}
		}
		for _, n := range m.counted {
			spent += int64(n.spent) * intOf(n.Subject == subject)
		}
		if int64(c.HeldMC) != held {
			t.Fatalf("I25: %s holds %d, its holds %d", subject, c.HeldMC, held)
		}
		if c.Spent.Width == 0 && !isBudget(subject) && c.Spent.Sum(m.now, 0) != spent {
			t.Fatalf("I17: %s counts %d, rows %d", subject, c.Spent.Sum(m.now, 0), spent)
		}
		app, isSpend := strings.CutPrefix(subject, "spend/")
		app, _, _ = strings.Cut(app, "/")
		if width := c.Spent.Width; width == limits.SpendBucketWidth && !(isSpend && m.tier[app] == "full") {
			if got, want := c.Spent.Sum(m.now, VelocityWindow),
				m.inBucket(subject, width, VelocityWindow, true); got != want {
				t.Fatalf("I25: %s counts %d, rows %d", subject, got, want)
			}
		}
	}
	for _, c := range m.s.Connections {
		width := limits.SpendBucketWidth
		if got, want := c.Spent.Sum(m.now, VelocityWindow),
			m.inBucket(c.ID, width, VelocityWindow, true); got != want {
			t.Fatalf("I25: %s counts %d, rows %d", c.ID, got, want)
		}
		got, want := c.RiskSpend().Sum(m.now, limits.RiskWindow), m.inBucket(c.ID, width, limits.RiskWindow, false)
		if got > want || got != want && !m.lenient[c.ID] {
			t.Fatalf("%s: the risk thresholds compare %d, spent since the resume are %d", c.ID, got, want)
		}
	}
}

// dailyTotals checks that the totals of each day are the sums of its rows.
func (m *machine) dailyTotals(t *rapid.T) {
	left := map[DailyTotalsKey]DailyTotalsDelta{}
	for k, d := range m.s.Changes.DailyTotals {
		left[k] = *d
	}
	for i := range m.s.Changes.Entries {
		e := &m.s.Changes.Entries[i]
		if e.Type != EntrySpend {
			continue
		}
		k := DailyTotalsKey{e.ConnectionID, time.UnixMicro(e.CreatedUS).UTC().Format(time.DateOnly), "", e.Model}
		d := left[k]
		settled := intOf(e.Status == "settled")
		d.Calls, d.Amounts = d.Calls-settled, d.plus(e.Amounts, 1-2*settled)
		left[k] = d
	}
	for k, d := range left {
		if d.Calls != 0 || d.Amounts != (Amounts{}) {
			t.Fatalf("the totals of %+v differ from its rows by %+v", k, d)
		}
	}
}

func (m *machine) settle(t *rapid.T) {
	h := m.old(t)
	cost := money.MC(rapid.Int64Range(0, 400).Draw(t, "cost"))
	fee := money.MC(rapid.Int64Range(0, 20).Draw(t, "fee"))
	attempt := m.ending(t, &h)
	pending, ownWork := m.state(h) == Pending, h.Pending != ""
	charge := Amounts{cost, fee, cost / 10, cost + fee + cost/10}
	if ownWork {
		charged := money.MC(rapid.Int64Range(1, int64(h.HoldMC)).Draw(t, "captured"))
		charge = Amounts{0, charged / 20, charged - charged/20, charged}
	}
	var waiver *Waiver
	if !ownWork && rapid.IntRange(0, 7).Draw(t, "empty") == 0 {
		day := cost + money.MC(rapid.Int64Range(-10, 40).Draw(t, "free of a day"))
		waiver = &Waiver{DayMC: day, Usage: Usage{JSON: "{" + WaivedEmpty + "}"}}
	}
	waived := m.inBucket(WaiverSubject(h.AppID, h.AccountID), limits.SpendBucketWidth, waiverWindow, true)
	responses := len(m.s.Changes.Responses)
	r, err := m.do(t, Settle{
		Call:       h.Call,
		Attempt:    attempt,
		Waiver:     waiver,
		Settlement: Settled,
		Charge:     charge,
		Held:       ownWork,
		Usage:      Usage{JSON: "{}"},
		Response:   &StoredResponse{Encoding: "raw"},
		Risk:       h.Risk,
		Receipt:    func(e *Entry) (string, error) { return fmt.Sprintf(`{"id":%q}`, e.RequestID()), nil },
	})
	if err != nil {
		t.Fatalf("a settlement never fails: %v", err)
	}
	if r.Outcome == Applied {
		m.remember(h, r)
	}
	if stored := len(m.s.Changes.Responses) > responses; stored != (r.Outcome == Applied && !r.WasPending) {
		t.Fatalf("the response is stored: %t; %+v", stored, r)
	}
	switch {
	case !ownWork:
	case (r.Outcome == Applied) != pending || r.Shortfall != 0 || r.HoldExpired:
		t.Fatalf("own work is captured: %+v, its hold was %t", r, pending)
	case pending:
		m.seen["own work"]++
	case r.Outcome == Fenced:
		m.seen["own work too late"]++
	}
	if r.Outcome == Applied {
		m.checkWaiver(t, waiver, waived, r)
	}
	if h.Risk != nil && r.Connection.Status == Frozen {
		m.seen["frozen by pace"]++
	}
	if pending && r.Outcome == Applied {
		m.seen["pending settled"]++
		m.told = append(m.told, `{"request":{"id":"`+h.RequestID+`"}}`)
	}
	if r.Outcome == Fenced {
		m.seen["fenced"]++
	}
	if r.HoldExpired {
		m.seen["late"]++
	}
	if r.Shortfall > 0 {
		m.seen["shortfall"]++
	}
	if r.Connection.EffectiveStatus() == "exhausted" {
		m.seen["exhausted"]++
	}
}

// checkWaiver checks that an empty answer is free exactly within the amount of a day, of which some is used, and that
// the service's fee bears it (decision 112; I-36).
func (m *machine) checkWaiver(t *rapid.T, waiver *Waiver, used int64, r Result) {
	e := r.Entry
	free := waiver != nil && e.PaidBy == PaidByWallet && used+int64(e.ProviderCostMC) <= int64(waiver.DayMC)
	if r.Waived != free || e.IsWaived() != free ||
		free && e.Amounts != (Amounts{ProviderCostMC: e.ProviderCostMC, SvcFeeMC: -e.ProviderCostMC}) {
		t.Fatalf("waiver %+v with %d used: waived %t, %+v", waiver, used, r.Waived, e)
	}
	if free {
		m.seen["waived"]++
		m.counted = append(m.counted, counted{
			Reservation: Reservation{WaiverSubject(e.AppID, e.AccountID), limits.Cost, waiverWindow, 0},
			spent:       e.ProviderCostMC,
			at:          m.now,
			entry:       e.ID,
		})
	}
}

func (m *machine) state(h Hold) HoldState {
	if row := m.s.Holds[h.key()]; row != nil {
		return row.State
	}
	return ""
}

// deferCall leaves an answered call pending.
func (m *machine) deferCall(t *rapid.T) {
	h := m.old(t)
	before, held := m.state(h), m.s.Connections[h.ConnectionID].HeldMC
	attempt, responses := m.ending(t, &h), len(m.s.Changes.Responses)
	r, err := m.do(t, Defer{
		Call:     h.Call,
		Attempt:  attempt,
		Provider: "openai",
		Response: &StoredResponse{Encoding: "raw"},
	})
	switch {
	case err != nil:
		t.Fatalf("a deferral never fails: %v", err)
	case (r.Outcome == Applied) != ((before == Open || before == Pending) && attempt == m.number[h.key()]):
		t.Fatalf("a deferral of attempt %d of an %q hold: %+v", attempt, before, r)
	case m.s.Connections[h.ConnectionID].HeldMC != held:
		t.Fatalf("a deferral moved what is held from %d to %d", held, m.s.Connections[h.ConnectionID].HeldMC)
	case (len(m.s.Changes.Responses) > responses) != (r.Outcome == Applied && before == Open):
		t.Fatalf("a deferral of an %q hold stored %d responses", before, len(m.s.Changes.Responses)-responses)
	case r.Outcome == Fenced && before == Failed:
		m.seen["deferred late"]++
	case r.Outcome == Applied && before == Open:
		m.seen["pending"]++
	}
}

func (m *machine) release(t *rapid.T) {
	h := m.old(t)
	attempt := m.ending(t, &h)
	pending, open := m.state(h) == Pending, m.state(h) == Open && attempt == m.number[h.key()]
	unbilled := m.drawUnbilled(t, &h, attempt)
	used := m.inBucket(UnbilledSubject(h.AppID, h.AccountID), limits.SpendBucketWidth, unbilledWindow, true)
	r, err := m.do(t, Release{Call: h.Call, Attempt: attempt, Pending: h.Pending != "", Unbilled: unbilled})
	if err != nil {
		t.Fatalf("a release never fails: %v", err)
	}
	if open && unbilled != nil {
		m.checkUnbilled(t, &h, unbilled, used, r)
	}
	if h.Pending != "" && pending && r.Outcome == Applied {
		m.seen["own work released"]++
	}
	if rapid.Bool().Draw(t, "retry") { // the client tries again with its key
		m.n++
		h.Claim = fmt.Sprint("claim", m.n)
		m.try(t, h)
	}
}

// drawUnbilled draws what an attempt has cost that is to be released, and whether its client has ended it.
func (m *machine) drawUnbilled(t *rapid.T, h *Hold, attempt int64) *Unbilled {
	if h.Pending != "" || rapid.Bool().Draw(t, "unasked") {
		return nil
	}
	cost := money.MC(rapid.Int64Range(0, 60).Draw(t, "unbilled"))
	u := &Unbilled{CostMC: cost, DayMC: money.MC(rapid.Int64Range(0, 100).Draw(t, "unbilled of a day"))}
	if rapid.Bool().Draw(t, "left") {
		charge := min(cost+cost/10, h.HoldMC)
		u.Estimate = &Settle{
			Call:       h.Call,
			Attempt:    attempt,
			Settlement: Estimated,
			Charge:     Amounts{cost, charge - cost - cost/10, cost / 10, charge},
			Usage:      Usage{JSON: "{}"},
			Risk:       h.Risk,
		}
	}
	return u
}

// checkUnbilled checks that an attempt that costs something is charged exactly if its client has ended it and the day,
// of which some is used, has no room for it, and that it counts otherwise (decision 133; I-38).
func (m *machine) checkUnbilled(t *rapid.T, h *Hold, u *Unbilled, used int64, r Result) {
	charged := u.Estimate != nil && used+int64(u.CostMC) > int64(u.DayMC)
	if r.Outcome != Applied || r.Estimated != charged || charged != (r.Entry.Type == EntrySpend) {
		t.Fatalf("%+v with %d used: %+v", u, used, r)
	}
	if charged {
		m.seen["left and charged"]++
		m.remember(*h, r)
		return
	}
	m.seen["unbilled"]++
	reservations := append(Reservations{{UnbilledSubject(h.AppID, h.AccountID), limits.Cost, unbilledWindow, 0}},
		h.Reservations...)
	for _, n := range reservations {
		if n.Unit == limits.Cost {
			m.counted = append(m.counted, counted{Reservation: n, spent: u.CostMC, at: m.now})
		}
	}
}

func (m *machine) cap(t *rapid.T) {
	c := m.connection(t)
	target := money.MC(rapid.Int64Range(-2, 900).Draw(t, "target"))
	change, before := ChangeCap{ConnectionID: c.ID, TargetMC: target}, c.AllocationMC
	if m.tier[c.AppID] == "" && rapid.Bool().Draw(t, "bounded") {
		change.MaxMC = tierCap
	}
	was, events := *c, len(m.s.Changes.Events)
	r, err := m.do(t, change)
	if err == nil {
		m.reported(t, &was, m.s.Changes.Events[events:])
	}
	if err == nil && r.Connection.AllocationMC > target {
		m.seen["clamped cap"]++
	}
	if err == nil && r.Connection.AllocationMC > before {
		m.bounded(t, r.Connection, change.MaxMC)
	}
}

func (m *machine) revoke(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("a revoked connection is dull")
	}
	c := m.connection(t)
	if c.HeldMC > 0 && c.Status != Revoked {
		m.seen["revoked with holds"]++
	}
	for k, h := range m.s.Holds {
		if k.ConnectionID == c.ID && h != nil && h.State == Pending && c.Status != Revoked {
			m.seen["revoked with pending"]++
		}
	}
	if m.s.requests.pending[c.ID] != nil {
		m.seen["denied by revoke"]++
	}
	_, _ = m.do(t, Revoke{ConnectionID: c.ID, StopCalls: rapid.Bool().Draw(t, "stop calls")})
}

// forgive notes that a connection was resumed.
func (m *machine) forgive(connectionID string) {
	if m.s.Connections[connectionID].Forgiven.Sum(m.now, limits.RiskWindow) > 0 {
		m.seen["forgiven"]++
	}
	delete(m.lenient, connectionID)
	for i := range m.counted {
		if m.counted[i].Subject == connectionID {
			m.counted[i].forgiven = true
		}
	}
}

func (m *machine) reverse(t *rapid.T) {
	h := m.old(t)
	entry, inWindow := "led_"+h.RequestID[4:], m.s.Connections[h.ConnectionID].Spent.Sum(m.now, VelocityWindow)
	if _, err := m.do(t, Reverse{
		EntryID:   entry,
		AccountID: h.AccountID,
		Reason:    "test",
		Receipt: func(e *Entry) (string, error) {
			return fmt.Sprintf(`{"id":%q,"reversed_by":%q}`, e.RequestID(), e.ReversedBy), nil
		},
	}); err != nil {
		return
	}
	m.refunded(&h, entry, inWindow)
}

// refunded notes that a charge has left the windows of spend.
func (m *machine) refunded(h *Hold, entry string, inWindow int64) {
	m.seen["reversed"]++
	if m.s.Connections[h.ConnectionID].Spent.Sum(m.now, VelocityWindow) < inWindow {
		m.seen["refunded in the window"]++
	}
	m.counted = slices.DeleteFunc(m.counted, func(c counted) bool {
		if c.entry == entry && c.forgiven {
			m.lenient[h.ConnectionID] = true
		}
		return c.entry == entry && c.Unit == limits.Spend && c.Window > 0
	})
}

// appDevelopers are the developers of the apps. B uses them, too; D has no balance.
var appDevelopers = map[string]string{"p": "B", "q": "D", "s": "B"}

// refundCall refunds a call in its app's name, or tries to once more.
func (m *machine) refundCall(t *rapid.T) {
	h := m.old(t)
	entry, inWindow := "led_"+h.RequestID[4:], m.s.Connections[h.ConnectionID].Spent.Sum(m.now, VelocityWindow)
	c := RefundCall{
		EntryID:     entry,
		AccountID:   h.AccountID,
		AppID:       h.AppID,
		DeveloperID: appDevelopers[h.AppID],
		Margin:      AppMargin{EarnedMC: money.MC(rapid.Int64Range(0, 300).Draw(t, "earned"))},
		Reason:      "late",
		Receipt: func(e *Entry) (string, error) {
			return fmt.Sprintf(`{"id":%q,"reversed_by":%q}`, e.RequestID(), e.ReversedBy), nil
		},
	}
	var last CallRefund
	if r := m.s.callRefunds.last[h.AppID]; r != nil {
		last = *r
	}
	records := m.s.lastMargin(h.AppID)
	c.Margin.Records, c.Margin.Refunds = records.N, last.N
	switch rapid.IntRange(0, 5).Draw(t, "stale") {
	case 0, 1:
		c.Margin.Refunds--
	case 2:
		c.Margin.Records--
	}
	isStale := c.Margin.Refunds != last.N || c.Margin.Records != records.N
	done, rows, developer := m.s.callRefunds.byEntry[entry], len(m.s.Changes.Entries), Balance{}
	if b := m.s.Balances[appDevelopers[h.AppID]]; b != nil {
		developer = *b
	}
	r, err := m.do(t, c)
	switch refund := r.CallRefund; {
	case done != nil:
		if m.seen["refunded again"]++; err != nil || r.Outcome != Done || refund != *done ||
			len(m.s.Changes.Entries) != rows {
			t.Fatalf("%+v refunded again: %+v, %v", done, r, err)
		}
	case r.Outcome == Waiting:
		if !isStale || len(m.s.Changes.Entries) != rows {
			t.Fatalf("%+v waits: %+v", c, r)
		}
	case err == nil && isStale:
		t.Fatalf("%+v does not see %+v", c, last)
	case err == nil:
		m.refunded(&h, entry, inWindow)
		left := max(c.Margin.EarnedMC-last.MarginUsedMC-records.TakenMC, 0)
		switch {
		case refund.MarginMC > left || refund.BalanceMC > max(developer.AvailableMC, 0) ||
			refund.BalanceMC > 0 && refund.MarginMC != left:
			t.Fatalf("I32: %+v with %d of margin and %+v", refund, left, developer)
		case refund.Sandbox || refund.MarginMC+refund.BalanceMC == 0:
			m.seen["refunded for nothing"]++
		case refund.BalanceMC == 0:
			m.seen["refunded by margin"]++
		case refund.MarginMC > 0:
			m.seen["refunded by both"]++
		}
	case strings.Contains(err.Error(), "top up your balance"):
		m.seen["refund not covered"]++
	}
}

// callRefunds checks that each refund of a call pays what the user got back, once, and each debit belongs to one.
func (m *machine) callRefunds(t *rapid.T) {
	rows, debits, total := map[string]*Entry{}, int64(0), map[string]money.MC{}
	for i := range m.s.Changes.Entries {
		e := &m.s.Changes.Entries[i]
		rows[e.ID] = e
		debits += intOf(e.Type == EntryTopUp && e.AmountMC < 0 && e.Status == "settled")
	}
	seen := map[string]bool{}
	for _, r := range m.s.Changes.CallRefunds {
		o, back := rows[r.EntryID], rows[r.ReversalID]
		due := o.UserChargeMC
		if o.AccountID == testAccount {
			due = 0
		} else {
			total[r.AppID] += r.MarginMC - o.DevMarginMC
		}
		if seen[r.EntryID] || back.ReversalOf != o.ID || back.UserChargeMC != o.UserChargeMC ||
			due != r.MarginMC+r.BalanceMC ||
			r.MarginUsedMC != total[r.AppID] {
			t.Fatalf("I32: %+v of %+v, reversed by %+v", r, o, back)
		}
		seen[r.EntryID] = true
		if r.BalanceMC > 0 {
			debits--
			if d := rows[r.DebitID]; d == nil || d.AccountID != appDevelopers[r.AppID] ||
				d.AvailableDeltaMC != -r.BalanceMC {
				t.Fatalf("I32: %+v has the debit %+v", r, d)
			}
		}
	}
	if debits != 0 {
		t.Fatalf("I32: %d debits without a refund", debits)
	}
}

// margin pays an app's margin out, ends a payout, or takes what is disputed.
func (m *machine) margin(t *rapid.T) {
	of := []func(*rapid.T){m.payout, m.payout, m.endPayout, m.findPayout, m.disputeMargin}
	rapid.SampledFrom(of).Draw(t, "of margin")(t)
}

// drawApp draws one of the apps.
func drawApp(t *rapid.T) string { return rapid.SampledFrom([]string{"p", "q"}).Draw(t, "app") }

// payout begins a payout, or tries to once more.
func (m *machine) payout(t *rapid.T) {
	app := drawApp(t)
	c := BeginPayout{
		PayoutID:    "po_" + app + rapid.StringMatching("[12]").Draw(t, "payout"),
		AppID:       app,
		DeveloperID: appDevelopers[app],
		MinimumMC:   money.MC(rapid.Int64Range(0, 2).Draw(t, "minimum")) * money.Cent,
		Margin: MaturedMargin{
			MaturedMC:  money.MC(rapid.Int64Range(0, 40).Draw(t, "matured")) * money.Cent / 4,
			ReversedMC: money.MC(rapid.Int64Range(0, 10).Draw(t, "reversed")) * money.Cent / 4,
		},
	}
	last, refunds := m.s.lastMargin(app), CallRefund{}
	if r := m.s.callRefunds.last[app]; r != nil {
		refunds = *r
	}
	c.Margin.Refunds = refunds.N - rapid.Int64Range(0, 1).Draw(t, "stale refunds")
	c.Margin.Records = last.N - rapid.Int64Range(0, 1).Draw(t, "stale records")
	old, records := m.s.payout(app, c.PayoutID), len(m.s.Changes.MarginRecords)
	owed := c.Margin.MaturedMC - c.Margin.ReversedMC - refunds.MarginUsedMC - last.TakenMC
	besides := m.besides(t, &c)
	r, err := m.do(t, c)
	if besides < 0 {
		m.seen["margin kept"] += int(intOf(owed > 0))
		owed += besides
	}
	switch added := len(m.s.Changes.MarginRecords) - records; {
	case old.ID != "":
		if m.seen["payout again"]++; err != nil || r.Outcome != Done || r.Payout != old || added != 0 {
			t.Fatalf("%+v begun again: %+v, %v", old, r, err)
		}
	case err == nil && r.Outcome == Waiting:
		if added != 0 || c.Margin.Refunds == refunds.N && c.Margin.Records == last.N {
			t.Fatalf("%+v waits: %+v", c, r)
		}
	case err == nil && (c.Margin.Refunds != refunds.N || c.Margin.Records != last.N):
		t.Fatalf("%+v does not see %+v or %+v", c, refunds, last)
	case err == nil:
		if m.seen["paid out"]++; added != 1 || r.Payout.AmountMC <= 0 || r.Payout.AmountMC > owed ||
			r.Payout.AmountMC < c.MinimumMC || owed-r.Payout.AmountMC >= money.Cent ||
			r.Payout.AmountMC%money.Cent != 0 {
			t.Fatalf("I35: %+v of %d owed: %+v", c, owed, r.Payout)
		}
	case owed < 0:
		m.seen["margin owed"]++
	default:
		m.seen["paid nothing"]++
	}
}

// besides draws what is matured of the developer's other app, and returns what that app and the developer's own balance
// are owed, or owe.
func (m *machine) besides(t *rapid.T, c *BeginPayout) (sum money.MC) {
	if b := m.s.Balances[c.DeveloperID]; b != nil {
		sum = min(b.AvailableMC, 0)
	}
	if c.AppID != "p" || rapid.Bool().Draw(t, "the only app") {
		return sum
	}
	last, refunds := m.s.lastMargin("s"), int64(0)
	matured := money.MC(rapid.Int64Range(-20, 20).Draw(t, "matured of the other")) * money.Cent / 4
	if r := m.s.callRefunds.last["s"]; r != nil {
		refunds, sum = r.N, sum-r.MarginUsedMC
	}
	c.Others = map[string]MaturedMargin{"s": {Refunds: refunds, Records: last.N, MaturedMC: matured}}
	return sum + matured - last.TakenMC
}

// endPayout records what Stripe made of a payout.
func (m *machine) endPayout(t *rapid.T) {
	app := drawApp(t)
	c := EndPayout{
		PayoutID:    "po_" + app + rapid.StringMatching("[12]").Draw(t, "payout"),
		AppID:       app,
		DeveloperID: appDevelopers[app],
		TransferID:  "tr_1",
	}
	if rapid.Bool().Draw(t, "failed") {
		c.Failure = "refused"
		if rapid.Bool().Draw(t, "without a transfer") { // so a payout that was paid stays so
			c.TransferID = ""
		}
	}
	old, taken := m.s.payout(app, c.PayoutID), m.s.lastMargin(app).TakenMC
	r, err := m.do(t, c)
	switch back := taken - m.s.lastMargin(app).TakenMC; {
	case err == nil && (r.Payout.Failed() && r.Outcome == Applied) != (back > 0), back != 0 && back != old.AmountMC,
		back != 0 && old.Paid() && c.TransferID == "":
		t.Fatalf("I35: %+v of %+v gives %d back: %+v", c, old, back, r)
	case back != 0 && old.Paid():
		m.seen["payout returned"]++
	case back != 0:
		m.seen["payout failed"]++
	}
}

// findPayout finds a transfer at Stripe of which the books may know.
func (m *machine) findPayout(t *rapid.T) {
	app := drawApp(t)
	c := RecordPayout{
		PayoutID:    "po_" + app + rapid.StringMatching("[123]").Draw(t, "payout"),
		AppID:       app,
		DeveloperID: appDevelopers[app],
		TransferID:  rapid.SampledFrom([]string{"tr_1", "tr_2"}).Draw(t, "transfer"),
		AmountMC:    money.MC(rapid.Int64Range(1, 3).Draw(t, "amount")) * money.Cent,
	}
	old, taken := m.s.payout(app, c.PayoutID), m.s.lastMargin(app).TakenMC
	r, err := m.do(t, c)
	isNew := old.ID == "" || old.Failed() && old.TransferID != c.TransferID
	switch took := m.s.lastMargin(app).TakenMC - taken; {
	case err != nil, isNew != (r.Outcome == Applied), isNew && took != c.AmountMC, !isNew && took != 0,
		isNew && !r.Payout.Paid(), old.Begun() != (r.Outcome == Waiting):
		t.Fatalf("I35: %+v of %+v takes %d: %+v, %v", c, old, took, r, err)
	case isNew && old.Failed():
		m.seen["payout found again"]++
	case isNew:
		m.seen["payout found"]++
	}
}

// disputeMargin takes margin of both apps for the disputed payments of an account, more, less or none.
func (m *machine) disputeMargin(t *rapid.T) {
	const account = "A"
	c := TakeDisputedMargin{Loss: Loss{
		AccountID: account,
		Seq:       -rapid.Int64Range(0, 1).Draw(t, "stale account"),
		LossMC:    money.MC(rapid.Int64Range(0, 3).Draw(t, "loss")) * money.Cent,
	}}
	if b := m.s.Balances[account]; b != nil {
		c.Loss.Seq += b.Seq
	}
	before, sum := map[string]money.MC{}, money.MC(0)
	for _, app := range []string{"p", "q"} {
		share := DisputedShare{
			AppID:       app,
			DeveloperID: appDevelopers[app],
			TotalMC:     money.MC(rapid.Int64Range(0, 2).Draw(t, "share")) * money.Cent,
		}
		before[app], sum = m.s.takenOf(app, account), sum+share.TotalMC
		c.Shares = append(c.Shares, share)
	}
	r, err := m.do(t, c)
	isCurrent := m.s.Balances[account] != nil && m.s.Balances[account].Seq == c.Loss.Seq
	if (err == nil) != (sum <= c.Loss.LossMC && m.s.Balances[account] != nil) ||
		err == nil && (r.Outcome == Applied) != isCurrent {
		t.Fatalf("I35: %+v: %+v, %v", c, r, err)
	}
	for _, share := range c.Shares {
		after := m.s.takenOf(share.AppID, account)
		switch want := share.TotalMC; {
		case err == nil && isCurrent && after != want, (err != nil || !isCurrent) && after != before[share.AppID]:
			t.Fatalf("I35: %+v takes %d after %d", c, after, before[share.AppID])
		case after > before[share.AppID]:
			m.seen["disputed"]++
		case after < before[share.AppID]:
			m.seen["dispute won"]++
		}
	}
}

// marginRecords checks that what was taken of margins adds up, and that each payout takes its amount once or not at
// all.
func (m *machine) marginRecords(t *rapid.T) {
	taken, n, subjects := map[string]money.MC{}, map[string]int64{}, map[string]money.MC{}
	payouts := map[string]*Payout{} // as each was after the record; one that is found later may have another amount
	for _, r := range m.s.Changes.MarginRecords {
		taken[r.AppID] += r.AmountMC
		n[r.AppID]++
		subjects[r.AppID+"/"+r.Subject] += r.AmountMC
		if r.TakenMC != taken[r.AppID] || r.N != n[r.AppID] || subjects[r.AppID+"/"+r.Subject] < 0 {
			t.Fatalf("I35: %+v after %d", r, taken[r.AppID])
		}
		if r.Kind == marginDisputed {
			continue
		}
		p := payouts[r.AppID+"/"+r.Subject]
		if p == nil {
			p = &Payout{}
			payouts[r.AppID+"/"+r.Subject] = p
		}
		if p.Fold(r); p.AmountMC < subjects[r.AppID+"/"+r.Subject] {
			t.Fatalf("I35: %+v takes %d", *p, subjects[r.AppID+"/"+r.Subject])
		}
	}
}

func (m *machine) pass(t *rapid.T) {
	most := 3 * time.Hour
	if rapid.IntRange(0, 4).Draw(t, "long") == 0 {
		most = 60 * time.Hour
	}
	m.now = m.now.Add(time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "time")))
}

// check is the list of docs/internals/invariants.md, as far as the ledger has it.
func (m *machine) check(t *rapid.T) {
	net, funded := map[string]money.MC{}, map[string]money.MC{}
	consumed, held, open := map[string]money.MC{}, map[string]money.MC{}, map[string]int{}
	billed, refunds := map[Key]int{}, []string(nil)
	var fold = map[string]*Balance{}
	payments := m.paymentRows()
	for i := range m.s.Changes.Entries {
		e := &m.s.Changes.Entries[i]
		b := fold[e.AccountID]
		if b == nil {
			b = &Balance{AccountID: e.AccountID}
			fold[e.AccountID] = b
		}
		b.Seq++
		if e.Seq != b.Seq || e.Hash != chainHash(b.Head, e) {
			t.Fatalf("I21: row %d of %s breaks the chain", e.Seq, e.AccountID)
		}
		b.Head, b.AvailableMC, b.ReservedMC = e.Hash, b.AvailableMC+e.AvailableDeltaMC, b.ReservedMC+e.ReservedDeltaMC
		switch {
		case e.Type == EntryTopUp:
			funded[e.AccountID] += e.AvailableDeltaMC
			if e.AvailableDeltaMC < 0 && b.AvailableMC < 0 && !payments[e.ID] {
				t.Fatalf("I30: %+v overdraws %+v", e, b)
			}
		case e.PaidBy == PaidByFreeCredit:
			if billed[Key{e.ConnectionID, e.Key}]++; e.AvailableDeltaMC != 0 || e.ReservedDeltaMC != 0 ||
				e.AllocationDeltaMC != 0 || e.ConsumedDeltaMC != 0 || e.DevMarginMC != 0 ||
				e.SvcFeeMC != 0 && (e.SvcFeeMC > 0 || ChildOfKey(e.Key) == "" || e.RemainingMC != 0) {
				t.Fatalf("I17: free row %+v moves money", e)
			}
		case e.Type == EntrySpend && e.Status == "settled":
			net[e.AccountID] += e.UserChargeMC
			consumed[e.ConnectionID] += e.UserChargeMC
			billed[Key{e.ConnectionID, e.Key}]++
		case e.Type == EntrySpend:
			net[e.AccountID] -= e.UserChargeMC
			consumed[e.ConnectionID] -= e.UserChargeMC
			refunds = append(refunds, fmt.Sprintf(`{"request":{"id":%q,"reversed_by":%q}}`, e.RequestID(), e.ID))
		}
		if e.UserChargeMC != e.ProviderCostMC+e.SvcFeeMC+e.DevMarginMC {
			t.Fatalf("I13: row %+v", e)
		}
	}
	for k, n := range billed {
		if n > 1 {
			t.Fatalf("I15: %v has %d rows", k, n)
		}
	}
	for k, h := range m.s.Holds {
		if h == nil {
			continue
		}
		if h.State != Failed {
			if h.PaidBy == PaidByWallet {
				held[k.ConnectionID] += h.HoldMC
			}
			open[k.ConnectionID]++
		}
		waiting := 0
		for _, d := range m.s.Changes.Deferrals {
			if d.Key == k && !slices.Contains(m.s.Changes.EndedDeferrals, d.RequestID) {
				waiting++
			}
		}
		if (h.State == Pending) != (waiting == 1) {
			t.Fatalf("I11: %v is %s and %d times deferred", k, h.State, waiting)
		}
		if billed[k] > 0 {
			t.Fatalf("I26: %v is billed and has a hold", k)
		}
	}
	m.counters(t)
	m.dailyTotals(t)
	m.events(t, refunds)
	m.requests(t)
	m.goodwill(t)
	m.payments(t)
	m.callRefunds(t)
	m.marginRecords(t)
	m.children(t)
	m.checkCauses(t)
	m.balances(t, fold, funded, net)
	for _, c := range m.s.Connections {
		switch {
		case c.ConsumedMC != consumed[c.ID]:
			t.Fatalf("I4: %s consumed %d, rows %d", c.ID, c.ConsumedMC, consumed[c.ID])
		case c.HeldMC != held[c.ID]:
			t.Fatalf("I5: %s held %d, holds %d", c.ID, c.HeldMC, held[c.ID])
		case c.CommittedMC() > c.AllocationMC || c.ConsumedMC < 0:
			t.Fatalf("I6: %+v", c)
		case (c.Status == Frozen) != (c.FrozenBy != ""):
			t.Fatalf("%s is %s by %q", c.ID, c.Status, c.FrozenBy)
		case c.Status == Revoked && c.AllocationMC != c.ConsumedMC+c.HeldMC:
			t.Fatalf("I1: revoked %+v keeps money", c)
		}
	}
}

// events checks that each call that was pending is told once, when it is billed, and each
// refund, that each connection's events are numbered without a gap, and that the last one that has the connection says
// its present status, unless the user has raised the cap by a request since.
func (m *machine) events(t *rapid.T, refunds []string) {
	seq := map[string]int64{}
	var told, refunded []string
	warned, status := map[string]int64{}, map[string]string{}
	for _, e := range m.s.Changes.Events {
		if e.ConnectionID == "" {
			continue
		}
		if e.Type == "connection.risk_warning" {
			if m.seen["warned"]++; warned[e.ConnectionID] > 0 &&
				e.CreatedUS-warned[e.ConnectionID] < warningInterval.Microseconds() {
				t.Fatalf("I28: %s was warned twice within %s", e.ConnectionID, warningInterval)
			}
			warned[e.ConnectionID] = e.CreatedUS
		}
		if seq[e.ConnectionID]++; e.Seq != seq[e.ConnectionID] {
			t.Fatalf("I28: event %+v follows number %d", e, seq[e.ConnectionID]-1)
		}
		if _, after, found := strings.Cut(e.Data, `"status":"`); found && strings.HasPrefix(e.Data, `{"connection":`) {
			status[e.ConnectionID], _, _ = strings.Cut(after, `"`)
		} else if e.Type == "allocation_change.approved" {
			delete(status, e.ConnectionID)
		}
		if e.Type == "request.settled" {
			told = append(told, e.Data)
		}
		if e.Type == "request.refunded" {
			refunded = append(refunded, e.Data)
		}
	}
	for id, said := range status {
		if now := m.s.Connections[id].EffectiveStatus(); said != now {
			t.Fatalf("I28: the last event of %s said %s; it is %s", id, said, now)
		}
	}
	if !slices.Equal(refunded, refunds) {
		t.Fatalf("I28: refunds %q, rows %q", refunded, refunds)
	}
	if !slices.Equal(told, m.told) {
		t.Fatalf("I28: told %q, should have told %q", told, m.told)
	}
}

func (m *machine) balances(t *rapid.T, fold map[string]*Balance, funded, net map[string]money.MC) {
	reserved, live := map[string]money.MC{}, map[AppAccount]int{}
	for _, c := range m.s.Connections {
		reserved[c.AccountID] += c.AllocationMC - c.ConsumedMC
		if c.Status != Revoked {
			if live[AppAccount{c.AppID, c.AccountID}]++; live[AppAccount{c.AppID, c.AccountID}] > 1 {
				t.Fatalf("I9: two live connections of %s and %s", c.AppID, c.AccountID)
			}
		}
	}
	for id, b := range m.s.Balances {
		f := fold[id]
		switch {
		case f == nil || f.AvailableMC != b.AvailableMC || f.ReservedMC != b.ReservedMC || f.Seq != b.Seq ||
			f.Head != b.Head:
			t.Fatalf("ledger: %+v is not the sum of its rows %+v", b, f)
		case b.AvailableMC+b.ReservedMC+net[id] != funded[id]:
			t.Fatalf("I2: %+v + net %d ≠ funded %d", b, net[id], funded[id])
		case b.ReservedMC != reserved[id]:
			t.Fatalf("I1: %+v, connections %d", b, reserved[id])
		case b.AvailableMC < 0 && !m.hasReversal(id) || b.ReservedMC < 0:
			t.Fatalf("I3: %+v", b)
		}
	}
}

// ask files a request in the model; decide answers one, also a second time.
func (m *machine) ask(t *rapid.T) {
	c := m.connection(t)
	m.n++
	told, notices := intOf(m.s.requests.pending[c.ID] == nil), len(m.s.Changes.Notices)
	r, err := m.do(t, RequestAllocation{
		RequestID: fmt.Sprint("r", m.n), ConnectionID: c.ID, AppID: c.AppID,
		TargetMC: money.MC(rapid.Int64Range(0, 900).Draw(t, "target")), MaxMC: 800,
	})
	if err == nil && r.AllocationRequest.TargetMC <= r.Connection.AllocationMC {
		t.Fatalf("asked for %+v on %+v", r.AllocationRequest, r.Connection)
	}
	if n := len(m.s.Changes.Notices) - notices; err == nil && int64(n) != told {
		t.Fatalf("the user got %d notices of %+v, and should have got %d", n, r.AllocationRequest, told)
	}
}

func (m *machine) decide(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.s.requests.byID))
	if len(ids) == 0 {
		t.Skip("no request yet")
	}
	before := *m.s.requests.byID[rapid.SampledFrom(ids).Draw(t, "request")]
	c := *m.s.Connections[before.ConnectionID]
	approve := rapid.Bool().Draw(t, "approve")
	r, err := m.do(t, DecideAllocationRequest{
		RequestID: before.ID,
		AccountID: c.AccountID,
		Approve:   approve,
		MaxMC:     800,
	})
	var refused *apierr.Error
	after := *m.s.Connections[before.ConnectionID]
	switch {
	case errors.As(err, &refused):
		m.seen["refused raise"]++
		if *m.s.requests.byID[before.ID] != before {
			t.Fatalf("refused, and %+v is %+v", before, *m.s.requests.byID[before.ID])
		}
	case r.Outcome == Done:
		m.seen["decided twice"]++
		if before.Status == RequestPending || after.AllocationMC != c.AllocationMC || after.EventSeq != c.EventSeq {
			t.Fatalf("answered %+v again: %+v", before, r)
		}
	case approve:
		m.seen["approved"]++
		if want := max(c.AllocationMC, before.TargetMC); before.Status != RequestPending || after.AllocationMC != want {
			t.Fatalf("approved %+v, and the cap is %d", before, after.AllocationMC)
		}
	case before.Status != RequestPending || after.AllocationMC != c.AllocationMC:
		t.Fatalf("denied %+v, and the cap is %d", before, after.AllocationMC)
	}
}

// requests checks that at most one request of a connection is pending.
func (m *machine) requests(t *rapid.T) {
	var list []AllocationRequest
	for _, r := range m.s.requests.byID {
		list = append(list, *r)
	}
	count := map[string]int{}
	for _, r := range followRequests(t, list) {
		if c := m.s.Connections[r.ConnectionID]; c.Status == Revoked || r.TargetMC <= c.AllocationMC {
			t.Fatalf("%+v is pending, and its connection is %s with %d", r, c.Status, c.AllocationMC)
		}
		if count[r.ConnectionID]++; count[r.ConnectionID] > 1 || m.s.requests.pending[r.ConnectionID].ID != r.ID {
			t.Fatalf("I9: two requests of %s are pending", r.ConnectionID)
		}
	}
}

// followRequests follows each superseded request to the one that was not, and
// returns those that are pending.
func followRequests(t *rapid.T, list []AllocationRequest) (pending []AllocationRequest) {
	byID := map[string]AllocationRequest{}
	for _, r := range list {
		byID[r.ID] = r
	}
	for _, r := range list {
		if r.Status == RequestPending {
			pending = append(pending, r)
		}
		for hops := 0; r.Status == RequestSuperseded; hops++ {
			next, ok := byID[r.SupersededBy]
			if !ok || next.ConnectionID != r.ConnectionID || hops > len(list) {
				t.Fatalf("%+v leads nowhere", r)
			}
			r = next
		}
	}
	return pending
}

func intOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
