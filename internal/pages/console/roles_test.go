package console_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// An expectation is the action that a route needs, and its answer to the form of TestRoles when the role allows it.
type expectation struct {
	action apps.Action
	status int
}

// appRoutes are the expectations of all routes of an app, by method and path below appPath. They are written down a
// second time here, so that a route that declares a weaker action than this turns the test red.
var appRoutes = map[string]expectation{
	"GET ":                              {apps.View, 200},
	"GET /live":                         {apps.View, 200},
	"GET /settings":                     {apps.Configure, 200},
	"POST /settings":                    {apps.Configure, 303},
	"POST /profile":                     {apps.Configure, 303},
	"POST /domain":                      {apps.Configure, 422},
	"POST /logo":                        {apps.Configure, 422},
	"POST /logo/delete":                 {apps.Configure, 303},
	"GET /secret":                       {apps.ManageSecret, 200},
	"POST /secret":                      {apps.ManageSecret, 400},
	"GET /client-type":                  {apps.ManageSecret, 200},
	"POST /client-type":                 {apps.ManageSecret, 401},
	"GET /switch":                       {apps.Disable, 200},
	"POST /switch":                      {apps.Disable, 400},
	"GET /features":                     {apps.View, 200},
	"POST /features":                    {apps.Configure, 422},
	"GET /features/{slug}":              {apps.Configure, 200},
	"POST /features/{slug}":             {apps.Configure, 303},
	"GET /webhooks":                     {apps.View, 200},
	"POST /webhooks":                    {apps.Configure, 422},
	"GET /webhooks/events":              {apps.View, 200},
	"POST /webhooks/events":             {apps.Configure, 404},
	"POST /webhooks/{endpoint}/recover": {apps.Configure, 422},
	"GET /webhooks/{endpoint}/deliveries.csv":              {apps.View, 200},
	"GET /webhooks/{endpoint}/deliveries/{delivery}/state": {apps.View, 200},
	"GET /webhooks/{endpoint}":                             {apps.View, 200},
	"POST /webhooks/{endpoint}":                            {apps.Configure, 303},
	"GET /webhooks/{endpoint}/rotate":                      {apps.Configure, 200},
	"POST /webhooks/{endpoint}/rotate":                     {apps.Configure, 401},
	"GET /webhooks/{endpoint}/delete":                      {apps.Configure, 200},
	"POST /webhooks/{endpoint}/delete":                     {apps.Configure, 303},
	"POST /webhooks/{endpoint}/test":                       {apps.Configure, 400},
	"GET /webhooks/{endpoint}/deliveries/{delivery}":       {apps.View, 200},
	"POST /webhooks/{endpoint}/deliveries/{delivery}":      {apps.Configure, 303},
	"GET /analytics":                                       {apps.View, 200},
	"GET /requests":                                        {apps.View, 200},
	"GET /analytics.csv":                                   {apps.View, 200},
	"GET /requests.csv":                                    {apps.View, 200},
	"GET /requests/{request}":                              {apps.View, 200},
	"GET /requests/{request}/refund":                       {apps.RefundCalls, 200},
	"POST /requests/{request}/refund":                      {apps.RefundCalls, 303},
	"GET /go-live":                                         {apps.View, 200},
	"POST /go-live":                                        {apps.RequestReview, 422},
	"GET /playground":                                      {apps.RunCalls, 200},
	"POST /playground":                                     {apps.RunCalls, 404},
	"POST /playground/stream":                              {apps.RunCalls, 400},
	"POST /playground/stop":                                {apps.RunCalls, 404},
	"POST /playground/code":                                {apps.RunCalls, 400},
	"GET /playground/voice":                                {apps.RunCalls, 200},
	"POST /playground/voice":                               {apps.RunCalls, 404},
	"GET /voice/{session}":                                 {apps.View, 200},
	"POST /voice/{session}/end":                            {apps.RunCalls, 503},
	"GET /members":                                         {apps.View, 200},
	"GET /members/invite":                                  {apps.ManageMembers, 200},
	"POST /members/invite":                                 {apps.ManageMembers, 401},
	"GET /members/{member}":                                {apps.ManageMembers, 200},
	"POST /members/{member}":                               {apps.ManageMembers, 401},
	"GET /members/{member}/remove":                         {apps.ManageMembers, 200},
	"POST /members/{member}/remove":                        {apps.ManageMembers, 401},
	"POST /invitations/{invitation}/revoke":                {apps.ManageMembers, 303},
	"GET /leave":                                           {apps.View, 200},
	"POST /leave":                                          {apps.View, 303}, // 422 for the app's own account
}

// join makes an account with a role in the developer's app, and signs it in.
func (w *world) join(name string, role apps.Role) *apitest.Browser {
	w.t.Helper()
	var a accounts.Account
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = w.people.Create(ctx, tx, accounts.NewAccount{Email: name + "@example.com", Developer: true})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE accounts SET password_hash = $1 WHERE id = $2`, apitest.PasswordHash(w.t), a.ID)
	if role != apps.NoRole {
		w.exec(`INSERT INTO app_members (app_id, account_id, role, invited_by, created_us)
			VALUES ($1, $2, $3, $4, 1)`,
			w.app.ID, a.ID, string(role), w.developer.ID)
	}
	return w.signedIn(name)
}

// member makes a viewer of the developer's app and returns the account's id.
func (w *world) member(name string) (accountID string) {
	w.t.Helper()
	w.join(name, apps.Viewer)
	if err := w.d.QueryRowContext(w.t.Context(), `SELECT id FROM accounts WHERE email = $1`, name+"@example.com").
		Scan(&accountID); err != nil {
		w.t.Fatal(err)
	}
	return accountID
}

// things makes one of everything of the developer's app that has an id in a path, and returns the ids by parameter.
func (w *world) things(b *apitest.Browser, slug string) []string {
	w.t.Helper()
	b.Post(w.mine("/features"), url.Values{
		"slug":         {slug},
		"display_name": {"Chat"},
		"description":  {"Answers."},
	}).Want(w.t, 303)
	hook := b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/" + slug}}).Found(w.t,
		`webhooks/(whk_[0-9a-z]+)"`)
	b.Post(w.mine("/webhooks/"+hook+"/test"), url.Values{"type": {"request.settled"}}).Want(w.t, 303)
	delivery := b.Get(w.mine("/webhooks/"+hook)).Found(w.t, `deliveries/(whd_[0-9a-z]+)"`)
	talk := id.New(id.Voice, w.d.Now())
	w.exec(`INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, model, mock, status, slot,
			ticket_hash, ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s, created_us)
		VALUES ($1, $2, $3, $4, 'gpt-realtime-2.1', 1, 'pending', 1, $2, 1, 0, 0, 0, '{}', 900, 1)`,
		talk, "conn_"+slug, w.tester.ID, w.app.ID)
	var member string
	if err := w.d.QueryRowContext(w.t.Context(), `SELECT id FROM accounts WHERE email = 'target@example.com'`).
		Scan(&member); err != nil {
		w.t.Fatal(err)
	}
	b.Post(w.mine("/members/invite"), url.Values{
		"email":   {slug + "@example.org"},
		"role":    {"viewer"},
		"present": {apitest.Password},
	}).Leads(w.t, w.mine("/members?done=invited"))
	var invitation string
	if err := w.d.QueryRowContext(w.t.Context(), `SELECT id FROM app_invitations WHERE email = $1`,
		slug+"@example.org").Scan(&invitation); err != nil {
		w.t.Fatal(err)
	}
	return []string{"{member}", member, "{invitation}", invitation, "{slug}", slug,
		"{endpoint}", hook, "{delivery}", delivery, "{session}", talk}
}

// TestRoles asks every route of the console as members of each role, a member of another app, an operator and a
// browser without an account. A role that is too small gets 403; an account that is not a member gets 404, as for an
// app that does not exist.
func TestRoles(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		first := w.signedIn("developer")
		connection := w.connect(w.tester.ID, true)
		w.join("operator", apps.NoRole)
		w.join("target", apps.Viewer)
		w.exec(`UPDATE accounts SET operator = 1 WHERE email = 'operator@example.com'`)
		for name, who := range map[string]struct {
			*apitest.Browser
			role     apps.Role
			stranger int // the status of every page; 0 = it depends on the role
		}{
			"app’s account": {first, apps.Owner, 0},
			"owner":         {w.join("owner", apps.Owner), apps.Owner, 0},
			"developer":     {w.join("coder", apps.Developer), apps.Developer, 0},
			"viewer":        {w.join("reader", apps.Viewer), apps.Viewer, 0},
			"other app":     {w.signedIn("other"), apps.NoRole, 404},
			"operator":      {w.signedIn("operator"), apps.NoRole, 404},
			"signed out":    {w.browser(), apps.NoRole, 303},
		} {
			slug := strings.NewReplacer(" ", "-", "’", "").Replace(name)
			call := id.ReplacePrefix(w.spend(connection, "", "", money.Cent, 0).ID, id.Ledger, id.Request)
			parts := append(w.things(first, slug), "{id}", w.app.ID, "{request}", call)
			fill := strings.NewReplacer(parts...)
			tried := 0
			for _, route := range w.matrixOrder() {
				method, path, _ := strings.Cut(route, " ")
				rest, ok := strings.CutPrefix(path, "/developer/apps/{id}")
				if !ok {
					continue // of the account, not of an app
				}
				expected, ok := appRoutes[method+" "+rest]
				if !ok {
					t.Fatalf("%s is not in appRoutes: add it with the action that it needs", route)
				}
				want := expected.status
				switch {
				case who.stranger != 0:
					want = who.stranger
				case who.Browser == first && rest == "/leave" && method == "POST":
					want = http.StatusUnprocessableEntity
				case !apps.Allows(who.role, expected.action):
					want = http.StatusForbidden
				}
				before := ""
				if want == http.StatusForbidden || who.stranger != 0 {
					before = w.everything()
				}
				page := who.Get
				if method == "POST" {
					page = func(path string) apitest.Page { return who.Post(path, url.Values{"nothing": {"x"}}) }
				}
				got := page(fill.Replace(path))
				if got.Status != want {
					t.Errorf("%s as %s: %d, want %d", route, name, got.Status, want)
				}
				if want == http.StatusForbidden && !strings.Contains(got.Body, "Only owners") {
					t.Errorf("%s as %s does not say who may: %s", route, name, got.Body)
				}
				if before != "" && w.everything() != before {
					t.Errorf("%s as %s changed something", route, name)
				}
				tried++
			}
			if tried != len(appRoutes) {
				t.Errorf("%d routes were tried, %d are expected", tried, len(appRoutes))
			}
		}
	})
}

// matrixOrder returns the routes, with what deletes an object of another route last.
func (w *world) matrixOrder() []string {
	list := slices.Clone(w.routes)
	slices.SortStableFunc(list, func(a, b string) int {
		rank := func(route string) int {
			switch {
			case strings.HasSuffix(route, "POST /developer/apps/{id}/leave"):
				return 3
			case strings.HasSuffix(route, "{endpoint}/delete"):
				return 2
			case strings.HasPrefix(route, "POST"):
				return 1
			}
			return 0
		}
		return rank(a) - rank(b)
	})
	return list
}

// TestAllows is the table of roles and actions.
func TestAllows(t *testing.T) {
	t.Parallel()
	for action, want := range map[apps.Action]string{
		0:                  "",
		apps.View:          "owner developer viewer",
		apps.RunCalls:      "owner developer",
		apps.Configure:     "owner developer",
		apps.ManageSecret:  "owner",
		apps.Disable:       "owner",
		apps.RequestReview: "owner",
		apps.ManageMembers: "owner",
		99:                 "",
	} {
		var got []string
		for _, r := range append([]apps.Role{apps.NoRole, "admin"}, apps.Roles...) {
			if apps.Allows(r, action) {
				got = append(got, string(r))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("action %d: %q, want %q", action, got, want)
		}
	}
}

// A member sees the app with the role; what the role cannot do is not shown, and the page says who can.
func TestPagesOfRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.join("target", apps.Viewer)
	things := w.things(w.signedIn("developer"), "chat")
	hook, delivery := things[7], things[9]
	reader, coder := w.join("reader", apps.Viewer), w.join("coder", apps.Developer)
	reader.Get("/developer").Want(t, 200, "My &lt;b&gt;App&lt;/b&gt;", "viewer")
	coder.Get("/developer").Want(t, 200, "My &lt;b&gt;App&lt;/b&gt;", "developer")
	reader.Get(w.mine("/members")).Want(t, 200).Lacks(t, w.mine("/playground"), w.mine("/settings"))
	coder.Get(w.mine("/members")).Want(t, 200, w.mine("/playground"), w.mine("/settings"))
	const both = "Only owners and developers can change settings, features and webhook endpoints."
	for _, rest := range []string{"/features", "/webhooks", "/webhooks/" + hook,
		"/webhooks/" + hook + "/deliveries/" + delivery} {
		change := `method="post" action="` + w.mine("/") // lists have forms that change nothing
		reader.Get(w.mine(rest)).Want(t, 200, both).Lacks(t, change)
		coder.Get(w.mine(rest)).Want(t, 200, change).Lacks(t, both)
	}
	reader.Get(w.mine("/go-live")).Want(t, 200, "Only owners can request a review.")
	coder.Get(w.mine("/settings")).Want(t, 200,
		"Only owners can replace the client secret and change where the app runs.",
		"Only owners can disable and enable the app.").
		Lacks(t, `href="`+w.mine("/secret"), `href="`+w.mine("/client-type"), `"`+w.mine("/switch"))
	coder.Get(w.mine("/playground")).Want(t, 200, "tester@example.com")
	reader.Get(w.mine("/members")).Want(t, 200, "Only owners can invite, change and remove members.",
		"developer@example.com", "coder@example.com", "Leave app").Lacks(t, "chat@example.org", "Invite a member")
	w.signedIn("developer").Get(w.mine("/members")).Want(t, 200, "chat@example.org", "Invite a member",
		"/members/invite").Lacks(t, "Leave app")
}
