package server

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/watch"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/memory"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/children"
	"github.com/purserhq/purser/internal/gateway/feed"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/mock"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/tokens"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/pages/status"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
)

// wireAll builds the services on the store, layer by layer: each needs the previous ones.
func (s *Server) wireAll(ctx context.Context, dev bool) error {
	if err := s.checkIdentity(ctx, dev); err != nil {
		return err
	}
	if err := s.wireLedger(ctx); err != nil {
		return err
	}
	box, derivation, err := seal.OpenEnvelope(ctx, s.DB, s.Config.EnvelopeKeys)
	if err != nil {
		return err
	}
	s.box = box
	if s.publisher, err = proofs.OpenPublisher(ctx, s.DB, box, s.Config.BaseURL); err != nil {
		return err
	}
	s.publisher.Witnesses = s.Config.Witnesses
	s.proofs = &proofs.Log{DB: s.DB, Key: s.publisher.Key()}
	if s.identifiers, err = accounts.NewSafetyIdentifiers(derivation); err != nil {
		return err
	}
	if s.cardKey, err = topups.NewCardKey(derivation); err != nil {
		return err
	}
	if !dev { // nodes of purser dev listen at addresses that they choose
		if err := s.node.SetSettings(digestShared(s.Config, derivation)); err != nil {
			return err
		}
	}
	if err := s.wirePeople(box, dev); err != nil {
		return err
	}
	if err := s.wirePolicies(ctx, dev); err != nil {
		return err
	}
	s.wireApps(box, dev)
	if err := s.wireNotices(derivation); err != nil {
		return err
	}
	s.wireGateway(dev)
	s.wireOperator()
	return nil
}

// wirePolicies reads what the operator has set for all calls.
func (s *Server) wirePolicies(ctx context.Context, dev bool) (err error) {
	if s.policies, err = policies.Open(ctx, s.DB, s.Config.Policy, s.Config.Given, s.log); err != nil {
		return err
	}
	if dev {
		return s.policies.Follow(ctx)
	}
	if names := s.policies.Differences(); len(names) > 0 {
		s.metrics.RaiseAlarm("settings differ", strings.Join(names, " "))
	}
	return nil
}

// feeRate returns the rate of the service fee now.
func (s *Server) feeRate() money.PPM { return s.policies.At(s.DB.Now()).Fee }

// wireLedger builds the catalog and the ledger, and registers the node.
func (s *Server) wireLedger(ctx context.Context) (err error) {
	lastGood, err := settings.Get(ctx, s.DB, operatorpages.PricesFileSetting)
	if err != nil {
		return err
	}
	if s.catalog, err = catalog.OpenOr(s.Config.PricesFile, []byte(lastGood), s.log); err != nil {
		return err
	}
	tokens.Load()
	if err := s.checkClock(ctx); err != nil {
		return err
	}
	s.Ledger = store.NewWriter(s.DB, s.DB.Now)
	if s.node, err = store.JoinNode(ctx, s.DB, id.New(id.Node, s.DB.Now()), s.Config.Lease, s.DB.Now); err != nil {
		return err
	}
	s.Ledger.Node = s.node
	if s.estimates, err = estimates.Load(ctx, s.DB, s.DB.Now, s.log); err != nil {
		return err
	}
	s.metrics = metrics.New(s.catalog, s.estimates)
	s.metrics.WatchNode(s.node.LeaseAge, s.Ledger.AcceptsHolds)
	about := telemetry.Node{ID: s.node.ID}
	if build, ok := debug.ReadBuildInfo(); ok {
		about.Version = build.Main.Version
	}
	s.telemetry, err = telemetry.Open(ctx, s.Config.OTLP, s.metrics.Gatherer(), about, s.log)
	return err
}

// wirePeople builds accounts, how users sign in, their mail and their top-ups.
func (s *Server) wirePeople(box *seal.Box, dev bool) (err error) {
	c, now := s.Config, s.DB.Now
	s.Accounts = accounts.NewStore(s.DB, now)
	s.Accounts.RolesWithoutSecondStep = dev
	s.sessions = accounts.NewSessions(s.Accounts, strings.HasPrefix(c.AuthURL, "https://"))
	s.Mails = &mail.Store{DB: s.DB, Now: now, Site: c.Site, Box: box}
	if !dev {
		s.sender = &mail.Sender{Store: s.Mails, Server: c.SMTP, Metrics: s.metrics, Log: s.log}
	}
	if s.passkeyParty, err = identity.NewPasskeyParty(c.AuthURL, c.DashboardURL); err != nil {
		return err
	}
	s.identity = identity.NewStore(s.DB, s.Accounts, s.Mails, box, now, c.DashboardURL, s.passkeyParty)
	s.identity.SignUps = c.SignUps
	s.topups = &topups.Store{
		DB:           s.DB,
		CardKey:      s.cardKey,
		Ledger:       s.Ledger,
		Config:       c.Stripe,
		DashboardURL: c.DashboardURL,
		Mails:        s.Mails,
		Metrics:      s.metrics,
		Log:          s.log,
		Now:          now,
	}
	return s.topups.Configure()
}

// wireApps builds apps with their features, keys, tokens and webhooks.
func (s *Server) wireApps(box *seal.Box, dev bool) {
	c, now := s.Config, s.DB.Now
	s.Apps = apps.NewStore(s.DB, now, dev)
	s.Features = features.NewStore(s.DB, now, s.isModelOffered)
	s.sandbox = sandbox.NewStore(s.DB, s.Accounts, s.Ledger, now)
	s.members = members.NewStore(s.DB, s.Accounts, s.Mails, now, c.DashboardURL)
	s.identity.Admits = s.members.IsInvited
	s.payouts = &payouts.Store{
		DB:           s.DB,
		Ledger:       s.Ledger,
		Apps:         s.Apps,
		Stripe:       s.topups.Stripe(),
		Account:      s.topups.Account(),
		Config:       c.Payouts,
		StripeURL:    c.Stripe.BaseURL,
		DashboardURL: c.DashboardURL,
		Mails:        s.Mails,
		Metrics:      s.metrics,
		Log:          s.log,
		Now:          now,
	}
	s.topups.Transfers = s.payouts
	s.golive = &golive.Store{DB: s.DB, Apps: s.Apps, Ledger: s.Ledger, Now: now}
	s.Apps.OnReviewed = s.golive.Follow
	s.keys = providerkeys.NewStore(s.DB, box, now, providerBaseURLs(c))
	s.Tokens = &oauth.Store{DB: s.DB, Ledger: s.Ledger, Now: now}
	addresses := webhooks.Addresses{
		Allow: append(allowedPrefixes(dev), c.WebhookAllow...),
		HTTP:  dev,
		Own:   []string{c.BaseURL, c.AuthURL, c.DashboardURL},
	}
	s.webhooks, s.domains = webhooks.NewStore(s.DB, box, now, addresses, linksOf(c)), domains.New(addresses)
	if c.Drill {
		s.domains = &domains.Checker{}
	}
	s.webhooks.Retention = c.Retention.Webhooks
}

// linksOf returns the URLs of pages that errors and answers have.
func linksOf(c config.Config) web.Links {
	return web.Links{Dashboard: c.DashboardURL, Docs: c.BaseURL + "/docs"}
}

// wireNotices builds the notices by mail.
func (s *Server) wireNotices(derivation []byte) error {
	stops, err := notices.NewSigner(derivation)
	if err != nil {
		return err
	}
	s.notices = &notices.Store{
		DB:    s.DB,
		Apps:  s.Apps,
		Mails: s.Mails,
		Links: linksOf(s.Config),
		Stops: stops,
		Log:   s.log,

		Ledger: s.Ledger,
	}
	return nil
}

// wireGateway builds the services that answer text and voice calls.
func (s *Server) wireGateway(dev bool) {
	c, now := s.Config, s.DB.Now
	live, records := s.newProviders()
	if !dev { // in development the mock serves every model
		s.listedProviders = slices.AppendSeq([]string{}, maps.Keys(live))
	}
	for name := range live {
		s.metrics.ExpectProvider(name)
	}
	s.wireStatus(dev, slices.Sorted(maps.Keys(live)))
	s.callers = callers.NewResolver(s.DB, s.Tokens, s.Apps, s.Features, now)
	s.Apps.OnChange = s.callers.Forget
	if !dev {
		s.freeRate = callers.NewFreeRate(freeRate, freeBurst, now)
	}
	s.children = &children.Handler{
		DB:      s.DB,
		Ledger:  s.Ledger,
		Callers: s.callers,
		Offered: s.isModelOffered,
		Box:     s.box,

		FreeRate: s.freeRate,
		Rate:     children.NewRate(now),
	}
	canned := mock.New(tokens.Count, s.countInput, now, maxMockWords(dev))
	s.inference = inference.New(inference.Config{
		DB:        s.DB,
		Links:     linksOf(s.Config),
		Ledger:    s.Ledger,
		Node:      s.node,
		Apps:      s.Apps,
		Callers:   s.callers,
		Catalog:   s.catalog,
		Policies:  s.policies,
		Images:    images.New(images.Config{Allow: allowedPrefixes(dev)}),
		Estimates: s.estimates,
		Metrics:   s.metrics,
		Traces:    s.telemetry.Calls(),
		Mock:      canned,
		CheckMock: canned.Check,
		Providers: live,
		Recorders: records,
		Bounds:    callBounds(c, dev),
		Storing: inference.Storing{
			AppBytes:  c.StoredBytes,
			Kept:      c.Retention.Calls.Responses,
			IsDiskLow: s.DB.IsDiskLow,
		},
		FreeRate:          s.freeRate,
		Identifiers:       s.identifiers,
		DeveloperProvider: s.developerProviders.findProvider,
		Dialects: map[string]inference.Dialect{
			"anthropic": newDialectCheck(anthropic.Encode),
			"google":    newDialectCheck(google.Encode),
		},
		Now: now,
		Log: s.log,
	})
	s.metrics.WatchMemory(s.inference.MemoryUsed, callBounds(c, dev).Bytes)
	s.feed = feed.NewHub(s.DB, now)
	s.Ledger.Observe = s.feed.Observe
	s.voice = voice.NewSupervisor(voice.Options{
		DB:       s.DB,
		Ledger:   s.Ledger,
		NodeID:   s.node.ID,
		NodeURL:  c.NodeURL,
		Apps:     s.Apps,
		Policies: s.policies,
		Provider: voice.Provider{
			BaseURL:      s.providerURL("openai"),
			PlatformKeys: c.Providers["openai"].Keys,
			ChooseKey:    s.chooseVoiceKey,
			DeveloperKey: s.findVoiceKey,
			MakeRefusal:  openai.MakeRefusal,
			Identifiers:  s.identifiers,
		},
		Memory:   s.inference,
		FreeRate: s.freeRate,
		Metrics:  s.metrics,
		Now:      now,
		Log:      s.log,
	})
}

// wireStatus builds what counts how the service fares, and the page that tells.
func (s *Server) wireStatus(dev bool, providers []string) {
	if dev {
		providers = append([]string{"mock"}, providers...)
	}
	s.health = &status.Recorder{
		DB:      s.DB,
		NodeID:  s.node.ID,
		Now:     s.DB.Now,
		Tallies: s.metrics.Tallies,
		Ready: func(ctx context.Context) error {
			if err := s.ready.Check(ctx); !errors.Is(err, errDraining) {
				return err
			}
			return nil // a node that stops is not an outage
		},
		Readable: s.DB.CheckReadable,
	}
	s.status = &status.Handler{
		DB:        s.DB,
		Recorder:  s.health,
		Providers: providers,
		Payments:  s.topups.IsConfigured(),
		Email:     s.sender != nil,
		Now:       s.DB.Now,
		Log:       s.log,
	}
}

// wireOperator builds the watch over live apps, the closing of accounts and the operator's service.
func (s *Server) wireOperator() {
	s.privacy = &privacy.Store{
		DB:       s.DB,
		Accounts: s.Accounts,
		Sessions: s.sessions,
		Identity: s.identity,
		Apps:     s.Apps,
		Sandbox:  s.sandbox,
		Keys:     s.keys,
		Topups:   s.topups,
		Webhooks: s.webhooks,
		Members:  s.members,
		Payouts:  s.payouts,
		Ledger:   s.Ledger,
		Now:      s.DB.Now,

		KeptResponses: s.Config.Retention.Calls.Responses,
		KeptEvents:    s.Config.Retention.SecurityEvents,
	}
	s.watch = &watch.Watch{
		DB:      s.DB,
		Apps:    s.Apps,
		Report:  s.notices.ReportSuspension,
		Metrics: s.metrics,
		Log:     s.log,
		Now:     s.DB.Now,
	}
	s.operators = &operator.Service{
		DB:          s.DB,
		Accounts:    s.Accounts,
		Identity:    s.identity,
		Identifiers: s.identifiers,
		Apps:        s.Apps,
		GoLive:      s.golive,
		Ledger:      s.Ledger,
		Topups:      s.topups,
		Privacy:     s.privacy,
		Mails:       s.Mails,
		Notices:     s.notices,
		Policies:    s.policies,
		Box:         s.box,
		Sealed:      s.listSealed(),
		Now:         s.DB.Now,
	}
}

// listSealed returns every column of sealed values but that of the settings.
func (s *Server) listSealed() []seal.Column {
	return []seal.Column{
		s.Mails.SealedColumn(), s.keys.SealedColumn(), s.identity.SealedColumn(), s.webhooks.SealedColumn(),
		store.SealedColumn(s.DB),
	}
}

// maxMockCalls bounds the mock calls in flight of each developer outside development: they are
// free, so nothing else does.
const maxMockCalls = 200

// callBounds returns the bounds of calls in flight.
func callBounds(c config.Config, dev bool) inference.Bounds {
	b := inference.Bounds{
		Calls:         c.MaxCalls,
		ProviderCalls: c.MaxProviderCalls,
		MockCalls:     maxMockCalls,
		Bytes:         c.CallMemory,
	}
	if b.Bytes == 0 {
		b.Bytes = memory.Total(os.DirFS("/")) / 2
		if dev {
			b.Bytes = min(b.Bytes, maxDevMemory)
		}
	}
	if dev {
		b.MockCalls = 0
	}
	return b
}

// The rate of what is free for each developer outside development. A burst is a test suite's; what goes on longer
// leaves at most 1 GB of ledger rows a day.
const (
	freeRate  = 10 // a second
	freeBurst = 2000
)

// maxDevMemory bounds what calls take of the machine of a developer, who uses it for other things.
const maxDevMemory = 1 << 30

// maxMockWords bounds the text of the mock outside development, where any developer of a
// sandbox writes its scripts. Tests of slow readers need long texts.
func maxMockWords(dev bool) int {
	if dev {
		return 10 * mock.MaxWords
	}
	return mock.MaxWords
}

// countInput counts the input tokens of a request as its hold does.
func (s *Server) countInput(r *provider.Request) int64 {
	// A model that has just retired counts as the default family.
	m, _, _ := s.catalog.Current().Find(r.Model, s.DB.Now())
	return tokens.CountRequest(r, m.Family)
}

// providerBaseURLs returns the base URLs that the operator has set, by provider.
func providerBaseURLs(c config.Config) map[string]string {
	list := map[string]string{}
	for name, p := range c.Providers {
		list[name] = p.BaseURL
	}
	return list
}

func (s *Server) isModelOffered(model string) bool {
	_, _, ok := s.catalog.Current().Find(model, s.DB.Now())
	return ok
}
