//go:build !serve

package commands

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/oidc"
	"github.com/purserhq/purser/emulator/stripe"
)

type emulatorCmd struct {
	Listen   string   `default:"127.0.0.1:8090" placeholder:"ADDRESS" help:"Address to listen on; port 0 picks a free one (default: 127.0.0.1:8090)."`
	TokenPPM int      `name:"token-ppm" default:"1000000" placeholder:"N" help:"Tokens reported for a million that are counted (default: 1000000)."`
	Stripe   string   `and:"stripe" placeholder:"ADDRESS" help:"Emulate Stripe too, at this address."`
	Events   string   `and:"stripe" placeholder:"URL" help:"Where Stripe’s events go: BASE_URL/stripe/events."`
	Secret   string   `name:"webhook-secret" placeholder:"SECRET" help:"Stripe’s signing secret (default: a new one)."`
	OIDC     string   `name:"oidc" and:"oidc" placeholder:"ADDRESS" help:"Emulate an OpenID Connect provider."`
	Redirect []string `and:"oidc" placeholder:"URL" help:"Redirect to AUTH_URL/sign-in/provider/callback."`
	JSON     bool     `name:"json" help:"Print the base URLs as one line of JSON."`
}

// Help is shown by purser emulator --help.
func (emulatorCmd) Help() string {
	return `It serves the text APIs of OpenAI, Anthropic and Google and the realtime API of OpenAI with their checks, and answers with canned prose, in calls by voice. Any key works, save bad-key, no-quota and no-permission.

Lines in the last user text steer it:

  !call weather {"city":"Oslo"}    the model calls this tool
  !emu status=503 retry_after=2 fails=2    the first two tries fail
  !emu words=200 pace=5ms cut=3000    a slow answer that breaks off
  !emu error=3 | end=3 | hang | garbage | html | redirect    other faults
  !emu refusal | safety | thinking | calls=2 | empty_args    other answers
  !emu usage=1000,200,100,50 | no_usage    what it says it used
  !emu split | huge | delay=1s    how it says it

Lines in the instructions of a realtime session steer the call:

  !emu no_media turns=3 fast=10    events only: the user speaks by itself
  !emu drop=response.created down=2s | not_found=2 | mute=5    a lost sideband
  !emu vanish=1 leave_gone | expire=5s | hangup_fails=2    other ends
  !emu pace=500ms no_usage | duplicate | hang=3 | fail=x    its replies
  !browser {"type":"response.create"}    what the browser sends

GET /emulator/realtime lists the calls; a POST to one of them steers it.

The package comment of purser/emulator has the whole list. GET /emulator/requests shows what was sent, DELETE forgets it.

For a staging, --stripe and --oidc emulate those too, and print the settings
with which a node uses them; --webhook-secret keeps one of them over restarts.
The OpenID Connect provider signs in anybody by any email address: let only your
own people reach it.

Examples:
  purser emulator --listen 127.0.0.1:8090
  purser emulator --stripe 127.0.0.1:8091 --events http://127.0.0.1:8080/stripe/events
  purser emulator --oidc 127.0.0.1:8092 --redirect http://127.0.0.1:8080/sign-in/provider/callback`
}

// An emulated is one server of the emulator, and what its user must know.
type emulated struct {
	listener net.Listener
	handler  http.Handler
	names    [][2]string // what is where, in the order of the output
}

// Run serves until it is interrupted.
func (c *emulatorCmd) Run(p *program) error {
	ctx, stop := interruptContext()
	defer stop()
	list, err := c.open(ctx)
	if err == nil {
		err = c.print(p.out, list)
	}
	if err != nil {
		for _, e := range list {
			err = errors.Join(err, e.listener.Close())
		}
		return err
	}
	serving, ctx := errgroup.WithContext(ctx)
	for _, e := range list {
		// There is no write timeout, because a script may let an answer hang.
		server := &http.Server{
			Handler:           e.handler,
			ReadHeaderTimeout: time.Minute,
			BaseContext:       func(net.Listener) context.Context { return ctx },
		}
		closed := context.AfterFunc(ctx, func() { _ = server.Close() }) // cuts the answers in flight
		defer closed()
		serving.Go(func() error {
			if err := server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	return serving.Wait()
}

// open opens the listeners. With an error it returns those that are open.
func (c *emulatorCmd) open(ctx context.Context) (list []emulated, err error) {
	listen := func(address string) (base string, err error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		list = append(list, emulated{listener: l})
		return "http://" + l.Addr().String(), nil
	}
	base, err := listen(c.Listen)
	if err != nil {
		return list, err
	}
	list[0].handler = emulator.New(emulator.Options{TokenPPM: c.TokenPPM})
	list[0].names = [][2]string{{"openai", base + "/v1"}, {"anthropic", base}, {"google", base},
		{"requests", base + "/emulator/requests"}}
	if c.Stripe != "" {
		if base, err = listen(c.Stripe); err != nil {
			return list, err
		}
		o := stripe.Options{Key: "sk_test_emulated", WebhookSecret: cmp.Or(c.Secret, "whsec_"+rand.Text()),
			WebhookURL: c.Events}
		last := &list[len(list)-1]
		last.handler = stripe.New(o)
		last.names = [][2]string{{"stripe.base_url", base}, {"stripe.key", o.Key},
			{"stripe.webhook_secret", o.WebhookSecret}}
	}
	if c.OIDC != "" {
		if base, err = listen(c.OIDC); err != nil {
			return list, err
		}
		provider, err := oidc.New(oidc.Options{Issuer: base, Redirects: c.Redirect})
		if err != nil {
			return list, err
		}
		last := &list[len(list)-1]
		last.handler = provider
		last.names = [][2]string{{"oidc.name", "Emulator"}, {"oidc.issuer", base}, {"oidc.client_id", oidc.ClientID},
			{"oidc.client_secret", oidc.ClientSecret}}
	}
	return list, nil
}

// titles are the names of the output that are no settings.
var titles = map[string]string{"openai": "OpenAI", "anthropic": "Anthropic", "google": "Google", "requests": "Requests"}

// print prints what is where.
func (c *emulatorCmd) print(w io.Writer, list []emulated) error {
	if c.JSON {
		all := map[string]string{}
		for _, e := range list {
			for _, n := range e.names {
				all[n[0]] = n[1]
			}
		}
		return json.NewEncoder(w).Encode(all)
	}
	for _, e := range list {
		for _, n := range e.names {
			if _, err := fmt.Fprintf(w, "%-10s %s\n", cmp.Or(titles[n[0]], n[0]+":"), n[1]); err != nil {
				return err
			}
		}
	}
	return nil
}
