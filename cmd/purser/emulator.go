//go:build !serve

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/purserhq/purser/emulator"
)

type emulatorCmd struct {
	Listen   string `default:"127.0.0.1:8090" placeholder:"ADDRESS" help:"Address to listen on; port 0 picks a free one (default: 127.0.0.1:8090)."`
	TokenPPM int    `name:"token-ppm" default:"1000000" placeholder:"N" help:"Tokens reported for a million that are counted (default: 1000000)."`
	JSON     bool   `name:"json" help:"Print the base URLs as one line of JSON."`
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

Example:
  purser emulator --listen 127.0.0.1:8090`
}

// Run serves until it is interrupted.
func (c *emulatorCmd) Run(p *program) error {
	ctx, stop := interruptContext()
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	if c.JSON {
		err = json.NewEncoder(p.out).Encode(map[string]string{
			"openai":    base + "/v1",
			"anthropic": base,
			"google":    base,
			"requests":  base + "/emulator/requests",
		})
	} else {
		_, err = fmt.Fprintf(p.out, "OpenAI     %s/v1\nAnthropic  %s\nGoogle     %s\nRequests   %s/emulator/requests\n",
			base, base, base, base)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	// There is no write timeout, because a script may let an answer hang.
	server := &http.Server{
		Handler:           emulator.New(emulator.Options{TokenPPM: c.TokenPPM}),
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	closed := context.AfterFunc(ctx, func() { _ = server.Close() }) // cuts the answers in flight
	defer closed()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
