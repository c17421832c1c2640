package history

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// names are those of the users. The first realUsers have real accounts, for the live app; the others are test accounts.
var names = strings.Fields(`Ada Ben Chloe Dara Eli Fay Gus Hana Ida Jon Kai Lena Milo Nora Omar Pia Quinn Rosa Sami
	Tess Uma Vera Will Xenia Yara Zoe Abel Bea Cleo Dina Emil Finn Greta Hugo Iris Jonas Karin Leo Mina Nils`)

const realUsers = 26

// A user is an account with its connections.
type user struct {
	accounts.Account
	joins       int // the day
	activity    float64
	long        bool // asks for long answers, and so soon pays beyond the free credit
	topUpCents  int64
	connections []*connection
}

// A connection is one of a user's, with what it is for.
type connection struct {
	id    string
	app   *app
	long  bool   // as its user's
	token string // fresh for the visit that is made now
}

// makeUsers plans the users. Their accounts are opened on the day on which they join.
func (m *Maker) makeUsers(context.Context) error {
	for i := range names {
		long := i%4 == 3
		activity := 0.15 + 0.6*m.random.Float64()
		if long {
			activity = 0.9
		}
		m.users = append(m.users, &user{
			joins:      1 + i*7%(m.Days*5/6),
			activity:   activity,
			long:       long,
			topUpCents: []int64{10_00, 25_00, 50_00, 20_00}[i%4],
		})
	}
	return nil
}

// open opens the account of a user with its money and its connections.
func (m *Maker) open(ctx context.Context, i int) error {
	u, s := m.users[i], m.Server
	n := accounts.NewAccount{Email: strings.ToLower(names[i]) + "@example.com"}
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if i >= realUsers {
			if n.OwnerID, err = accounts.IDByEmail(ctx, tx, m.data.Developer.Email); err != nil {
				return err
			}
			n.Sandbox = true
		}
		if u.Account, err = s.Accounts.Create(ctx, tx, n); err != nil || !n.Sandbox {
			return err
		}
		_, err = s.Ledger.DoTx(ctx, tx, rules.TopUp{
			AccountID: u.ID,
			Sandbox:   true,
			AmountMC:  money.MC(u.topUpCents) * money.Cent,
		})
		return err
	})
	if err != nil {
		return err
	}
	if i < realUsers {
		if err := m.topUp(ctx, u, "pay"); err != nil {
			return err
		}
		return m.connect(ctx, u, m.apps[0], money.MC(5+i%4*5)*money.Dollar)
	}
	if i%3 != 0 { // caps that some fill, whatever the number of days
		if err := m.connect(ctx, u, m.apps[1], money.MC(1+i%5)*money.MC(m.Days)*money.Cent/10); err != nil {
			return err
		}
	}
	if i%3 != 1 {
		return m.connect(ctx, u, m.apps[2], money.MC(1+i%4)*25*money.Cent)
	}
	return nil
}

// connect connects a user to an app, with a spend cap.
func (m *Maker) connect(ctx context.Context, u *user, a *app, allocation money.MC) error {
	s := m.Server
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err := s.Ledger.DoTx(ctx, tx, rules.Connect{
			ConnectionID: id.New(id.Connection, s.DB.Now()),
			AppID:        a.ID,
			AccountID:    u.ID,
			Sandbox:      u.Sandbox,
			RequestedMC:  allocation,
		})
		if err != nil {
			return err
		}
		u.connections = append(u.connections, &connection{id: r.Connection.ID, app: a, long: u.long})
		return nil
	})
}

// addTester adds the sample test account, with its sample connection and two more.
func (m *Maker) addTester(ctx context.Context) error {
	tester, err := m.Server.Accounts.GetByEmail(ctx, m.data.TestAccount.Email)
	if err != nil {
		return err
	}
	sampleApp, err := m.Server.Apps.Get(ctx, m.data.App.ID)
	if err != nil {
		return err
	}
	u := &user{Account: tester, activity: 0.7}
	u.connections = []*connection{{id: m.data.Connection.ID, app: &app{
		App: sampleApp,
		calls: []call{
			{model: "gpt-6.2-astra", feature: "chat", text: "What should I cook tonight?", words: 500},
			{model: "claude-opus-5-5", feature: "summarize", text: "Shorten this report.", words: 400},
			{model: "gpt-6-luna", feature: "chat", text: "Thank you. And tomorrow?", words: 300},
		},
	}}}
	m.users = append(m.users, u)
	if err := m.connect(ctx, u, m.apps[1], 10*money.Dollar); err != nil {
		return err
	}
	return m.connect(ctx, u, m.apps[2], 15*money.Dollar)
}

// signIn returns the session of a user who signs in.
func (m *Maker) signIn(ctx context.Context, u *user) (*http.Cookie, error) {
	sessions := accounts.NewSessions(m.Server.Accounts, false)
	r, err := m.newRequest(ctx, http.MethodPost, "/login", nil)
	if err != nil {
		return nil, err
	}
	r.RemoteAddr = "127.0.0.1:1"
	answer := &recorder{header: http.Header{}}
	err = sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		return sessions.Start(w, r, u.Account, accounts.ProofSingle)
	})(answer, r)
	if err != nil {
		return nil, err
	}
	for _, c := range (&http.Response{Header: answer.header}).Cookies() {
		return c, nil
	}
	return nil, fmt.Errorf("no session for %s", u.Email)
}

// topUp opens a checkout for a user and does there what the user does: a word of the emulated Stripe's steering.
func (m *Maker) topUp(ctx context.Context, u *user, words ...string) error {
	session, err := m.signIn(ctx, u)
	if err != nil {
		return err
	}
	page, err := m.submit(ctx, session, "/top-up", url.Values{
		"token":  {id.NewSecret()},
		"amount": {strconv.FormatInt(u.topUpCents/100, 10)},
	})
	if err != nil {
		return err
	}
	m.wait(time.Minute)
	for _, word := range words {
		if err := m.Stripe.Steer(page[strings.LastIndexByte(page, '/')+1:], word, url.Values{}); err != nil {
			return err
		}
	}
	return m.deliverStripeEvents(ctx)
}

// deliverStripeEvents sends the new events of the emulated Stripe to the server.
func (m *Maker) deliverStripeEvents(ctx context.Context) error {
	list := m.Stripe.Events()
	for _, body := range list[m.events:] {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Server.Config.BaseURL+"/stripe/events",
			strings.NewReader(string(body)))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		// The signature counts as fresh by the real clock.
		r.Header.Set("Stripe-Signature", stripe.Sign(m.Server.Config.Stripe.WebhookSecret, time.Now(), body))
		if answer := m.serve(r); answer.status != http.StatusOK {
			return fmt.Errorf("event of Stripe: %d %s", answer.status, answer.body.Bytes())
		}
	}
	m.events = len(list)
	return nil
}

// isLive reports whether the connection spends real money.
func (c *connection) isLive() bool { return c.app.Tier != apps.Sandbox }
