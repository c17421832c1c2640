package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/people/accounts"
)

const accountsPath = "/operator/accounts"

// showAccounts is GET /operator/accounts: all, newest first, or the result of a search.
func (h *Handler) showAccounts(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(accountsPath, "Accounts", "")
	q := r.URL.Query()
	t := ui.NewList(accountsPath, q, "q")
	t.Label, t.Empty = "Accounts", "No results. Enter a complete address or id."
	t.Search = &ui.ListSearch{
		Name:  "q",
		Label: "Email, safety identifier, or the id of an account, connection, ledger entry or request",
		Hint:  "Email or id",
		Value: strings.TrimSpace(q.Get("q")),
	}
	t.Finish(q.Get("after") == "", "")
	t.Head = []ui.ListColumn{
		{Text: "Account", Class: "first"}, {Text: "Kind", Class: "second"}, {Text: "Created", Class: "first"},
	}
	size := ui.ListPageSize(t.Query)
	var list []accounts.Account
	var err error
	if t.Search.Value != "" {
		list, err = h.Service.SearchAccounts(r.Context(), t.Search.Value)
	} else {
		list, err = h.Accounts.ListNewest(r.Context(), q.Get("after"), size+1)
	}
	if err != nil {
		return c, err
	}
	if len(list) > size {
		list = list[:size]
		t.Older = t.Link("after", list[size-1].ID)
	}
	for _, a := range list {
		t.Rows = append(t.Rows, ui.ListRow{
			ID:   a.ID,
			Href: accountsPath + "/" + url.PathEscape(a.ID),
			Cells: []ui.ListCell{
				{Text: a.Email, Sub: a.ID, Monogram: a.ID}, {Text: accountKind(a)}, listCell(timeCell(a.CreatedUS)),
			},
		})
	}
	c.Blocks = []ui.Block{{List: &t}}
	if s.canAct() {
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "New users",
			More:    &ui.Link{Href: invitationsPath, Text: "Invite a user"},
		})
	}
	return c, nil
}

// accountKind describes what an account is, such as "User, developer".
func accountKind(a accounts.Account) string {
	words := []string{"User"}
	if a.Sandbox {
		words = []string{"Test account"}
	}
	switch {
	case a.Closed:
		words = []string{"Closed"}
	case a.SuspendedUS > 0:
		words = []string{"Suspended"}
	}
	if a.Developer {
		words = append(words, "developer")
	}
	if a.Operator {
		words = append(words, "operator pages")
	}
	return strings.Join(words, ", ")
}

// showAccount is GET /operator/accounts/{id}: what support needs to see.
func (h *Handler) showAccount(r *http.Request, s staff) (ui.Report, error) {
	ctx := r.Context()
	a, err := h.Accounts.Get(ctx, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "account")
	}
	balance, err := store.GetBalance(ctx, h.DB, a.ID)
	if err != nil {
		return ui.Report{}, fmt.Errorf("operatorpages: balance: %w", err)
	}
	c := s.newReport("/operator/accounts", a.Email, "")
	c.Back = &ui.Link{Href: "/operator/accounts", Text: "Accounts"}
	switch {
	case a.Sandbox:
		c.Badge = &ui.Badge{Text: "Test account: no real money", Tone: "warn"}
	case a.Closed:
		c.Badge = &ui.Badge{Text: "Closed", Tone: "warn"}
	case a.SuspendedUS > 0:
		c.Badge = &ui.Badge{Text: "Suspended", Tone: "bad"}
	}
	c.Tiles = []ui.Tile{
		{Label: "Available", Value: ui.Money(balance.AvailableMC).Text, Exact: balance.AvailableMC.Display()},
		{Label: "Reserved for apps", Value: ui.Money(balance.ReservedMC).Text, Exact: balance.ReservedMC.Display()},
		{Label: "Ledger entries", Value: ui.Count(balance.Seq)},
	}
	role, err := h.Accounts.GetRole(ctx, a.ID)
	if err != nil {
		return c, err
	}
	connections, err := h.connectionTable(r, a.ID)
	if err != nil {
		return c, err
	}
	ledger, err := h.ledgerTable(r, a.ID)
	if err != nil {
		return c, err
	}
	mails, err := h.mailTable(ctx, a.ID)
	if err != nil {
		return c, err
	}
	who, err := loadNames(ctx, h.DB, a.OwnerID)
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{
		{Heading: "Account", Facts: append(accountFacts(a, role, who), ui.Detail{
			Name: "Known to AI providers as",
			Cell: ui.Cell{Text: h.Service.Identifiers.Identify(a.ID), Code: true},
		})},
		{Heading: "Connections", Table: connections, More: &ui.Link{
			Href: "/operator/accounts/" + url.PathEscape(a.ID) + "/timeline",
			Text: "Timeline of the account",
		}},
		{Heading: "Ledger, newest first", Table: ledger},
		{Heading: "Emails", Table: mails},
	}
	if s.canAct() && !a.Sandbox && (!a.Closed || balance.AvailableMC >= money.Cent) {
		c.Blocks = append(c.Blocks, supportBlock(a))
	}
	return c, nil
}

// accountFacts lists an account's properties and permissions.
func accountFacts(a accounts.Account, role accounts.Role, who names) []ui.Detail {
	yesOrNo := func(b bool) ui.Cell {
		if b {
			return ui.Cell{Text: "Yes"}
		}
		return ui.Cell{Text: "No"}
	}
	if role == accounts.NoRole {
		role = "none"
	}
	facts := []ui.Detail{
		{Name: "Id", Cell: ui.Cell{Text: a.ID, Code: true}},
		{Name: "Created", Cell: timeCell(a.CreatedUS)},
		{Name: "Developer", Cell: yesOrNo(a.Developer)},
		{Name: "Operator pages", Cell: ui.Cell{Text: string(role)}},
		{Name: "Gets notices", Cell: yesOrNo(a.Notices)},
	}
	if a.SuspendedUS > 0 {
		facts = append(facts, ui.Detail{Name: "Suspended", Cell: timeCell(a.SuspendedUS)},
			ui.Detail{Name: "Reason", Cell: ui.Cell{Text: a.SuspendedReason}})
	}
	if a.Sandbox {
		facts = append(facts, ui.Detail{Name: "Belongs to", Cell: who.cell(a.OwnerID)},
			ui.Detail{Name: "Deactivated", Cell: yesOrNo(a.Deactivated)})
	}
	return facts
}

// connectionTable lists the connections of an account.
func (h *Handler) connectionTable(r *http.Request, accountID string) (*ui.Table, error) {
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, accountID, maxListed)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: connections: %w", err)
	}
	t := &ui.Table{
		Label: "Connections",
		Heads: []ui.Head{
			{Name: "Connection to"},
			{Name: "Status"},
			{Name: "Created"},
			{Name: "Cap", End: true},
			{Name: "Used", End: true},
			{Name: "Held", End: true},
		},
		Empty: "No connections.",
	}
	ids := []string{}
	for _, x := range list {
		ids = append(ids, x.AppID)
	}
	who, err := loadNames(r.Context(), h.DB, ids...)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{connectionCell(x.ID, who[x.AppID], x.AppID), statusCell(x), timeCell(x.CreatedUS),
				ui.MoneyCell(x.AllocationMC), ui.TotalCell(x.ConsumedMC), ui.TotalCell(x.HeldMC)})
	}
	return t, nil
}

// ledgerTable lists an account's ledger rows, newest first, before the sequence number in the query.
func (h *Handler) ledgerTable(r *http.Request, accountID string) (*ui.Table, error) {
	before := int64(1) << 62
	if text := r.URL.Query().Get("before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, apierr.InvalidRequest.Errorf("before: must be a number")
		}
		before = n
	}
	list, err := listEntriesBefore(r.Context(), h.DB, accountID, before, maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: ledger: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Ledger",
		Heads: []ui.Head{
			{Name: "When"},
			{Name: "What"},
			{Name: "Model"},
			{Name: "Charge", End: true},
			{Name: "Available", End: true},
			{Name: "Reserved", End: true},
		},
		First: firstPage(r, "before"),
		Empty: "No entries yet.",
	}
	for _, e := range list {
		charge, cell := ui.Cell{Text: "–"}, ui.TotalCell
		if e.kind == string(rules.EntrySpend) {
			charge, cell = ui.PriceCell(e.chargeMC), ui.PriceCell
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{timeCell(e.createdUS), entryCell(e.id, e.kind, e.status), {Text: e.model}, charge,
				cell(e.availableDeltaMC),
				cell(e.reservedDeltaMC)})
	}
	if more {
		t.Next = nextPage(r, true, "before", strconv.FormatInt(list[len(list)-1].seq, 10))
	}
	return t, nil
}

// entryCell links to a ledger row by what it is.
func entryCell(entryID, kind, status string) ui.Cell {
	return ui.Cell{
		Text:  describeEntry(kind, status),
		Href:  "/operator/ledger/" + url.PathEscape(entryID),
		Exact: entryID,
	}
}

// connectionCell links to a connection by the app or the account at its other end.
func connectionCell(connectionID, name, other string) ui.Cell {
	return ui.Cell{
		Text:     name,
		Href:     "/operator/connections/" + url.PathEscape(connectionID),
		Exact:    connectionID,
		Monogram: other,
	}
}

// describeEntry describes a ledger row, such as "Call, reversed".
func describeEntry(kind, status string) string {
	word := map[string]string{
		"spend":   "Call",
		"topup":   "Top-up",
		"connect": "Connected",
		"cap":     "Spend cap changed",
		"revoke":  "Connection revoked",
		"release": "Hold released",
	}[kind]
	if word == "" {
		word = kind
	}
	if status != "settled" {
		word += ", " + status
	}
	return word
}

// showConnection is GET /operator/connections/{id}.
func (h *Handler) showConnection(r *http.Request, s staff) (ui.Report, error) {
	x, err := store.GetConnection(r.Context(), h.DB, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "connection")
	}
	app, err := h.Service.Apps.Get(r.Context(), x.AppID)
	if err != nil {
		return ui.Report{}, err
	}
	c := s.newReport("/operator/accounts", "Connection to "+app.Name, "")
	status := statusCell(x)
	c.Back, c.Badge = &ui.Link{Href: "/operator/accounts/" + url.PathEscape(x.AccountID), Text: "Account"},
		&ui.Badge{Text: status.Text, Tone: status.Tone}
	parts := ui.SplitDollars(x.RemainingMC(), x.SetAsideMC(), x.ConsumedMC)
	c.Tiles = []ui.Tile{
		{Label: "Spend cap", Value: ui.Dollars(x.AllocationMC), Exact: x.AllocationMC.Display()},
		{Label: "Used", Value: parts[2].Text, Exact: x.ConsumedMC.Display()},
		{Label: "Held, or passed on", Value: parts[1].Text, Exact: x.SetAsideMC().Display()},
		{Label: "Remaining", Value: parts[0].Text, Exact: x.RemainingMC().Display()},
	}
	who, err := loadNames(r.Context(), h.DB, x.AccountID, x.AppID)
	if err != nil {
		return c, err
	}
	facts := []ui.Detail{
		{Name: "Id", Cell: ui.Cell{Text: x.ID, Code: true}},
		{Name: "Account", Cell: who.cell(x.AccountID)},
		{Name: "App", Cell: who.cell(x.AppID)},
		{Name: "Created", Cell: timeCell(x.CreatedUS)},
		{Name: "Faster spend", Cell: ui.Cell{Text: fasterSpend(x.FasterSpend)}},
	}
	if x.VelocityLimitMC != nil {
		facts = append(facts, ui.Detail{Name: "Daily limit", Cell: ui.MoneyCell(*x.VelocityLimitMC)})
	}
	c.Blocks = []ui.Block{{
		Heading: "Connection",
		Facts:   facts,
		More:    &ui.Link{Href: "/operator/log?subject=" + url.QueryEscape(x.ID), Text: "Audit log"},
	}}
	causes, err := store.ListFreezes(r.Context(), h.DB, x.ID)
	if err != nil {
		return c, fmt.Errorf("operatorpages: causes: %w", err)
	}
	if len(causes) > 0 {
		c.Blocks = append(c.Blocks, causesBlock(causes))
	}
	if s.canAct() && x.Status == rules.Frozen {
		if len(causes) == 0 { // frozen by a node of an earlier version
			causes = []rules.FreezeRow{{Cause: x.FrozenBy}}
		}
		c.Blocks = append(c.Blocks, resumeBlock(x, causes))
	}
	if s.canAct() && x.Status != rules.Revoked {
		pause := pauseBlock(x)
		pause.More = &ui.Link{Href: connectionsPath + "/" + url.PathEscape(x.ID) + "/revoke", Text: "Revoke it"}
		c.Blocks = append(c.Blocks, pause)
	}
	calls, err := store.RecentEntries(r.Context(), h.DB, x.AccountID, x.ID, 20)
	if err != nil {
		return c, fmt.Errorf("operatorpages: recent calls: %w", err)
	}
	t := &ui.Table{
		Label: "Last calls",
		Heads: []ui.Head{
			{Name: "When"},
			{Name: "What"},
			{Name: "Model"},
			{Name: "Feature"},
			{Name: "Charge", End: true},
		},
		Empty: "No calls yet.",
	}
	for _, e := range calls {
		t.Rows = append(t.Rows,
			[]ui.Cell{timeCell(e.CreatedUS), entryCell(e.ID, string(e.Type), e.Status), {Text: e.Model},
				{Text: e.Feature}, ui.PriceCell(e.UserChargeMC)})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Last calls", Table: t})
	return c, nil
}

// fasterSpend describes the multiple of the usual spend that the user allows, 1 to 3.
func fasterSpend(multiple int64) string {
	if multiple <= 1 {
		return "Not allowed"
	}
	return fmt.Sprintf("Up to %d× the usual spend", multiple)
}

// causesBlock lists why a connection is paused, the cause that it shows first.
func causesBlock(causes []rules.FreezeRow) ui.Block {
	rules.SortFreezes(causes)
	t := &ui.Table{
		Label: "Why it is paused",
		Heads: []ui.Head{{Name: "Cause"}, {Name: "Of"}, {Name: "By"}, {Name: "Reason"}, {Name: "Since"}},
	}
	for _, f := range causes {
		t.Rows = append(t.Rows, []ui.Cell{{Text: string(f.Cause)}, {Text: f.Subject, Code: f.Subject != ""},
			{Text: f.Actor, Code: f.Actor != ""}, {Text: f.Reason}, timeCell(f.SinceUS)})
	}
	return ui.Block{Heading: "Why it is paused", Table: t}
}

// fieldCauses names the causes of a pause that the page of the form showed.
const fieldCauses = "causes"

// resumeBlock has the button that ends the pauses of a connection that an operator can end.
func resumeBlock(x rules.Connection, causes []rules.FreezeRow) ui.Block {
	text := "Ends the pauses by operators and by the risk layer. What its user has paused stays paused, and the " +
		"suspension of its account ends by lifting it."
	if slices.ContainsFunc(causes, func(f rules.FreezeRow) bool {
		return f.Cause == rules.FrozenByPayment && f.Subject != rules.BelowZero
	}) {
		text += " A payment of the account is disputed: the app’s calls would go on before the bank has decided, and " +
			"what they spend is the operator’s loss if the dispute is lost."
	}
	return ui.Block{
		Heading: "Resume",
		Text:    text,
		Form: &ui.Ask{
			Action:   "/operator/connections/" + url.PathEscape(x.ID),
			Decision: "resume",
			Seen:     &ui.Seen{Name: fieldCauses, Value: rules.JoinKeys(causes)},
			Fields:   reasonField("For the audit log."),
			Button:   "Resume",
		},
	}
}

// pauseBlock has the button that pauses a connection, also one that is paused for another reason.
func pauseBlock(x rules.Connection) ui.Block {
	return ui.Block{
		Heading: "Pause this connection",
		Text:    "The app’s calls are refused until an operator resumes the connection. No money moves.",
		Form: &ui.Ask{
			Action:   "/operator/connections/" + url.PathEscape(x.ID),
			Decision: "freeze",
			Fields:   reasonField("The app and its user read it as written."),
			Button:   "Pause",
			Danger:   true,
		},
	}
}

// changeFreeze is POST /operator/connections/{id}.
func (h *Handler) changeFreeze(r *http.Request, s staff, form url.Values) (string, error) {
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	connectionID, decision := r.PathValue("id"), form.Get("decision")
	switch decision {
	case "freeze":
		_, err = h.Service.Freeze(r.Context(), s.ID, connectionID, reason)
	case "resume":
		var shown []string
		if form.Has(fieldCauses) {
			shown = rules.SplitKeys(form.Get(fieldCauses))
		}
		_, err = h.Service.Resume(r.Context(), s.ID, connectionID, reason, shown)
	default:
		err = apierr.InvalidRequest.Errorf("decision: must be freeze or resume")
	}
	return "/operator/connections/" + url.PathEscape(connectionID) + "?done=" + decision, err
}
