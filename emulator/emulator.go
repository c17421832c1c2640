package emulator

import (
	"net/http"

	"github.com/purserhq/purser/emulator/anthropic"
	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/google"
	"github.com/purserhq/purser/emulator/openai"
	"github.com/purserhq/purser/emulator/realtime"
)

// Options say what is emulated.
type Options struct {
	Models   []exchange.Model // nil = Models()
	TokenPPM int              // tokens reported for a million that are counted in texts; 0 = a million
	NoMedia  bool             // realtime calls have events only, and every offer gets the same answer
}

// An Emulator serves the providers' APIs on one address: their paths do not collide.
type Emulator struct {
	mux      *http.ServeMux
	realtime *realtime.API
}

// New returns an emulator.
func New(o Options) *Emulator {
	s := exchange.New(o.Models, o.TokenPPM)
	openAI, claude := openai.New(s), anthropic.New(s)
	e := &Emulator{mux: http.NewServeMux(), realtime: realtime.New(s, o.NoMedia)}
	s.Mount(e.mux)
	openAI.Mount(e.mux)
	claude.Mount(e.mux)
	google.New(s).Mount(e.mux)
	e.realtime.Mount(e.mux)
	e.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "" { // OpenAI and Anthropic both have this path
			claude.ListModels(w, r)
		} else {
			openAI.ListModels(w, r)
		}
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// Close ends all realtime calls without an event, like a provider that crashes.
func (e *Emulator) Close() { e.realtime.Close() }
