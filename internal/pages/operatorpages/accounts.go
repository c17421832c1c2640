package operatorpages

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/people/accounts"
)

// accounts is GET /operator/accounts: newest first, or the one that a search finds
// by its address, its id, or the id of a connection, a ledger row or a request.
func (h *Handler) accounts(r *http.Request, s staff) (ui.Report, error) {
	q := r.URL.Query()
	text := strings.TrimSpace(q.Get("q"))
	c := s.console("/operator/accounts", "Accounts", "")
	find := ui.Entry{ID: "q", Label: "Email, or the id of an account, connection, ledger entry or request", Value: text}
	c.Blocks = []ui.Block{
		{Form: &ui.Ask{Search: true, Action: "/operator/accounts", Fields: []ui.Entry{find}, Button: "Search"}},
	}
	t := &ui.Table{
		Label: "Accounts",
		Heads: []ui.Head{{Name: "Account"}, {Name: "Kind"}, {Name: "Created"}},
		First: first(r, "after"),
		Empty: "No results. Enter a whole address or id.",
	}
	var list []accounts.Account
	var err error
	if text != "" {
		list, err = h.find(r, text)
	} else {
		list, err = h.Accounts.ListNewest(r.Context(), q.Get("after"), maxListed+1)
	}
	if err != nil {
		return c, err
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	for _, a := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{{
				Text: a.Email,
				Href: "/operator/accounts/" + url.PathEscape(a.ID),
				Sub:  a.ID,
			}, {Text: kind(a)}, when(a.CreatedUS)})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].ID)
	}
	c.Blocks = append(c.Blocks, ui.Block{Table: t})
	return c, nil
}

// kind says in words what an account is.
func kind(a accounts.Account) string {
	words := []string{"User"}
	if a.Sandbox {
		words = []string{"Test account"}
	}
	if a.Deactivated && !a.Sandbox {
		words = []string{"Closed"}
	}
	if a.Developer {
		words = append(words, "developer")
	}
	if a.Operator {
		words = append(words, "operator pages")
	}
	return strings.Join(words, ", ")
}

// find returns the account that text names; none is no error.
func (h *Handler) find(r *http.Request, text string) ([]accounts.Account, error) {
	ctx, accountID := r.Context(), text
	var err error
	switch {
	case strings.Contains(text, "@"):
		a, err := h.Accounts.GetByEmail(ctx, text)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return []accounts.Account{a}, err
	case strings.HasPrefix(text, id.Connection):
		var c rules.Connection
		c, err = store.GetConnection(ctx, h.DB, text)
		accountID = c.AccountID
	case strings.HasPrefix(text, id.Ledger), strings.HasPrefix(text, id.Request):
		var e rules.Entry
		e, err = store.GetEntry(ctx, h.DB, id.ReplacePrefix(text, id.Request, id.Ledger))
		accountID = e.AccountID
	}
	var a accounts.Account
	if err == nil {
		a, err = h.Accounts.Get(ctx, accountID)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return []accounts.Account{a}, err
}

// account is GET /operator/accounts/{id}: what support needs to see, without
// being the person.
func (h *Handler) account(r *http.Request, s staff) (ui.Report, error) {
	ctx := r.Context()
	a, err := h.Accounts.Get(ctx, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, missing(err, "account")
	}
	balance, err := store.GetBalance(ctx, h.DB, a.ID)
	if err != nil {
		return ui.Report{}, fmt.Errorf("admin: balance: %w", err)
	}
	c := s.console("/operator/accounts", a.Email, "")
	c.Back = &ui.Link{Href: "/operator/accounts", Text: "Accounts"}
	if a.Sandbox {
		c.Badge = &ui.Badge{Text: "Test account: no real money", Tone: "warn"}
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
	connections, err := h.lent(r, a.ID)
	if err != nil {
		return c, err
	}
	rows, err := h.rows(r, a.ID)
	if err != nil {
		return c, err
	}
	mails, err := h.mails(ctx, a.ID)
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{
		{Heading: "Account", Facts: accountFacts(a, role)}, {Heading: "Connections", Table: connections},
		{Heading: "Ledger, newest first", Table: rows}, {Heading: "Emails, last 30 days", Table: mails},
	}
	return c, nil
}

// accountFacts are what an account is and may do.
func accountFacts(a accounts.Account, role accounts.Role) []ui.Detail {
	yes := func(b bool) ui.Cell {
		if b {
			return ui.Cell{Text: "Yes"}
		}
		return ui.Cell{Text: "No"}
	}
	if role == accounts.NoRole {
		role = "none"
	}
	facts := []ui.Detail{
		{Name: "Id", Cell: ui.Cell{Text: a.ID, Code: true}}, {Name: "Created", Cell: when(a.CreatedUS)},
		{Name: "Developer", Cell: yes(a.Developer)},
		{Name: "Operator pages", Cell: ui.Cell{Text: string(role)}}, {Name: "Gets notices", Cell: yes(a.Notices)},
	}
	if a.Sandbox {
		facts = append(facts, ui.Detail{Name: "Belongs to", Cell: link("/operator/accounts/", a.OwnerID)},
			ui.Detail{Name: "Deactivated", Cell: yes(a.Deactivated)})
	}
	return facts
}

// lent lists an account's connections.
func (h *Handler) lent(r *http.Request, accountID string) (*ui.Table, error) {
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, accountID, maxListed)
	if err != nil {
		return nil, fmt.Errorf("admin: connections: %w", err)
	}
	t := &ui.Table{
		Label: "Connections",
		Heads: []ui.Head{
			{Name: "Connection"},
			{Name: "App"},
			{Name: "Status"},
			{Name: "Cap", End: true},
			{Name: "Used", End: true},
			{Name: "Held", End: true},
		},
		Empty: "No connections.",
	}
	for _, x := range list {
		app, err := h.Service.Apps.Get(r.Context(), x.AppID)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{link("/operator/connections/", x.ID),
				{Text: app.Name, Href: "/operator/apps/" + url.PathEscape(app.ID)}, statusCell(x),
				ui.MoneyCell(x.AllocationMC), ui.MoneyCell(x.ConsumedMC), ui.MoneyCell(x.HeldMC)})
	}
	return t, nil
}

// rows lists an account's ledger, newest first, from the row before a sequence number on.
func (h *Handler) rows(r *http.Request, accountID string) (*ui.Table, error) {
	before := int64(1) << 62
	if text := r.URL.Query().Get("before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, apierr.InvalidRequest.Errorf("before: must be a number")
		}
		before = n
	}
	list, err := entriesBefore(r.Context(), h.DB, accountID, before, maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("admin: ledger: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Ledger",
		Heads: []ui.Head{
			{Name: "Entry"},
			{Name: "When"},
			{Name: "What"},
			{Name: "Model"},
			{Name: "Charge", End: true},
			{Name: "Available", End: true},
			{Name: "Reserved", End: true},
		},
		First: first(r, "before"),
		Empty: "No entries yet.",
	}
	for _, e := range list {
		charge := ui.Cell{Text: "–"}
		if e.kind == string(rules.EntrySpend) {
			charge = ui.MoneyCell(e.charge)
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{link("/operator/ledger/", e.id), when(e.createdUS), {Text: movement(e.kind, e.status)},
				{Text: e.model}, charge, ui.MoneyCell(e.available), ui.MoneyCell(e.reserved)})
	}
	if more {
		t.Next = next(r, true, "before", strconv.FormatInt(list[len(list)-1].seq, 10))
	}
	return t, nil
}

// movement says in words what a row is.
func movement(kind, status string) string {
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

// connection is GET /operator/connections/{id}.
func (h *Handler) connection(r *http.Request, s staff) (ui.Report, error) {
	x, err := store.GetConnection(r.Context(), h.DB, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, missing(err, "connection")
	}
	app, err := h.Service.Apps.Get(r.Context(), x.AppID)
	if err != nil {
		return ui.Report{}, err
	}
	c := s.console("/operator/accounts", "Connection to "+app.Name, "")
	status := statusCell(x)
	c.Back, c.Badge = &ui.Link{Href: "/operator/accounts/" + url.PathEscape(x.AccountID), Text: "Account"},
		&ui.Badge{Text: status.Text, Tone: status.Tone}
	c.Tiles = []ui.Tile{
		{Label: "Spend cap", Value: ui.Dollars(x.AllocationMC), Exact: x.AllocationMC.Display()}, {
			Label: "Used",
			Value: ui.Dollars(x.ConsumedMC),
			Exact: x.ConsumedMC.Display(),
		},
		{Label: "Held for calls", Value: ui.Dollars(x.HeldMC), Exact: x.HeldMC.Display()}, {
			Label: "Remaining",
			Value: ui.Dollars(x.RemainingMC()),
			Exact: x.RemainingMC().Display(),
		},
	}
	facts := []ui.Detail{
		{Name: "Id", Cell: ui.Cell{Text: x.ID, Code: true}},
		{Name: "Account", Cell: link("/operator/accounts/", x.AccountID)},
		{Name: "App", Cell: link("/operator/apps/", x.AppID)},
		{Name: "Created", Cell: when(x.CreatedUS)},
		{Name: "Pace allowed", Cell: ui.Cell{Text: fmt.Sprintf("%d × the usual", max(x.FasterSpend, 1))}},
	}
	if x.VelocityLimitMC != nil {
		facts = append(facts, ui.Detail{Name: "Daily limit", Cell: ui.MoneyCell(*x.VelocityLimitMC)})
	}
	c.Blocks = []ui.Block{{
		Heading: "Connection",
		Facts:   facts,
		More:    &ui.Link{Href: "/operator/log?subject=" + url.QueryEscape(x.ID), Text: "Audit log"},
	}}
	if s.acts() && x.Status != rules.Revoked {
		c.Blocks = append(c.Blocks, pauseBlock(x))
	}
	calls, err := store.RecentEntries(r.Context(), h.DB, x.AccountID, x.ID, 20)
	if err != nil {
		return c, fmt.Errorf("admin: calls: %w", err)
	}
	t := &ui.Table{
		Label: "Last calls",
		Heads: []ui.Head{
			{Name: "Entry"},
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
			[]ui.Cell{link("/operator/ledger/", e.ID), when(e.CreatedUS), {Text: movement(string(e.Type), e.Status)},
				{Text: e.Model}, {Text: e.Feature}, ui.MoneyCell(e.UserChargeMC)})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Last calls", Table: t})
	return c, nil
}

func pauseBlock(x rules.Connection) ui.Block {
	at := "/operator/connections/" + url.PathEscape(x.ID)
	if x.Status == rules.Frozen {
		return ui.Block{
			Heading: "Resume",
			Text:    "The app can make calls again, within the risk thresholds its user allows.",
			Form:    &ui.Ask{Action: at, Decision: "resume", Fields: reason("For the audit log."), Button: "Resume"},
		}
	}
	return ui.Block{
		Heading: "Pause this connection",
		Text:    "The app’s calls are refused until the user or an operator resumes the connection. No money moves.",
		Form: &ui.Ask{
			Action:   at,
			Decision: "freeze",
			Fields:   reason("For the audit log."),
			Button:   "Pause",
			Danger:   true,
		},
	}
}

// switchConnection is POST /operator/connections/{id}.
func (h *Handler) switchConnection(r *http.Request, s staff, form url.Values) (string, error) {
	why, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	connectionID, decision := r.PathValue("id"), form.Get("decision")
	switch decision {
	case "freeze":
		_, err = h.Service.Freeze(r.Context(), s.ID, connectionID, why)
	case "resume":
		_, err = h.Service.Resume(r.Context(), s.ID, connectionID, why)
	default:
		err = apierr.InvalidRequest.Errorf("decision: must be freeze or resume")
	}
	return "/operator/connections/" + url.PathEscape(connectionID) + "?done=" + decision, err
}
