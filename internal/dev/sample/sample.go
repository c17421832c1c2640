// Package sample makes the sample data of a development node: an operator, a
// developer with an app and two features, a test account, and a connection between
// the two with fresh tokens. It is made once for a database.
package sample

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alexedwards/argon2id"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Stores are what the sample data is written through.
type Stores struct {
	DB       *db.DB
	Ledger   *store.Writer
	Accounts *accounts.Store
	Apps     *apps.Store
	Features *features.Store
	Tokens   *oauth.Store
}

// Data is everything that a first call needs. Its JSON is what `purser dev --json`
// prints.
type Data struct {
	BaseURL      string     `json:"base_url"`
	AuthURL      string     `json:"auth_url"`
	DashboardURL string     `json:"dashboard_url"`
	Operator     Login      `json:"operator"`
	OperatorFile string     `json:"operator_token_file"` // its reader is the operator
	Developer    Login      `json:"developer"`
	TestAccount  Login      `json:"test_account"`
	App          App        `json:"app"`
	PublicApp    PublicApp  `json:"public_app"`
	Connection   Connection `json:"connection"`
	DB           string     `json:"db"`
}

// Login is how a user signs in.
type Login struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

// App is the sample app with its credentials.
type App struct {
	ID           string `json:"id"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	RedirectURI  string `json:"redirect_uri"`
}

// PublicApp is the sample app that runs on users' devices, for purser login. It has no connection yet.
type PublicApp struct {
	ID       string `json:"id"`
	ClientID string `json:"client_id"`
}

// Connection is the test account's connection to the sample app. Its members are
// empty once the app is live, for a live app takes no test account.
type Connection struct {
	ID           string `json:"id"`
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
}

// Setting is the name of the settings row that keeps the sample data. Its value is "" while there is none.
const Setting = settings.Development

// What the test account and its connection begin with.
const (
	balanceMC    = 1000 * money.Dollar
	allocationMC = 25 * money.Dollar
)

// devCallback is the path to which the sample app returns.
const devCallback = "/dev/callback"

// Seed makes, once for a database, the sample data, and returns it with fresh
// tokens. The sample app returns to redirectURI and answers in the provider mode.
// Processes that start together wait for each other's settings row, longer than
// the database lets one transaction wait.
func Seed(ctx context.Context, s Stores, redirectURI, mode string) (out Data, err error) {
	for range 12 {
		if out, err = s.seedOnce(ctx, redirectURI); !db.IsUnavailable(err) {
			break
		}
	}
	if err != nil {
		return out, fmt.Errorf("seed: %w", err)
	}
	out.App.RedirectURI = redirectURI
	app, err := s.Apps.Get(ctx, out.App.ID)
	if err != nil || app.Tier != apps.Sandbox { // once it is live, only its developer changes it
		return out, err
	}
	// The port may have changed. What purser new has added stays.
	uris := slices.DeleteFunc(app.RedirectURIs, func(uri string) bool { return strings.HasSuffix(uri, devCallback) })
	return out, errors.Join(s.Apps.SetRedirectURIs(ctx, app.ID, append([]string{redirectURI}, uris...)),
		s.Apps.SetProviderMode(ctx, app.ID, mode), s.addFeatures(ctx, app.ID), s.followMode(ctx, out.PublicApp, mode))
}

// followMode sets the provider mode of the public sample app while it is in the sandbox.
func (s Stores) followMode(ctx context.Context, p PublicApp, mode string) error {
	app, err := s.Apps.Get(ctx, p.ID)
	if err != nil || app.Tier != apps.Sandbox {
		return err
	}
	return s.Apps.SetProviderMode(ctx, app.ID, mode)
}

func (s Stores) seedOnce(ctx context.Context, redirectURI string) (out Data, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out = Data{}
		text, err := settings.Lock(ctx, tx, Setting)
		if err != nil {
			return err
		}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &out); err != nil {
				return fmt.Errorf("settings.dev: %w", err)
			}
			if out.PublicApp.ID != "" {
				return s.connect(ctx, tx, &out)
			}
		} else if err := s.populate(ctx, tx, redirectURI, &out); err != nil {
			return err
		}
		if err := s.addPublicApp(ctx, tx, &out); err != nil {
			return err
		}
		kept, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if err := settings.Set(ctx, tx, Setting, string(kept)); err != nil {
			return err
		}
		return s.connect(ctx, tx, &out)
	})
	return out, err
}

// populate creates the accounts and the app.
func (s Stores) populate(ctx context.Context, tx *db.Tx, redirectURI string, out *Data) error {
	out.Operator = Login{"operator@example.com", id.NewSecret()[:16]}
	out.Developer = Login{"developer@example.com", id.NewSecret()[:16]}
	out.TestAccount = Login{"tester@example.com", id.NewSecret()[:16]}
	_, err := s.createAccount(ctx, tx, out.Operator, accounts.NewAccount{Operator: true})
	if err != nil {
		return err
	}
	developer, err := s.createAccount(ctx, tx, out.Developer, accounts.NewAccount{Developer: true})
	if err != nil {
		return err
	}
	tester, err := s.createAccount(ctx, tx, out.TestAccount, accounts.NewAccount{Sandbox: true, OwnerID: developer.ID})
	if err != nil {
		return err
	}
	topUp := rules.TopUp{AccountID: tester.ID, Sandbox: true, AmountMC: balanceMC}
	if _, err := s.Ledger.DoTx(ctx, tx, topUp); err != nil {
		return err
	}
	maxTokens := int64(apps.SuggestedMaxTokens)
	app, secret, err := s.Apps.Create(ctx, tx, apps.New{
		OwnerID:          developer.ID,
		Name:             "Sample app",
		RedirectURIs:     []string{redirectURI},
		DefaultMaxTokens: &maxTokens,
		Tier:             apps.Sandbox,
		ProviderMode:     apps.Mock,
		DevMargin:        money.One / 5,
	})
	if err != nil {
		return err
	}
	out.App = App{ID: app.ID, ClientID: app.ClientID, ClientSecret: secret}
	return nil
}

// hashParams are light, so that a start takes no half second for passwords that guard fake money. A hash names its
// parameters: those of production stay as they are.
var hashParams = argon2id.Params{
	Memory:      1 << 10,
	Iterations:  1,
	Parallelism: 1,
	SaltLength:  16,
	KeyLength:   32,
}

// createAccount creates a sample account that signs in as login says.
func (s Stores) createAccount(ctx context.Context, tx *db.Tx, login Login, n accounts.NewAccount) (
	accounts.Account, error) {
	hash, err := argon2id.CreateHash(login.Password, &hashParams)
	if err != nil {
		return accounts.Account{}, err
	}
	n.Email, n.PasswordHash = login.Email, hash
	return s.Accounts.Create(ctx, tx, n)
}

// addPublicApp creates the sample app for purser login, also in a database of an older version.
func (s Stores) addPublicApp(ctx context.Context, tx *db.Tx, out *Data) error {
	developerID, err := accounts.IDByEmail(ctx, tx, out.Developer.Email)
	if err != nil {
		return err
	}
	app, _, err := s.Apps.Create(ctx, tx, apps.New{
		OwnerID:      developerID,
		Name:         "Sample command line",
		ClientType:   apps.Public,
		RedirectURIs: []string{"http://127.0.0.1/callback"},
		Tier:         apps.Sandbox,
		ProviderMode: apps.Mock,
	})
	out.PublicApp = PublicApp{ID: app.ID, ClientID: app.ClientID}
	return err
}

// addFeatures registers the sample app's features that are missing. Another process
// may do the same at the same time: the second one finds them there.
func (s Stores) addFeatures(ctx context.Context, appID string) error {
	set := func(v string) web.Field[string] { return web.Field[string]{Set: true, Value: v} }
	for _, f := range []features.Change{
		{
			Slug:        set("chat"),
			DisplayName: set("Chat"),
			Description: set("Answers your questions in the chat window."),
		},
		{
			Slug:          set("summarize"),
			DisplayName:   set("Summaries"),
			Description:   set("Shortens long texts that you paste."),
			DefaultModel:  set("gpt-6-luna"),
			DevMarginRate: web.Field[jsontext.Value]{Set: true, Value: jsontext.Value("0.5")},
		},
	} {
		if _, err := s.Features.Get(ctx, appID, f.Slug.Value); err == nil {
			continue
		}
		if _, err := s.Features.Create(ctx, appID, f); err != nil {
			if _, missing := s.Features.Get(ctx, appID, f.Slug.Value); missing != nil {
				return errors.Join(err, missing)
			}
		}
	}
	return nil
}

// connect finds or makes the sample connection, and issues fresh tokens for it.
// Once the sample app is live it takes no test account.
func (s Stores) connect(ctx context.Context, tx *db.Tx, out *Data) error {
	if app, err := apps.LockShared(ctx, tx, out.App.ID); err != nil || app.Tier != apps.Sandbox {
		return err
	}
	tester, err := accounts.IDByEmail(ctx, tx, out.TestAccount.Email)
	if err != nil {
		return err
	}
	conn, err := store.LiveConnection(ctx, tx, out.App.ID, tester)
	if errors.Is(err, sql.ErrNoRows) {
		var r rules.Result
		r, err = s.Ledger.DoTx(ctx, tx, rules.Connect{
			ConnectionID: id.New(id.Connection, s.DB.Now()),
			AppID:        out.App.ID,
			AccountID:    tester,
			Sandbox:      true,
			RequestedMC:  allocationMC,
		})
		conn = r.Connection
	}
	if err != nil {
		return err
	}
	t, err := s.Tokens.IssueTokens(ctx, tx, conn.ID, out.App.ID, "")
	out.Connection = Connection{conn.ID, t.AccessToken, t.RefreshToken, t.ExpiresIn}
	return err
}
