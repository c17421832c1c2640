package server

import (
	"net/netip"

	"purser/internal/inference"
	"purser/internal/provider"
	"purser/internal/provider/anthropic"
	"purser/internal/provider/google"
	"purser/internal/provider/openai"
	"purser/internal/provider/upstream"
)

// addresses of the real providers, where the operator names no other.
var addresses = map[string]string{
	"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com", "google": "https://generativelanguage.googleapis.com",
}

// providers are the live ones: those that the operator has a key for.
func (s *Server) providers() map[string]provider.Provider {
	list := map[string]provider.Provider{}
	for name, address := range addresses {
		p := s.config.Providers[name]
		if p.Key == "" {
			continue
		}
		if p.BaseURL != "" {
			address = p.BaseURL
		}
		list[name] = upstream.NewReliable(dial(name, address, p.Key), s.db.Now, s.log, s.alarm)
	}
	return list
}

func dial(name, address, key string) provider.Provider {
	switch name {
	case "anthropic":
		return anthropic.New(address, key)
	case "google":
		return google.New(address, key)
	}
	return openai.New(address, key)
}

// alarm tells the operator what only the operator can mend.
func (s *Server) alarm(provider, alarm string, cause error) {
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
