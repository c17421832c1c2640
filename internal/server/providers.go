package server

import (
	"net/netip"

	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// addresses of the real providers, where the operator names no other.
var addresses = map[string]string{
	"openai":    "https://api.openai.com/v1",
	"anthropic": "https://api.anthropic.com",
	"google":    "https://generativelanguage.googleapis.com",
}

// providers are the live ones: those that the operator has a key for; and of them
// those that are let to keep a record of calls.
func (s *Server) providers() (map[string]provider.Provider, map[string]inference.Recorder) {
	list, records := map[string]provider.Provider{}, map[string]inference.Recorder{}
	s.own = newOwnKeys(s)
	for name := range addresses {
		p := s.Config.Providers[name]
		if p.Key == "" {
			continue
		}
		client := s.dial(name, p.Key, p.Store)
		list[name] = upstream.NewReliable(client, s.DB.Now, s.log, s.alarm)
		if r, ok := client.(inference.Recorder); ok && p.Store {
			records[name] = r
		}
	}
	return list, records
}

// address is where a provider is reached.
func (s *Server) address(name string) string {
	if at := s.Config.Providers[name].BaseURL; at != "" {
		return at
	}
	return addresses[name]
}

// dial returns a client of a provider with a key, the operator's or a developer's
// own. All keys of a provider share its connections. store lets it keep records.
func (s *Server) dial(name, key string, store bool) provider.Provider {
	address, carry := s.address(name), s.own.transports[name]
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

// alarm tells the operator what only the operator can mend.
func (s *Server) alarm(provider, alarm string, cause error) {
	s.metrics.RaiseAlarm(alarm, provider)
	s.log.Error("alarm: a provider refuses us", "provider", provider, "alarm", alarm, "error", cause)
}

// dialect makes a check of a translation.
func dialect(encode func(*provider.Request) ([]byte, error)) inference.Dialect {
	return func(r *provider.Request) error {
		_, err := encode(r)
		return err
	}
}

// allowed are the addresses that images may come from beside public ones: this
// machine's own, in development.
func allowed(dev bool) []netip.Prefix {
	if !dev {
		return nil
	}
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}
