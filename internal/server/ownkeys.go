package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// ownKeys makes providers that use the developers' own keys (contract §7,
// sandbox_live_cost_limited). They share the connections to a provider with
// everybody else; each has a circuit breaker to itself, so that what ails one
// developer's account is nobody else's trouble.
type ownKeys struct {
	s          *Server
	transports map[string]http.RoundTripper // by provider

	mu   sync.Mutex
	list map[[2]string]ownKey // by developer and provider
}

// An ownKey is a provider that was made for a key.
type ownKey struct {
	key providerkeys.Secret
	at  provider.Provider
}

// maxOwnKeys bounds what is remembered; when it is full it begins anew.
const maxOwnKeys = 10_000

func newOwnKeys(s *Server) *ownKeys {
	o := &ownKeys{s: s, transports: map[string]http.RoundTripper{}, list: map[[2]string]ownKey{}}
	for name := range addresses {
		o.transports[name] = upstream.NewTransport(s.address(name))
	}
	return o
}

// provider returns the named provider with the key that an account has stored for
// it. False is: it has none, or none that can be read, which is in the log.
func (o *ownKeys) provider(ctx context.Context, accountID, name string) (provider.Provider, bool) {
	key, found, err := o.s.keys.GetCached(ctx, accountID, name)
	if err != nil {
		o.s.log.ErrorContext(ctx, "a developer's own key cannot be read", "account_id", accountID, "provider", name,
			"error", err)
	}
	if err != nil || !found {
		return nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := [2]string{accountID, name}
	if have, ok := o.list[id]; ok && have.key.Reveal() == key.Reveal() {
		return have.at, true
	}
	if len(o.list) >= maxOwnKeys {
		clear(o.list)
	}
	made := ownKey{key, o.s.ownProvider(name, key)}
	o.list[id] = made
	return made.at, true
}

// ownVoice returns a developer's own key for voice sessions.
func (s *Server) ownVoice(ctx context.Context, accountID string) (string, bool) {
	key, found, err := s.keys.GetCached(ctx, accountID, "openai")
	if err != nil {
		s.log.ErrorContext(ctx, "a developer's own key cannot be read", "account_id", accountID, "provider", "openai",
			"error", err)
	}
	return key.Reveal(), err == nil && found
}

// ownProvider returns a provider that uses a developer's key. What is wrong with
// the key or its account is told to the developer, and is no alarm of ours.
func (s *Server) ownProvider(name string, key providerkeys.Secret) provider.Provider {
	return upstream.NewReliable(own{s.dial(name, key.Reveal(), false)}, s.DB.Now, s.log, nil)
}

// own turns what a provider says of a key into what its owner can act on.
type own struct{ provider.Provider }

// Name tells the metrics apart: what these calls die of is not the operator's to
// mend.
func (o own) Name() string { return o.Provider.Name() + " (own key)" }

// Complete runs a request to its end.
func (o own) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	answer, err := o.Provider.Complete(ctx, r)
	return answer, o.explain(err)
}

// Stream starts a streamed request.
func (o own) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	answer, err := o.Provider.Stream(ctx, r)
	return answer, o.explain(err)
}

// explain makes an alarm the developer's 400: the same call succeeds only after
// the developer has done something. Of the provider's own words the log gets the
// status alone, for they may repeat parts of the key.
func (o own) explain(err error) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Alarm == "" {
		return err
	}
	name := o.Provider.Name()
	return &provider.Error{
		Kind:   provider.Rejected,
		Status: e.Status,
		Message: fmt.Sprintf(
			"your own key for %s does not serve this call: %s. Mend it at the provider, or replace it with PUT /v1/provider-keys/%s", name, e.Alarm, name),
		Cause: fmt.Errorf("a developer's own key: %s: status %d", e.Alarm, e.Status),
	}
}
