package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"purser/emulator"
	"purser/internal/config"
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

// providers are the live ones: those that the operator has a key for; and of them
// those that are let to keep a record of calls.
func (s *Server) providers() (map[string]provider.Provider, map[string]inference.Recorder) {
	list, records := map[string]provider.Provider{}, map[string]inference.Recorder{}
	for name, address := range addresses {
		p := s.config.Providers[name]
		if p.Key == "" {
			continue
		}
		if p.BaseURL != "" {
			address = p.BaseURL
		}
		client := dial(name, address, p)
		list[name] = upstream.NewReliable(client, s.db.Now, s.log, s.alarm)
		if r, ok := client.(inference.Recorder); ok && p.Store {
			records[name] = r
		}
	}
	return list, records
}

func dial(name, address string, p config.Provider) provider.Provider {
	switch {
	case name == "anthropic":
		return anthropic.New(address, p.Key)
	case name == "google":
		return google.New(address, p.Key)
	case p.Store:
		return openai.New(address, p.Key, openai.Store())
	}
	return openai.New(address, p.Key)
}

// alarm tells the operator what only the operator can mend.
func (s *Server) alarm(provider, alarm string, cause error) {
	s.metrics.Alarm(alarm, provider)
	s.log.Error("alarm: a provider refuses us", "provider", provider, "alarm", alarm, "error", cause)
}

// emulate serves the three providers' APIs on a free port of this machine until
// the process ends, for calls need it to their end, and returns how to reach them.
// store lets the emulated OpenAI keep records.
func emulate(log *slog.Logger, store bool) (map[string]config.Provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	srv := &http.Server{Handler: emulator.New(emulator.Options{}), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		log.Error("the emulator stopped", "error", srv.Serve(l))
	}()
	at := "http://" + l.Addr().String()
	log.Info("emulator", "url", at) // where GET /emulator/requests shows what was asked of it
	return map[string]config.Provider{
		"openai": {BaseURL: at + "/v1", Key: "emulated-key", Store: store}, "anthropic": {BaseURL: at, Key: "emulated-key"}, "google": {BaseURL: at, Key: "emulated-key"},
	}, nil
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
