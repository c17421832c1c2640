package calltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

func init() { accounts.HashLightly() }

// LiveApp is a limited-live app, answered by the mock, with connections of real accounts.
type LiveApp struct {
	DB          *db.DB
	Ledger      *store.Writer
	ID          string
	Connections []rules.Connection
	Tokens      []string // of the connections
}

// NewLiveApp makes the app beside a running node, through the stores.
func NewLiveApp(t testing.TB, d *db.DB, prefix string, connections int, allocationMC money.MC) *LiveApp {
	t.Helper()
	w := apitest.StartLedger(t, d, d.Now)
	people, tokens := accounts.NewStore(d, d.Now), &oauth.Store{DB: d, Ledger: w, Now: d.Now}
	l := &LiveApp{DB: d, Ledger: w}
	err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error { // it hashes passwords
		developer, err := people.Create(ctx, tx, accounts.NewAccount{
			Email:     prefix + "live@example.com",
			Password:  id.NewSecret(),
			Developer: true,
		})
		if err != nil {
			return err
		}
		app, _, err := apps.NewStore(d, d.Now, true).Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Live app",
			RedirectURIs: []string{"https://example.com/back"},
			Tier:         tiers.LimitedLive,
			ProviderMode: apps.Mock,
			DevMargin:    money.One / 5,
		})
		if l.ID = app.ID; err != nil {
			return err
		}
		for i := range connections {
			user, err := people.Create(ctx, tx,
				accounts.NewAccount{Email: fmt.Sprintf("%suser%d@example.com", prefix, i), Password: id.NewSecret()})
			if err != nil {
				return err
			}
			if _, err := w.DoTx(ctx, tx, rules.TopUp{AccountID: user.ID, AmountMC: 2 * allocationMC}); err != nil {
				return err
			}
			r, err := w.DoTx(ctx, tx, rules.Connect{
				ConnectionID: id.New(id.Connection, d.Now()),
				AppID:        app.ID,
				AccountID:    user.ID,
				RequestedMC:  allocationMC,
			})
			if err != nil {
				return err
			}
			token, err := tokens.IssueTokens(ctx, tx, r.Connection.ID, app.ID, "")
			if err != nil {
				return err
			}
			l.Connections, l.Tokens = append(l.Connections, r.Connection), append(l.Tokens, token.AccessToken)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
