package server

import (
	"context"
	"errors"
	"net/netip"

	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// defaultProviderURLs are the providers' own addresses, used unless the operator sets others.
var defaultProviderURLs = map[string]string{
	"openai":    "https://api.openai.com/v1",
	"anthropic": "https://api.anthropic.com",
	"google":    "https://generativelanguage.googleapis.com",
}

// newProviders returns the providers that the operator has a key for, and of them those
// that may keep records of calls.
func (s *Server) newProviders() (map[string]provider.Provider, map[string]inference.Recorder) {
	list, records := map[string]provider.Provider{}, map[string]inference.Recorder{}
	s.developerProviders, s.pools = newDeveloperProviders(s), map[string]*upstream.Pool{}
	for name := range defaultProviderURLs {
		p := s.Config.Providers[name]
		if len(p.Keys) == 0 {
			continue
		}
		var keys []upstream.Key
		var recorders keyRecorders
		for _, key := range p.Keys {
			client := s.newProviderClient(name, key, p.Store)
			keys = append(keys, upstream.Key{ID: describeKey(key), Provider: client})
			if r, ok := client.(inference.Recorder); ok && p.Store {
				recorders = append(recorders, r)
			}
		}
		pool := upstream.NewPool(keys, s.DB.Now, s.log, s.reportAlarm)
		s.pools[name] = pool
		list[name] = upstream.NewReliable(pool, s.DB.Now, s.log, s.reportAlarm)
		if len(recorders) > 0 {
			records[name] = recorders
		}
	}
	return list, records
}

// describeKey names a key by its end, as providers' consoles do.
func describeKey(key string) string { return "…" + key[len(key)-4:] }

// keyRecorders are the records of several accounts of one provider. Nobody has noted which one has a call's.
type keyRecorders []inference.Recorder

// GetStoredUsage returns the usage of a call from the account that has it.
func (k keyRecorders) GetStoredUsage(ctx context.Context, responseID, requestID string) (*provider.Usage, bool, error) {
	var failed error
	for _, r := range k {
		usage, found, err := r.GetStoredUsage(ctx, responseID, requestID)
		if found && err == nil {
			return usage, true, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, false, failed
}

// chooseVoiceKey returns the key for a new voice session of a model, "" if there is none.
func (s *Server) chooseVoiceKey(model string) string {
	keys := s.Config.Providers["openai"].Keys
	if len(keys) == 0 {
		return ""
	}
	return keys[s.pools["openai"].Choose(model)]
}

// providerURL returns the base URL of a provider's API.
func (s *Server) providerURL(name string) string {
	if at := s.Config.Providers[name].BaseURL; at != "" {
		return at
	}
	return defaultProviderURLs[name]
}

// newProviderClient returns a client of a provider with a key of the operator or of a
// developer. All keys of a provider share its connections. store lets it keep records.
func (s *Server) newProviderClient(name, key string, store bool) provider.Provider {
	address, carry := s.providerURL(name), s.developerProviders.transports[name]
	shared := func(c *upstream.Config) { c.Transport = carry }
	switch {
	case name == "anthropic":
		return anthropic.New(address, key, shared)
	case name == "google":
		return google.New(address, key, shared)
	case store:
		return openai.New(address, key, openai.Transport(carry), openai.Store())
	}
	return openai.New(address, key, openai.Transport(carry))
}

// reportAlarm counts and logs a refusal that only the operator can resolve, such as an
// invalid key.
func (s *Server) reportAlarm(provider, alarm string, cause error) {
	s.metrics.RaiseAlarm(alarm, provider)
	s.log.Error("provider alarm", "provider", provider, "alarm", alarm, "error", cause)
}

// newDialectCheck returns a check that a request can be translated by encode.
func newDialectCheck(encode func(*provider.Request) ([]byte, error)) inference.Dialect {
	return func(r *provider.Request) error {
		_, err := encode(r)
		return err
	}
}

// allowedPrefixes returns the non-public addresses that images may come from: loopback in
// development, none otherwise.
func allowedPrefixes(dev bool) []netip.Prefix {
	if !dev {
		return nil
	}
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}
