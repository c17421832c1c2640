package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// developerProviders makes providers that use the provider keys of developers (contract
// §7, sandbox_live_cost_limited). All keys of a provider share its connections. Each key
// has its own circuit breaker, so that a failing developer account affects no other.
type developerProviders struct {
	s          *Server
	transports map[string]http.RoundTripper // by provider

	mu    sync.Mutex
	byKey map[[2]string]developerProvider // by developer and provider
}

// A developerProvider is a provider that uses one key.
type developerProvider struct {
	key providerkeys.Secret
	at  provider.Provider
}

// maxDeveloperProviders bounds the cache. A full cache is emptied.
const maxDeveloperProviders = 10_000

func newDeveloperProviders(s *Server) *developerProviders {
	o := &developerProviders{s: s, transports: map[string]http.RoundTripper{}, byKey: map[[2]string]developerProvider{}}
	for name := range defaultProviderURLs {
		o.transports[name] = upstream.NewTransport(s.providerURL(name))
	}
	return o
}

// findProvider returns the named provider with the provider key that an account has stored, or nil if there is none.
func (o *developerProviders) findProvider(ctx context.Context, accountID, name string) (provider.Provider, error) {
	key, err := o.s.findDeveloperKey(ctx, accountID, name)
	if err != nil || key.Reveal() == "" {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := [2]string{accountID, name}
	if have, ok := o.byKey[id]; ok && have.key.Reveal() == key.Reveal() {
		return have.at, nil
	}
	if len(o.byKey) >= maxDeveloperProviders {
		clear(o.byKey)
	}
	made := developerProvider{key, o.s.newDeveloperProvider(name, key)}
	o.byKey[id] = made
	return made.at, nil
}

// findDeveloperKey returns the provider key that an account has stored, or "" if there is none, or none that can be
// read, which is logged. Whether there is one is not known while the database is away: a call by the operator's key
// instead would be theirs to pay.
func (s *Server) findDeveloperKey(ctx context.Context, accountID, name string) (key providerkeys.Secret, err error) {
	if s.Config.Drill {
		return key, nil
	}
	key, _, err = s.keys.GetCached(ctx, accountID, name)
	if db.IsUnavailable(err) || ctx.Err() != nil {
		return key, err
	}
	if err != nil {
		s.log.ErrorContext(ctx, "provider key not read", "account_id", accountID, "provider", name, "error", err)
	}
	return key, nil
}

// findVoiceKey returns a developer's provider key for voice sessions; "" = there is none.
func (s *Server) findVoiceKey(ctx context.Context, accountID string) (string, error) {
	key, err := s.findDeveloperKey(ctx, accountID, "openai")
	return key.Reveal(), err
}

// newDeveloperProvider returns a provider that uses a developer's key. Faults of the key
// or its account are reported to the developer and raise no alarm.
func (s *Server) newDeveloperProvider(name string, key providerkeys.Secret) provider.Provider {
	return upstream.NewReliable(developerKeyClient{s.newProviderClient(name, key.Reveal(), false)}, s.DB.Now, s.log,
		nil)
}

// developerKeyClient turns a provider's refusal of a key into an error that its developer
// can act on.
type developerKeyClient struct{ provider.Provider }

// Name distinguishes these calls in the metrics: the operator cannot fix their failures.
func (o developerKeyClient) Name() string { return o.Provider.Name() + " (own key)" }

// Complete runs a request to its end.
func (o developerKeyClient) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	answer, err := o.Provider.Complete(ctx, r)
	return answer, o.explainAlarm(err)
}

// Stream starts a streamed request.
func (o developerKeyClient) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	answer, err := o.Provider.Stream(ctx, r)
	return answer, o.explainAlarm(err)
}

// explainAlarm turns an alarm into a 400 for the developer: the same call succeeds only
// after the developer has acted. The log gets the provider's status only, because its
// message may repeat parts of the key.
func (o developerKeyClient) explainAlarm(err error) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Alarm == "" {
		return err
	}
	name := o.Provider.Name()
	return &provider.Error{
		Kind:   provider.Rejected,
		Status: e.Status,
		Message: fmt.Sprintf("your own key for %s does not serve this call: %s. Mend it at the provider, "+
			"or replace it with PUT /v1/provider-keys/%s", name, e.Alarm, name),
		Cause: fmt.Errorf("a developer's own key: %s: status %d", e.Alarm, e.Status),
	}
}
