package operatorpages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
)

const settingsPath = "/operator/settings"

// showSettings is GET /operator/settings: what holds for all calls now, what will, and what did.
func (h *Handler) showSettings(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(settingsPath, "Settings", "What holds for all calls, on every node.")
	book, now := h.Service.Policies, h.Service.Now()
	if err := book.Read(r.Context()); err != nil {
		return c, err
	}
	list := book.Versions()
	current := book.VersionAt(now)
	who, err := loadNames(r.Context(), h.DB, actorsOf(list)...)
	if err != nil {
		return c, err
	}
	if names := book.Differences(); len(names) > 0 {
		c.Banner = &ui.Banner{
			Tone:   "warn",
			Text:   "This node’s own settings differ.",
			Detail: "Those here count. Change or remove in its file: " + strings.Join(names, ", ") + ".",
		}
	}
	nodes, err := store.ListSettingsDifferences(r.Context(), h.DB, h.Service.DB.Now().UnixMicro())
	if err != nil {
		return c, err
	}
	facts := make([]ui.Detail, 0, len(policy.Settings))
	for _, set := range policy.Settings {
		facts = append(facts, ui.Detail{
			Name: set.Name,
			Cell: ui.Cell{Text: set.Text(current.Policy), Sub: ui.Sentence(set.Help)},
		})
	}
	c.Blocks = []ui.Block{}
	if len(nodes) > 0 {
		c.Blocks = append(c.Blocks, nodesBlock(nodes))
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "In force since " + formatStart(current.FromUS), Facts: facts})
	for _, v := range list {
		if policies.StateOf(v, list, now) != policies.Upcoming {
			continue
		}
		b := ui.Block{Heading: "From " + formatTime(v.FromUS), Text: v.Reason, Facts: differences(v, list)}
		if s.canAct() {
			b.Form = &ui.Ask{
				Action:   settingsPath + "/" + url.PathEscape(v.ID),
				Decision: "withdraw",
				Fields:   reasonField("For the audit log."),
				Button:   "Withdraw",
				Danger:   true,
			}
		}
		c.Blocks = append(c.Blocks, b)
	}
	if s.canAct() {
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "Change",
			Text:    "What you leave empty stays. Until the change begins it can be withdrawn.",
			Form: &ui.Ask{
				Action:   settingsPath,
				Decision: "change",
				Fields:   settingsFields(current.Policy, now),
				Button:   "Change from then on",
			},
		})
	}
	t := &ui.Table{Label: "History", Heads: []ui.Head{{Name: "From"}, {Name: "Change"}, {Name: "By"}, {Name: "Reason"}}}
	for _, v := range slices.Backward(list) {
		var changes []string
		for _, d := range differences(v, list) {
			changes = append(changes, d.Name+": "+d.Cell.Text)
		}
		t.Rows = append(t.Rows, []ui.Cell{{Text: formatStart(v.FromUS)}, {Text: strings.Join(changes, "; ")},
			who.cell(v.Actor), {Text: v.Reason}})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "History", Table: t})
	return c, nil
}

// nodesBlock shows in which settings of their own files the nodes differ, and never what they say there.
func nodesBlock(list []store.SettingsDifference) ui.Block {
	t := &ui.Table{Label: "Nodes that differ", Heads: []ui.Head{{Name: "Setting"}, {Name: "Nodes that agree"}}}
	for _, d := range list {
		groups := make([]string, len(d.Nodes))
		for i, nodes := range d.Nodes {
			groups[i] = strings.Join(nodes, ", ")
		}
		t.Rows = append(t.Rows, []ui.Cell{{Text: d.Setting}, {Text: strings.Join(groups, " / ")}})
	}
	return ui.Block{
		Heading: "Nodes differ",
		Text: "Every node must have these settings alike. Users get one or the other by chance until you make the " +
			"files equal and restart the nodes.",
		Table: t,
	}
}

func actorsOf(list []policies.Version) (ids []string) {
	for _, v := range list {
		ids = append(ids, v.Actor)
	}
	return ids
}

func formatStart(us int64) string {
	if us == 0 {
		return "the first start"
	}
	return formatTime(us)
}

// differences returns what a version changes of the one before it.
func differences(v policies.Version, list []policies.Version) (changes []ui.Detail) {
	at := slices.IndexFunc(list, func(other policies.Version) bool { return other.ID == v.ID })
	for _, set := range policy.Settings {
		text := set.Text(v.Policy)
		switch {
		case at <= 0:
			changes = append(changes, ui.Detail{Name: set.Name, Cell: ui.Cell{Text: text}})
		case set.Text(list[at-1].Policy) != text:
			changes = append(changes, ui.Detail{
				Name: set.Name,
				Cell: ui.Cell{Text: set.Text(list[at-1].Policy) + " → " + text},
			})
		}
	}
	return changes
}

// settingsTime is the form of the start in the form, in UTC.
const settingsTime = "2006-01-02 15:04"

// settingsFields are the fields of the form. They are empty, and not what is in force: a form that somebody sends late
// must not set back what was changed meanwhile.
func settingsFields(p policy.Policy, now time.Time) []ui.Entry {
	var list []ui.Entry
	for _, set := range policy.Settings {
		hint := ui.Sentence(set.Help) + "."
		list = append(list, ui.Entry{ID: set.Name, Label: set.Name, Value: set.Text(p), Hint: hint})
	}
	tomorrow := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	return append(list,
		ui.Entry{
			ID:    "from",
			Label: "From (UTC)",
			Value: tomorrow.Format(settingsTime),
			Hint:  "Empty: in ten seconds.",
		},
		reasonField("For the audit log and the history.")[0])
}

// changeSettings is POST /operator/settings.
func (h *Handler) changeSettings(r *http.Request, s staff, form url.Values) (string, error) {
	if form.Get("decision") != "change" {
		return "", apierr.InvalidRequest.Errorf("decision: must be change")
	}
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	var from time.Time
	if text := strings.TrimSpace(form.Get("from")); text != "" {
		if from, err = time.Parse(settingsTime, text); err != nil {
			return "", apierr.InvalidRequest.Errorf("from: must be a time such as 2027-01-01 00:00")
		}
	}
	values := map[string]string{}
	for _, set := range policy.Settings {
		if text := strings.TrimSpace(form.Get(set.Name)); text != "" {
			values[set.Name] = text
		}
	}
	if len(values) == 0 {
		return "", apierr.InvalidRequest.Errorf("settings: nothing would change")
	}
	_, err = h.Service.ChangePolicy(r.Context(), s.ID, from, values, reason)
	return settingsPath + "?done=settings", err
}

// withdrawSettings is POST /operator/settings/{id}.
func (h *Handler) withdrawSettings(r *http.Request, s staff, form url.Values) (string, error) {
	if form.Get("decision") != "withdraw" {
		return "", apierr.InvalidRequest.Errorf("decision: must be withdraw")
	}
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	_, err = h.Service.WithdrawPolicy(r.Context(), s.ID, r.PathValue("id"), reason)
	if e, ok := err.(*apierr.Error); ok && e.Code.Status == http.StatusNotFound {
		return "", apierr.NotFound.Errorf("This change doesn’t exist.")
	}
	return settingsPath + "?done=settings-withdrawn", err
}
